/** The limits of one peer. */
import { checkOptions, must, optional, type Check } from "./options.js";

/** The limits of one peer. A value out of range throws a `TypeError` when the peer is made. */
export interface PeerLimits {
  /** Longest incoming message, in bytes of UTF-8. A longer one closes the connection with 1009 (by HTTP POST: status 413 and error -32007). Default 1 MiB, at most 256 MiB. */
  maxMessageBytes: number;
  /** Longest reply, to a request or to a whole batch, in bytes of UTF-8. A longer one becomes error -32008, whose own bytes do not count. Default 1 MiB, at most 256 MiB. */
  maxReplyBytes: number;
  /** Most entries of an incoming batch. A larger one is refused whole with -32010. Default 1,000; `Infinity`: no limit. */
  maxBatchEntries: number;
  /** Most incoming requests that run at once. Further ones are refused with -32009. As many notifications may run. Further ones are dropped, and emitted as `error`. Default 1,024; `Infinity`: no limit. */
  maxInFlight: number;
  /** Most streams of this side that the other side reads at once. A further one is refused with -32009. In params, it rejects its call with `RangeError`. Default 256; `Infinity`: no limit. */
  maxStreams: number;
  /**
   * Most unsent bytes. A burst may exceed this limit, as 100 replies of 64 KiB in one tick do. A connection with more unsent
   * bytes for 10 s in a row closes with 1013, because its peer reads too slowly. So does a connection with eight times as
   * many at any moment, or eight times `maxReplyBytes` if that is more. A broadcast to a peer with half of the limit unsent is
   * dropped and counted. While a session has no socket, it queues at most half of the limit, and a quarter more of broadcasts.
   * Default 4 MiB, at most 256 MiB.
   */
  maxUnsentBytes: number;
  /**
   * Most requests, notifications and foreign messages a second, and in one burst. A further request is refused with -32009.
   * Other messages are dropped and counted. `reauthenticate()` counts too, and waits. Responses do not count. Default `Infinity`.
   */
  maxMessagesPerSecond: number;
  /** Most malformed messages within a minute, which starts with the first. A further one closes the connection with 1008. Default 100; `Infinity`: no limit. */
  maxMalformedPerMinute: number;
}

const MIB = 2 ** 20;
/** Below the longest JavaScript string, and far below the limit of `ws`, whose `maxPayload` is an int32. */
const MOST_BYTES = 256 * MIB;

/** The defaults. */
const PEER_LIMITS: PeerLimits = {
  maxMessageBytes: MIB,
  maxReplyBytes: MIB,
  maxBatchEntries: 1000,
  maxInFlight: 1024,
  maxStreams: 256,
  maxUnsentBytes: 4 * MIB,
  maxMessagesPerSecond: Infinity,
  maxMalformedPerMinute: 100,
};

/** The checks of the limits of a peer. */
export const LIMIT_CHECKS = /* @__PURE__ */ limitChecks(PEER_LIMITS);

/** Returns the defaults, overridden by `given`. Throws a `TypeError` that names the limit, the rule and the value. */
export function peerLimits(given: Partial<PeerLimits> | undefined): PeerLimits {
  return given === undefined ? PEER_LIMITS : checkOptions("limits", given, LIMIT_CHECKS);
}

/** Returns the checks of limits with these defaults. A limit is whole and positive: bytes at most 256 MiB, others also `Infinity`. */
export function limitChecks<T extends object>(defaults: T): Record<keyof T, Check<number>> {
  const checks = Object.entries(defaults).map(([name, value]) => {
    return [name, optional(upTo(name.endsWith("Bytes") ? MOST_BYTES : Infinity), value)] as const;
  });
  return Object.fromEntries(checks) as Record<keyof T, Check<number>>;
}

function upTo(most: number): Check<number> {
  return must(
    `a whole number from 1 to ${most}`,
    (value) => value === most || (Number.isSafeInteger(value) && value >= 1 && value <= most),
  );
}
