/** The vote on clearing the board: one call to all other people, which `topic.request` makes. */
import { ConnectionLostError, RpcError, type Peer, type PeerOutcome, type Topic } from "reciproc/node";
import type { ClientApi, ServerApi, Verdict } from "./api.js";

/** What a vote needs to know of a page. */
export interface Voters<P> {
  nameOf: (peer: P) => string;
  /** Returns true if the page does not answer pings any more. */
  isOutOfReach: (peer: P) => boolean;
}

let isVoting = false;

/** Holds a vote as `ask` does. Throws an `RpcError` with 409 if a vote is under way. */
export async function vote<D>(...how: Parameters<typeof ask<D>>): Promise<Verdict> {
  if (isVoting) throw new RpcError(409, "A vote is under way already");
  isVoting = true;
  try {
    return await ask(...how);
  } finally {
    isVoting = false;
  }
}

/**
 * Asks all members but the asker at the same time. Clears if all who stayed within reach agreed. People who close their pages
 * neither agree nor object, but at least one person must agree then. Pages that crashed count as if they had not been there.
 * `left` aborts when the asker has left.
 */
async function ask<D>(
  board: Topic<ServerApi, ClientApi, D>,
  asker: Peer<ServerApi, ClientApi, D>,
  voters: Voters<Peer<ServerApi, ClientApi, D>>,
  { timeoutMs, left }: { timeoutMs: number; left: AbortSignal },
): Promise<Verdict> {
  const by = voters.nameOf(asker);
  using unreachable = whenUnreachable(
    [...board].filter((peer) => peer !== asker),
    voters,
  );
  const signal = AbortSignal.any([left, unreachable.signal]);
  const outcomes = await board.request("vote", { by, timeoutMs }, { timeoutMs, signal, except: asker });
  const answers = await Promise.all(outcomes.map((outcome) => answerOf(outcome, voters)));
  return verdictOf(by, answers, left.aborted);
}

/** Returns how a vote ended. `hasLeft`: the asker has left. */
export function verdictOf(by: string, answers: Verdict["answers"], hasLeft: boolean): Verdict {
  if (hasLeft) return { by, outcome: "asker left", answers };
  const present = answers.filter(({ answer }) => answer !== "out of reach");
  const stayed = present.filter(({ answer }) => answer !== "left");
  const agreed = stayed.length > 0 && stayed.every(({ answer }) => answer === "agreed");
  return { by, outcome: agreed || present.length === 0 ? "cleared" : "kept", answers };
}

/** Close codes of a page that was closed or left, or that closed its connection itself. */
const CLOSED_BY_PAGE = new Set([1000, 1001]);

/** Returns the answer of a page, and the name of its person. The contract checks that the value is a boolean. */
async function answerOf<P extends Peer<any, any, any>>(
  outcome: PeerOutcome<P, boolean>,
  voters: Voters<P>,
): Promise<Verdict["answers"][number]> {
  const { peer, status } = outcome;
  const name = voters.nameOf(peer);
  if (status === "fulfilled") return { name, answer: outcome.value ? "agreed" : "refused" };
  if (outcome.reason instanceof ConnectionLostError)
    return { name, answer: CLOSED_BY_PAGE.has((await peer.closed).code) ? "left" : "out of reach" };
  const isAbsent = voters.isOutOfReach(peer) || peer.state !== "open";
  return { name, answer: isAbsent ? "out of reach" : "did not answer" };
}

/** Returns a signal that aborts when each of these pages has answered or is out of reach. Then the vote need not wait longer. */
function whenUnreachable<P extends Peer<any, any, any>>(
  peers: readonly P[],
  { isOutOfReach }: Voters<P>,
): { signal: AbortSignal; [Symbol.dispose](): void } {
  const controller = new AbortController();
  // A page that has not answered has a pending call.
  const isDone = (peer: P): boolean => isOutOfReach(peer) || peer.stats().pending === 0;
  const watch = setInterval(() => void (peers.every(isDone) && controller.abort()), 250);
  return { signal: controller.signal, [Symbol.dispose]: () => clearInterval(watch) };
}
