/** What a scenario measures: the first metric of each is the one that ratios and the chart are about. */

/** Higher is better. */
export function more(name, unit) {
  return { name, unit, better: "more" };
}

/** Lower is better. */
export function less(name, unit) {
  return { name, unit, better: "less" };
}
