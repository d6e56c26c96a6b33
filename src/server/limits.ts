/** The limits of a server, in addition to those of its peers. */
import { LIMIT_CHECKS, limitChecks, type PeerLimits } from "../message/limits.js";
import { checkOptions } from "../message/options.js";

/** The limits of a server. Each has a default. A value out of range throws a `TypeError`. */
export interface ServerLimits extends PeerLimits {
  /**
   * Maximum number of connection slots. Each peer takes one, suspended or not, and each running POST takes one. If no slot is
   * free, a new client ends the oldest suspended session, preferably one without a principal, whose peer closes with 1013. If no
   * session is suspended, the new client gets HTTP 503. It also gets 503 while as many sockets and POSTs are open as there are
   * slots. A client that resumes a session takes no slot, and may open its socket before the old one is closed. Default 10,000;
   * `Infinity`: no limit.
   */
  maxConnections: number;
  /**
   * How long `authenticate` may take, in milliseconds. After that, the client gets HTTP 503. If the body of a POST does not arrive
   * within the same time, the client gets HTTP 408. If the `auth` of a client that offered it does not arrive within that time
   * after the WebSocket opened, the WebSocket closes with 4000. Default 10,000; `Infinity`: no limit.
   */
  handshakeTimeoutMs: number;
  /** Maximum number of suspended sessions of one `principal`. One more ends the oldest. Default 16; `Infinity` for no limit. */
  maxSuspendedPerPrincipal: number;
  /**
   * Maximum of what all suspended sessions hold together, in UTF-16 code units (bytes, for ASCII). Beyond it, the session that
   * holds most ends. Counts replay logs, queued messages, buffered values of streams, 2,048 for each stream, replies of incomplete
   * batches, each frame that carried the params of a running call, and each frame with values of a stream that are not read yet.
   * Queued broadcasts are counted separately, and dropped beyond a quarter of the limit. Default 64 Mi.
   */
  maxSuspendedBytes: number;
}

const DEFAULTS = {
  maxConnections: 10_000,
  handshakeTimeoutMs: 10_000,
  maxSuspendedPerPrincipal: 16,
  maxSuspendedBytes: 64 * 2 ** 20,
};

/** Checks the given limits, and splits them into those of the server and those of its peers. */
export function serverLimits(given: Partial<ServerLimits> | undefined): { own: typeof DEFAULTS; peers: PeerLimits } {
  const checked = checkOptions("limits", given, { ...limitChecks(DEFAULTS), ...LIMIT_CHECKS });
  const { maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes, ...peers } = checked;
  return { own: { maxConnections, handshakeTimeoutMs, maxSuspendedPerPrincipal, maxSuspendedBytes }, peers };
}
