/** Work that is repeated for a given time, from either side. Every result is checked. */

/** Throws if the result of a call is wrong. */
export function check(actual, expected, method) {
  if (actual !== expected) throw new Error(`${method} returned ${String(actual).slice(0, 60)}`);
}

/** Repeats `round`, which resolves with an amount, until `ms` are over. Returns the sum of the amounts per second. */
export async function perSecond(ms, round) {
  const started = performance.now();
  let sum = 0;
  do sum += await round();
  while (performance.now() - started < ms);
  return (sum / (performance.now() - started)) * 1_000;
}

/**
 * Keeps `inFlight` calls pending on each peer for `ms`. Returns the calls per second. Without a `payload`, each call carries a
 * number, and its result must be the next number. `latencies` collects the duration of each call, in milliseconds.
 */
export async function rate({ peers, call, inFlight, ms, method, payload, latencies }) {
  let calls = 0;
  const started = performance.now();
  const end = started + ms;
  const worker = async (peer) => {
    let before = performance.now();
    while (before < end) {
      const sent = payload ?? calls;
      check(await call(peer, method, sent), payload ?? sent + 1, method);
      calls++;
      const after = performance.now();
      latencies?.push(after - before);
      before = after;
    }
  };
  await Promise.all(peers.flatMap((peer) => Array.from({ length: inFlight }, () => worker(peer))));
  return (calls / (performance.now() - started)) * 1_000;
}
