/** The little arithmetic that all figures go through. */

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The value that `percent` of all do not exceed. */
export function percentile(values, percent) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil((percent / 100) * sorted.length) - 1)];
}

/**
 * The median of the ratios round by round. What slows the machine for a while slows neighbours in a round alike, so
 * this holds still where the ratio of two medians does not.
 */
export function pairedRatio(rounds, baseline) {
  const ratios = rounds.flatMap((value, round) => (baseline[round] > 0 ? [value / baseline[round]] : []));
  return ratios.length === 0 ? undefined : median(ratios);
}
