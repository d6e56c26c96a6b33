/** Detects that the other side is gone, if no packet reports it. */
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { expected } from "../message/errors.js";
import { checkOptions, finite, optional } from "../message/options.js";
import type { Traffic } from "../message/transport.js";

/** A connection that a heartbeat checks. */
export interface Pulse {
  /** When data last came, by `performance.now()`. If it is `undefined`, the heartbeat never ends the connection. */
  readonly receivedAt: number | undefined;
  /** Bytes received so far, if they are counted. */
  readonly traffic?: Traffic | undefined;
  /** Sends a ping. */
  ping(): void;
  /** Abandons the socket, because nothing was received in time. A session continues on another one. */
  dropSocket(reason: string): void;
}

/** The times of a heartbeat, in milliseconds. */
export interface HeartbeatTimes {
  /** The silence after which a ping is sent. */
  readonly intervalMs: number;
  /** The silence after which the connection ends. */
  readonly deadAfterMs: number;
}

/** The option `heartbeat`. */
export interface HeartbeatOptions {
  /** The silence after which a ping is sent, in milliseconds. Default 25,000. */
  intervalMs?: number | undefined;
  /** The silence after which the connection ends, in milliseconds. Default: `intervalMs` and 20,000. */
  deadAfterMs?: number | undefined;
}

/** The times of all connections without the option. */
const DEFAULT_TIMES: HeartbeatTimes = { intervalMs: 25_000, deadAfterMs: 45_000 };

const HEARTBEAT_OPTIONS = { intervalMs: optional(finite, DEFAULT_TIMES.intervalMs), deadAfterMs: optional(finite) };

/** Checks the option. Returns the times; `undefined` for `false`. Throws a `TypeError` that names the option, the rule and the value. */
export function checkHeartbeat(given?: HeartbeatOptions | false): HeartbeatTimes | undefined {
  if (given === undefined) return DEFAULT_TIMES;
  if (given === false) return undefined;
  const { intervalMs, deadAfterMs = intervalMs + 20_000 } = checkOptions("heartbeat", given, HEARTBEAT_OPTIONS);
  if (deadAfterMs > intervalMs) return { intervalMs, deadAfterMs };
  throw expected("heartbeat.deadAfterMs", `more than \`heartbeat.intervalMs\`, ${intervalMs}`, deadAfterMs);
}

/** The number of checks in an interval. A dead connection is noticed at most one check late. */
const CHECKS = 5;

/** How long the other side may take to respond to the ping of `Heartbeat.check`. */
const CHECK_MS = 5_000;

/** By `performance.now`, a timer may fire this many milliseconds before its time. */
const EARLY_MS = 1;

/**
 * The heartbeat of one connection. Passed time by itself never ends a connection: after this process slept, it sends a ping first. All
 * heartbeats of a process share one timer if `shareTimer` was called (`base/shared-timer.ts`).
 */
export class Heartbeat implements Expiring {
  deadline = 0;
  readonly #pulse: Pulse;
  readonly #times: HeartbeatTimes;
  /**
   * When the oldest ping was sent that is not answered, and when the connection ends if nothing comes until then. `undefined`, and not
   * `Infinity`, for which V8 allocates 16 bytes in each heartbeat.
   */
  #pingedAt: number | undefined;
  #endAt: number | undefined;
  /** In whole milliseconds: V8 allocates 16 bytes for any other number. */
  #checkedAt = Math.ceil(performance.now());
  #received: number | undefined;
  /** When a part of an incomplete message was last noticed. */
  #partAt: number | undefined;

  /** Starts. `random`, from 0 to 1, places the first check in the interval, so that connections of the same age ping at different times. */
  constructor(pulse: Pulse, times: HeartbeatTimes, random = Math.random()) {
    this.#pulse = pulse;
    this.#times = times;
    this.#received = pulse.traffic?.received;
    // Few different delays, because deadlines of equal length share a queue.
    setDeadline(this, (times.intervalMs / CHECKS) * (1 + Math.floor(random * CHECKS)));
  }

  /** Stops. */
  stop(): void {
    clearDeadline(this);
  }

  /** Pings now, after an event that may have ended the connection unnoticed. Ends the connection if nothing comes within 5 s. */
  check(): void {
    const now = performance.now();
    this.#lastReceivedAt(now);
    // This process slept when the time for an answer ran out, so it has not read the answer yet.
    if (this.#endAt !== undefined && now >= this.#endAt) this.#endAt = undefined;
    const endAt = this.#ping(now, CHECK_MS);
    setDeadline(this, Math.min(endAt - now, this.#times.intervalMs / CHECKS));
  }

  /** Checks once. */
  expire(): void {
    const { intervalMs, deadAfterMs } = this.#times;
    const now = performance.now();
    const receivedAt = this.#lastReceivedAt(now);
    if (this.#endAt === undefined) {
      if (now - receivedAt >= intervalMs) this.#ping(now, deadAfterMs - intervalMs);
    } else if (now + EARLY_MS >= this.#endAt)
      return this.#pulse.dropSocket(`nothing was received for ${Math.round(now - receivedAt)} ms`);
    setDeadline(this, intervalMs / CHECKS);
  }

  /** Pings. Returns when the connection ends, if nothing comes until then. */
  #ping(now: number, waitMs: number): number {
    this.#pingedAt ??= now;
    this.#endAt = Math.min(this.#endAt ?? Infinity, now + waitMs);
    this.#pulse.ping();
    return this.#endAt;
  }

  /**
   * Returns when data last came, which answers each ping before it. A long message is reported only when it is complete, and no pong can
   * overtake it. So its bytes count too, at the check after they came.
   */
  #lastReceivedAt(now: number): number {
    const { receivedAt = now, traffic } = this.#pulse;
    if (traffic?.received !== this.#received && receivedAt < this.#checkedAt) this.#partAt = now;
    this.#received = traffic?.received;
    this.#checkedAt = Math.ceil(now);
    const lastAt = Math.max(receivedAt, this.#partAt ?? receivedAt);
    if (this.#pingedAt !== undefined && lastAt >= this.#pingedAt) this.#pingedAt = this.#endAt = undefined;
    return lastAt;
  }
}
