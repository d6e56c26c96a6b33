/** What one server accepts, over what each of its peers does. */
import { mergeLimits, PEER_LIMITS, type PeerLimits } from "../core/limits.js";
import { checkKnown } from "../core/options.js";

/** Bounds on a server. Each is on by default; a value out of range throws when the server is made. */
export interface ServerLimits extends PeerLimits {
  /**
   * Most connection slots. Each peer takes one, suspended or not, and each POST that runs. If no slot is free, a new client ends
   * the session that was suspended first, of those without a principal before those with one: its peer closes with 1013. If
   * none is suspended, the new client gets HTTP 503. It also gets 503 while as many sockets and POSTs are open as there are
   * slots. A client that resumes a session takes no slot, and may open its socket beside the old one, which is then closed.
   * Default 10,000; `Infinity` turns it off.
   */
  maxConnections: number;
  /** How long `authenticate` may take, in milliseconds; then HTTP 503. A POST's body must be there as soon; else HTTP 408. Default 10,000; `Infinity` waits for ever. */
  handshakeTimeoutMs: number;
  /** Most sessions of one `principal` that wait for their client; beyond them the oldest ends. Default 16; `Infinity` turns it off. */
  maxSuspendedPerPrincipal: number;
  /**
   * Most that all suspended sessions hold together, in UTF-16 code units (bytes, for ASCII); beyond it the session that holds
   * most ends. Counts replay logs, queued messages, values that streams have read ahead or that came and are not read, and 2,048
   * for each stream; replies of batches that are not complete; and each frame in which the params of a running call came.
   * Broadcasts that wait count apart: beyond a quarter as much they are dropped. Default 64 Mi.
   */
  maxSuspendedBytes: number;
}

const DEFAULTS = {
  maxConnections: 10_000,
  handshakeTimeoutMs: 10_000,
  maxSuspendedPerPrincipal: 16,
  maxSuspendedBytes: 64 * 2 ** 20,
};

/** Splits given limits into the server's own, checked, and those of its peers. */
export function serverLimits(given: Partial<ServerLimits> = {}): {
  own: typeof DEFAULTS;
  peers: PeerLimits;
} {
  checkKnown("limits", given, { ...DEFAULTS, ...PEER_LIMITS });
  const { maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes, ...peers } = given;
  const own = { maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes };
  return { own: mergeLimits(DEFAULTS, own as Partial<typeof DEFAULTS>), peers: mergeLimits(PEER_LIMITS, peers) };
}
