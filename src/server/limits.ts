/** What one server accepts, over what each of its peers does. */
import { expected } from "../core/errors.js";
import { mergeLimits, type PeerLimits } from "../core/limits.js";

/** Bounds on a server. Each is on by default; a value out of range throws when the server is made. */
export interface ServerLimits extends PeerLimits {
  /** Most connections and POSTs at once, those whose `authenticate` still runs included. Further ones get HTTP 503. Default 10,000; `Infinity` turns it off. */
  maxConnections: number;
  /** How long `authenticate` may take, in milliseconds; then HTTP 503. A POST's body must be there as soon; else HTTP 408. Default 10,000; `Infinity` waits for ever. */
  handshakeTimeoutMs: number;
}

const DEFAULTS = { maxConnections: 10_000, handshakeTimeoutMs: 10_000 };

/** Splits given limits into the server's own, checked, and those of its peers. */
export function serverLimits(given: Partial<ServerLimits> = {}): {
  own: typeof DEFAULTS;
  peers: Partial<PeerLimits>;
} {
  if (typeof given !== "object" || given === null) throw expected("limits", "an object", given);
  const { maxConnections, handshakeTimeoutMs, ...peers } = given;
  return { own: mergeLimits(DEFAULTS, { maxConnections, handshakeTimeoutMs } as Partial<typeof DEFAULTS>), peers };
}
