/** Counting events over time. */

/**
 * Returns a function that takes one event, and returns false if it is one too many. A token bucket: lets through `perSecond`
 * events a second, and as many at once after a quiet second.
 */
export function rateLimit(perSecond: number): () => boolean {
  let left = perSecond;
  let filledAt = performance.now();
  return () => {
    const now = performance.now();
    left = Math.min(perSecond, left + ((now - filledAt) / 1000) * perSecond);
    filledAt = now;
    if (left < 1) return false;
    left--;
    return true;
  };
}

const MINUTE_MS = 60_000;

/** Returns a function that adds one event, and returns how many there were within the minute that began with the first. */
export function minuteCount(): () => number {
  let count = 0;
  let since = 0;
  return () => {
    const now = performance.now();
    if (count === 0 || now - since > MINUTE_MS) {
      since = now;
      count = 0;
    }
    return ++count;
  };
}
