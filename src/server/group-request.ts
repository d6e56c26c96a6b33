/** A request to all peers of a group: one call for each peer, whose params are encoded once. */
import { encodeNotification, plainText, type MessageText } from "../message/codec.js";
import { shownAt } from "../message/errors.js";
import { anySignal, optional, positive } from "../message/options.js";
import type { Sink } from "../peer/flow.js";
import type { OutgoingCall } from "../peer/outgoing-call.js";
import { onAbort } from "../base/tell.js";
import type { CallOptions } from "../contract/contract.js";
import type { Connection } from "../peer/connection.js";
import { checkExcept, type Except, type PeerOutcome } from "../topics/remote.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";

/** The options of `request` on a group. */
export interface GroupRequestOptions<P> {
  /** How long to wait for each response, in milliseconds; `Infinity` waits for ever. Default: the server's `timeoutMs`, 60,000. */
  timeoutMs?: number | undefined;
  /** Aborting it rejects, with `signal.reason`, all calls that are pending. If it is already aborted, nothing is sent. */
  signal?: AbortSignal | undefined;
  /** The peers that are not called, as for `notify` of a group. Default: none. */
  except?: Except<P> | undefined;
}

export const REQUEST_OPTIONS = { timeoutMs: optional(positive), signal: optional(anySignal), except: checkExcept };

/** A request for many peers, whose params are encoded once. */
export class SharedRequest {
  readonly method: string;
  /** A notification with the same params. Its text ends as that of a request does. */
  readonly #notification: MessageText;
  /** Where the end begins: before the params. */
  readonly #start: number;
  readonly #calls: OutgoingCall[] = [];

  /** Throws a `TypeError` for params without a JSON form. */
  constructor(method: string, params: unknown) {
    this.method = method;
    this.#notification = encodeNotification(method, params as object | undefined);
    this.#start = encodeNotification(method).length - 1;
  }

  /** Calls one peer: makes a call without params, and adds them to its text. */
  call({ outgoing }: Connection, options: CallOptions | undefined): Promise<unknown> {
    const send: Sink["send"] = (text, handle) => {
      this.#calls.push(handle as OutgoingCall);
      const whole = this.#withParams(plainText(text).slice(0, -1));
      // Reported here: the reason why the message was not taken may be its length.
      if (!outgoing.sink.send(whole, handle)) outgoing.refused(whole, handle);
      return true;
    };
    return outgoing.requestDirectly(this.method, undefined, options, { send });
  }

  #withParams(before: string): MessageText {
    const notification = this.#notification;
    if (typeof notification === "string") return before + notification.slice(this.#start);
    return notification.withJson(before + notification.json.slice(this.#start));
  }

  /** Rejects all calls that are pending. */
  abort(reason: unknown): void {
    for (const call of this.#calls) call.calls.giveUp(call, reason);
  }
}

/** Calls all these peers at once. Resolves with the outcome of each when all are settled. Never rejects. */
export async function requestAll(
  peers: readonly AnyPeer[],
  request: SharedRequest,
  { timeoutMs, signal }: GroupRequestOptions<never>,
): Promise<PeerOutcome<AnyPeer, unknown>[]> {
  const options = timeoutMs === undefined ? undefined : { timeoutMs };
  const call = async (peer: AnyPeer): Promise<PeerOutcome<AnyPeer, unknown>> => {
    try {
      if (signal?.aborted) throw signal.reason;
      const value = await request.call(connectionOf(peer), options);
      return { peer, status: "fulfilled", value };
    } catch (reason) {
      return { peer, status: "rejected", reason };
    }
  };
  // One listener for all calls.
  const ignore = signal && onAbort(signal, () => request.abort(signal.reason));
  const outcomes = await Promise.all(peers.map(call));
  ignore?.();
  for (const { reason } of outcomes) shownAt(reason, request.method, requestAll);
  return outcomes;
}
