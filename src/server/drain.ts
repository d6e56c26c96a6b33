/** Graceful shutdown: closes idle peers first, lets busy peers finish, and asks all clients to reconnect after a delay. */
import { GoingAway } from "../message/close-codes.js";
import { LONGEST_DELAY_MS } from "../base/deadlines.js";
import { checkOptions, must, positive, type Checked } from "../message/options.js";
import { MAX_RETRY_MS } from "../session/frames.js";
import { connectionOf, endPeer, type AnyPeer } from "../peer/peer.js";

/** How a server drains. */
export interface DrainOptions {
  /** How long running handlers may take, in milliseconds. Then their peers are closed. Default 30,000; `Infinity` sets no limit. */
  timeoutMs?: number | undefined;
  /**
   * Each client reconnects after a random time of up to `retryMs`, in milliseconds. Default 5,000. Sent over `reciproc.v1` only.
   * A time of more than 600,000 (10 minutes) throws a `TypeError`, because clients wait for 10 minutes at most.
   */
  retryMs?: number | undefined;
}

/** The time between two steps. */
const STEP_MS = 25;
/** Number of steps in which all idle peers are closed. */
const STEPS = 40;
const MIN_PER_STEP = 10;

const isRetry = (value: number): boolean => value <= MAX_RETRY_MS;
const atMost = must<number>(`a positive number of at most ${MAX_RETRY_MS}`, isRetry);

const DRAIN_OPTIONS = {
  timeoutMs: (value: unknown = 30_000, name: string) => Math.min(positive(value, name), LONGEST_DELAY_MS),
  retryMs: (value: unknown = 5_000, name: string) => Math.ceil(atMost(positive(value, name), name)),
};

/** Checks the options. Throws a `TypeError` that names the option, the rule and the value. */
export function checkDrain(options?: DrainOptions): Checked<typeof DRAIN_OPTIONS> {
  return checkOptions("options", options, DRAIN_OPTIONS);
}

/**
 * Closes each of `peers` with 1001 when none of its handlers runs, or after `timeoutMs`. Closes peers in steps, so that their
 * clients do not all reconnect at once. No connection may be added meanwhile. Resolves when the set is empty.
 */
export async function drainPeers(
  peers: ReadonlySet<AnyPeer>,
  reason: string,
  { timeoutMs, retryMs }: { timeoutMs: number; retryMs: number },
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  const perStep = Math.max(MIN_PER_STEP, Math.ceil(peers.size / STEPS));
  // A batch that is partly deferred to the next tick is not counted as running. Messages that arrive later are not waited for.
  const working = new Set<AnyPeer>();
  for (const peer of peers) {
    const { budget } = connectionOf(peer).transport;
    if (budget?.hasWork !== true) continue;
    working.add(peer);
    budget.add(() => working.delete(peer));
  }
  while (peers.size > 0) {
    const isTimedOut = performance.now() >= deadline;
    let left = perStep;
    for (const peer of peers) {
      if (left === 0) break;
      const { incoming } = connectionOf(peer);
      // A peer that is a part of a connection ends with that.
      if (incoming.counter !== incoming) continue;
      if (!isTimedOut && (working.has(peer) || incoming.running > 0)) continue;
      left--;
      endPeer(peer, { code: GoingAway, reason, retryMs });
    }
    if (peers.size > 0) await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}
