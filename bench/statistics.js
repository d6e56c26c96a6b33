/** The arithmetic of all figures. */

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Returns the smallest value that at least `percent` of all values do not exceed. */
export function percentile(values, percent) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil((percent / 100) * sorted.length) - 1)];
}

/**
 * Returns the median of the ratios of all rounds. A disturbance slows all contenders of a round alike, so this is steadier than the
 * ratio of two medians.
 */
export function pairedRatio(rounds, baseline) {
  const ratios = rounds.flatMap((value, round) => (baseline[round] > 0 ? [value / baseline[round]] : []));
  return ratios.length === 0 ? undefined : median(ratios);
}

/** Returns a value with the digits that a figure has. */
export function precise(value) {
  return Number(value.toPrecision(4));
}

/** Returns the list in a random order, so that no contender always runs after the same one. */
export function shuffled(list) {
  return list
    .map((item) => ({ item, place: Math.random() }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ item }) => item);
}
