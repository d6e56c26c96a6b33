/** The metrics of a scenario. The ratios and the chart show the first one. */

/** A metric of which more is better. */
export function more(name, unit) {
  return { name, unit, better: "more" };
}

/** A metric of which less is better. */
export function less(name, unit) {
  return { name, unit, better: "less" };
}
