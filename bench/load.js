/** Calls for a given time, each answer checked, from whichever side. */

/** Throws unless an answer is what the call must give. */
export function check(actual, expected, method) {
  if (actual !== expected) throw new Error(`${method} answered ${String(actual).slice(0, 60)}`);
}

/**
 * Keeps `inFlight` calls going on each peer for `ms`; answers the calls a second. Without a `payload` each call carries a
 * number, and must be answered with the next one. `latencies` collects what each call took, in milliseconds.
 */
export async function rate({ peers, inFlight, ms, method, payload, latencies }) {
  let calls = 0;
  const started = performance.now();
  const end = started + ms;
  const worker = async (peer) => {
    let before = performance.now();
    while (before < end) {
      const sent = payload ?? calls;
      check(await peer.call(method, sent), payload ?? sent + 1, method);
      calls++;
      const after = performance.now();
      latencies?.push(after - before);
      before = after;
    }
  };
  await Promise.all(peers.flatMap((peer) => Array.from({ length: inFlight }, () => worker(peer))));
  return (calls / (performance.now() - started)) * 1_000;
}
