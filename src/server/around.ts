/** `around` on a server: it also wraps each message to a group of peers, once and not once for each peer. */
import type { AnyAround } from "../contract/checks.js";
import type { MethodMeta } from "../contract/contract.js";
import { observed, promised } from "../base/promises.js";
import type { AnyPeer, Call } from "../peer/peer.js";

/** One message to all peers of topics or of `server.peers`, as `around` sees it. */
export interface GroupCall {
  readonly direction: "outgoing";
  /** `undefined`, which distinguishes the message from a call through one peer. */
  readonly peer: undefined;
  /**
   * The peers that the message is for: those that were in the group when it was given, without `except`, and without those that a
   * volatile message is dropped for. At least one.
   */
  readonly peers: readonly AnyPeer[];
  /** The names of the topics; `undefined` for `server.peers`. */
  readonly topics: readonly string[] | undefined;
  readonly method: string;
  /** `undefined`: each peer gets an id of its own. */
  readonly id: undefined;
  /** True for `request`, false for `notify`. */
  readonly isRequest: boolean;
  /** The params that `next` uses. Assign to change them. */
  params: any;
  /** As of a call. */
  readonly meta: MethodMeta | undefined;
  readonly context: undefined;
}

/** One call as the `around` of a server sees it. `peer` is `undefined` if it is a message to a group. */
export type ServerCall = Call | GroupCall;

/**
 * The `around` of a server. It wraps calls as `Around` does, and messages to groups. For a notification to a group, `next` sends
 * it. For a request to a group, `next` makes the calls, and promises their outcomes.
 */
export type ServerAround = (call: ServerCall, next: () => Promise<unknown>) => unknown;

/** Runs `around` for a message to a group. Promises what `around` returns; rejects with what it throws. */
export function runAround(around: AnyAround, call: GroupCall, send: () => Promise<unknown>): Promise<unknown> {
  return promised(() => around(call, () => observed(send())));
}
