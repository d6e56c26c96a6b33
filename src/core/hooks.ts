/** What the owner of peers, such as a server, hears of them and adds to them. */
import { CallContext } from "./context.js";
import type { CloseInfo } from "./transport.js";

/** The hooks of a peer, or of all peers of a server. None of the functions throws. */
export interface Hooks {
  /** The class of the `context` that handlers get. */
  readonly Context: typeof CallContext;
  /** Takes an error that a peer emits. Returns true if a listener of the owner got it. */
  error(error: unknown, peer: unknown): boolean;
  /** Whether a listener gets what `error` takes. */
  hasErrorListener(): boolean;
  /** Called when a peer closes, before any listener. */
  ended(peer: unknown): void;
  /** Called when the transport of a peer has ended, after `ended`. */
  closed(peer: unknown, info: CloseInfo): void;
  /** The methods of whose failure a warning was given. */
  readonly warned: Set<string>;
}

/** Returns the hooks of a peer without an owner. */
export function defaultHooks(): Hooks {
  const no = (): boolean => false;
  return { Context: CallContext, error: no, hasErrorListener: no, ended: no, closed: no, warned: new Set() };
}
