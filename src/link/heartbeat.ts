/** Finding out that the other side is gone, when no packet says so. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { expected } from "../core/errors.js";
import { checkOptions, optional, positive } from "../core/options.js";
import type { Traffic } from "../core/transport.js";

/** What can be asked whether it lives. */
export interface Pulse {
  /** When anything was last heard of it, by `performance.now()`. Where nobody notes it, it is never given up. */
  readonly heardAt: number | undefined;
  /** Bytes that came so far, where they are counted. */
  readonly traffic?: Traffic | undefined;
  /** Asks for a sign of life. */
  ping(): void;
  /** Gives it up: no sign came. */
  giveUp(reason: string): void;
}

/** How often to ask, and for how long to wait; in milliseconds. */
export interface HeartbeatTimes {
  /** So long nothing is heard before a sign of life is asked for. */
  readonly intervalMs: number;
  /** So long nothing is heard before the other side is given up. */
  readonly deadAfterMs: number;
}

/** The same as an option. */
export interface HeartbeatOptions {
  /** Default 25,000. */
  intervalMs?: number | undefined;
  /** Default 20,000 more than `intervalMs`. */
  deadAfterMs?: number | undefined;
}

const HEARTBEAT_OPTIONS = { intervalMs: optional(positive, 25_000), deadAfterMs: optional(positive) };

/** The times, unless `given` turns it off. Throws a `TypeError` that names the option, the rule and the value. */
export function checkHeartbeat(given: HeartbeatOptions | false = {}): HeartbeatTimes | undefined {
  if (given === false) return undefined;
  const { intervalMs, deadAfterMs = intervalMs + 20_000 } = checkOptions("heartbeat", given, HEARTBEAT_OPTIONS);
  if (deadAfterMs > intervalMs && deadAfterMs !== Infinity) return { intervalMs, deadAfterMs };
  throw expected("heartbeat.deadAfterMs", `more than \`heartbeat.intervalMs\`, ${intervalMs}, and finite`, deadAfterMs);
}

/** How many looks an interval has: a death is noticed so much of an interval late at most. */
const LOOKS = 5;

/**
 * Looks after one connection. Nobody is given up for the passing of time alone: when this process slept, it asks first.
 * All heartbeats of a process share one timer (`core/deadlines.ts`).
 */
export class Heartbeat implements Expiring {
  deadline = 0;
  readonly #pulse: Pulse;
  readonly #times: HeartbeatTimes;
  #askedAt: number | undefined;
  #lookedAt = performance.now();
  #received: number | undefined;
  /** When a part of a message was last found to have come. */
  #partAt: number | undefined;

  /** Begins. `random`, from 0 to 1, says when within the first interval: many that begin together do not ask together. */
  constructor(pulse: Pulse, times: HeartbeatTimes, random = Math.random()) {
    this.#pulse = pulse;
    this.#times = times;
    this.#received = pulse.traffic?.received;
    // Few different delays: deadlines of equal length share a queue.
    setDeadline(this, (times.intervalMs / LOOKS) * (1 + Math.floor(random * LOOKS)));
  }

  /** Looks no more. */
  stop(): void {
    clearDeadline(this);
  }

  /** One look. */
  expire(): void {
    const { intervalMs, deadAfterMs } = this.#times;
    const now = performance.now();
    const heardAt = this.#lastHeard(now);
    if (this.#askedAt !== undefined && heardAt >= this.#askedAt) this.#askedAt = undefined;
    if (this.#askedAt === undefined) {
      if (now - heardAt >= intervalMs) {
        this.#askedAt = now;
        this.#pulse.ping();
      }
    } else if (now - this.#askedAt >= deadAfterMs - intervalMs) {
      return this.#pulse.giveUp(`nothing was heard for ${Math.round(now - heardAt)} ms`);
    }
    setDeadline(this, intervalMs / LOOKS);
  }

  /**
   * When anything was last heard. A message that takes long tells nothing before it is complete, and no answer to a ping can
   * overtake it: its bytes are a sign of life, noticed at the look after them.
   */
  #lastHeard(now: number): number {
    const { heardAt = now, traffic } = this.#pulse;
    if (traffic?.received !== this.#received && heardAt < this.#lookedAt) this.#partAt = now;
    this.#received = traffic?.received;
    this.#lookedAt = now;
    return Math.max(heardAt, this.#partAt ?? heardAt);
  }
}
