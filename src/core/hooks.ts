/** What the owner of peers, such as a server, hears of them and adds to them. */
import { CallContext } from "./incoming-call.js";
import type { CloseInfo } from "./transport.js";

/** The hooks of a peer, or of all peers of a server. None of the functions throws. */
export interface Hooks {
  /** The server whose peers these are. */
  readonly server: unknown;
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

const NO_OWNER: Omit<Hooks, "warned"> = {
  server: undefined,
  Context: CallContext,
  error: () => false,
  hasErrorListener: () => false,
  ended() {},
  closed() {},
};

/** Returns the hooks of a peer without an owner. */
export function defaultHooks(): Hooks {
  return { ...NO_OWNER, warned: new Set() };
}
