/** The limits of one peer. */
import { expected } from "./errors.js";
import { checkKnown } from "./options.js";

export { checkKnown, checkTimeout } from "./options.js";

/** Bounds on what one peer accepts. Each is on by default; a value out of range throws when the peer is made. */
export interface PeerLimits {
  /** Longest incoming message, in bytes of UTF-8. A longer one closes the connection with 1009 (by HTTP POST: status 413 and error -32007). Default 1 MiB, at most 256 MiB. */
  maxMessageBytes: number;
  /** Longest reply, to a request or to a whole batch, in bytes of UTF-8. A longer one becomes error -32008, whose own bytes do not count. Default 1 MiB, at most 256 MiB. */
  maxReplyBytes: number;
  /** Most entries of an incoming batch. A larger one is refused whole with -32010. Default 1,000; `Infinity` turns it off. */
  maxBatchEntries: number;
  /** Most incoming requests that run at once. Further ones are refused with -32009. As many notifications may run; further ones are dropped, and emitted as `error`. Default 1,024; `Infinity` turns it off. */
  maxInFlight: number;
  /** Most streams that the other side reads from here at once. Further ones are refused with -32009; one in params rejects its call with `RangeError`. Default 256; `Infinity` turns it off. */
  maxStreams: number;
  /**
   * Most bytes that may wait to be sent. A burst may exceed this limit, as 100 replies of 64 KiB in one turn do. A peer for
   * which more has waited for 10 s on end reads too slowly: its connection closes with 1013. So does one for which eight times
   * as much waits at any moment, or eight times `maxReplyBytes` if that is more. A broadcast is dropped and counted for a
   * peer for which half of the limit waits. While a session has no socket, half of the limit may wait in it, and beside that a
   * quarter of broadcasts. Default 4 MiB, at most 256 MiB.
   */
  maxUnsentBytes: number;
  /**
   * Most requests, notifications and foreign messages a second, as many at once. Further ones are not run: a request is refused with
   * -32009, the others are dropped and counted. Answers are not counted. Default `Infinity`: no such limit.
   */
  maxMessagesPerSecond: number;
  /** Most malformed messages within a minute, counted from the first. The next one closes the connection with 1008. Default 100; `Infinity` turns it off. */
  maxMalformedPerMinute: number;
}

const MIB = 2 ** 20;
/** Below what a JavaScript string can hold, and far below where `ws` stops checking (`maxPayload` is an int32 there). */
const MOST_BYTES = 256 * MIB;

/** The defaults. */
export const PEER_LIMITS: PeerLimits = {
  maxMessageBytes: MIB,
  maxReplyBytes: MIB,
  maxBatchEntries: 1000,
  maxInFlight: 1024,
  maxStreams: 256,
  maxUnsentBytes: 4 * MIB,
  maxMessagesPerSecond: Infinity,
  maxMalformedPerMinute: 100,
};

/** How many times `maxUnsentBytes`, or the longest reply, may wait at once if its reader takes it in time. */
const BURST = 8;

/** Most bytes that wait to be sent at any moment: the hard limit, which also a burst keeps. */
export function burstBytes({ maxUnsentBytes, maxReplyBytes }: PeerLimits): number {
  return BURST * Math.max(maxUnsentBytes, maxReplyBytes);
}

/** The defaults with `given` over them. Throws a `TypeError` that names the limit, the rule and the value. */
export function peerLimits(given: Partial<PeerLimits> | undefined): PeerLimits {
  return mergeLimits(PEER_LIMITS, given);
}

/** Checks each given limit: whole and positive; bytes at most 256 MiB; anything else may be `Infinity`. */
export function mergeLimits<T extends object>(defaults: T, given: Partial<T> | undefined): T {
  if (given === undefined) return defaults;
  checkKnown("limits", given, defaults);
  const limits = { ...defaults };
  for (const [name, value] of Object.entries<any>(given)) {
    if (value === undefined) continue;
    const most = name.endsWith("Bytes") ? MOST_BYTES : Infinity;
    if (!isCount(value) || value > most) throw expected(`limits.${name}`, `a whole number from 1 to ${most}`, value);
    limits[name as keyof T] = value as T[keyof T];
  }
  return limits;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && value >= 1 && (Number.isSafeInteger(value) || value === Infinity);
}
