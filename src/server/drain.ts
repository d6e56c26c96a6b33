/** Graceful shutdown: idle peers are closed first, busy peers may finish, and all clients learn when to reconnect. */
import { GoingAway } from "../close-codes.js";
import { LONGEST_DELAY_MS } from "../core/deadlines.js";
import { checkOptions, must, positive, type Checked } from "../core/options.js";
import { MAX_RETRY_MS } from "../session/frames.js";
import { afterWork, endPeer, type AnyPeer } from "../peer/peer.js";

/** How a server drains. */
export interface DrainOptions {
  /** How long handlers that run may go on, in milliseconds; then their peers are closed all the same. Default 30,000; `Infinity` waits for ever. */
  timeoutMs?: number | undefined;
  /**
   * Each client reconnects after a random time of up to `retryMs`, in milliseconds. Default 5,000, at most 600,000 (10 minutes):
   * clients obey no longer time, so a longer one is refused with a `TypeError`. Sent over `reciproc.v1` only.
   */
  retryMs?: number | undefined;
}

/** How often some peers are closed. */
const STEP_MS = 25;
/** In how many steps all idle peers are closed. */
const STEPS = 40;
const LEAST_A_STEP = 10;

const isRetry = (value: number): boolean => value <= MAX_RETRY_MS;
const atMost = must<number>(`a positive number of at most ${MAX_RETRY_MS}`, isRetry);

const DRAIN_OPTIONS = {
  timeoutMs: (value: unknown = 30_000, name: string) => Math.min(positive(value, name), LONGEST_DELAY_MS),
  retryMs: (value: unknown = 5_000, name: string) => Math.ceil(atMost(positive(value, name), name)),
};

/** Throws a `TypeError` that names the option, the rule and the value. */
export function checkDrain(options?: DrainOptions): Checked<typeof DRAIN_OPTIONS> {
  return checkOptions("options", options, DRAIN_OPTIONS);
}

/**
 * Closes `peers`, which no more are added to, with 1001: some at a time, so that they do not all come back at once, each when
 * nothing of it runs, or when `timeoutMs` are over. Resolves when none is left to close.
 */
export async function drainPeers(
  peers: ReadonlySet<AnyPeer>,
  reason: string,
  { timeoutMs, retryMs }: { timeoutMs: number; retryMs: number },
): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  const aStep = Math.max(LEAST_A_STEP, Math.ceil(peers.size / STEPS));
  // A batch of which a part waits for the next tick is no handler that runs. What comes from now on is not waited for.
  const working = new Set<AnyPeer>();
  for (const peer of peers) if (afterWork(peer, () => working.delete(peer))) working.add(peer);
  while (peers.size > 0) {
    const isLate = performance.now() >= deadline;
    let left = aStep;
    for (const peer of peers) {
      if (left === 0) break;
      if (!isLate && (working.has(peer) || peer.stats().running > 0)) continue;
      left--;
      endPeer(peer, GoingAway, reason, retryMs);
    }
    if (peers.size > 0) await new Promise((resolve) => setTimeout(resolve, STEP_MS));
  }
}
