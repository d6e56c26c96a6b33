/** Hooks, by which a server observes its peers and extends them. */
import type { ErrorObject, Id } from "../message/message.js";
import type { CloseInfo } from "../message/transport.js";

/** The call or the notification that an error came from, which listeners of `error` get. */
export interface FailedCall {
  readonly method: string;
  /** The id of the request; `undefined` for a notification. */
  readonly id: Id | undefined;
}

/** The hooks of a peer, or of all peers of a server. None of the functions throws. */
export interface Hooks {
  /** The server whose peers these are. */
  readonly server?: object;
  /** Takes an error that a peer emits. Returns true if a listener of the server got it. */
  error?(error: unknown, peer: unknown, call: FailedCall | undefined): boolean;
  /** Returns the error that answers a call whose handler failed with `error`, unless that is "Internal error". */
  answerFor?(error: unknown): ErrorObject | undefined;
  /** Returns the name of the principal of a peer; `undefined` if it has none. */
  principalOf?(peer: unknown): string | undefined;
  /** Whether the server has a listener for `error`. */
  hasErrorListener?(): boolean;
  /** A message of that method was dropped for a peer. */
  missed?(peer: unknown, method: string): void;
  /** Called when a peer closes, before any listener. */
  ended?(peer: unknown): void;
  /** Called when the transport of a peer has ended, after `ended`. */
  closed?(peer: unknown, info: CloseInfo): void;
}
