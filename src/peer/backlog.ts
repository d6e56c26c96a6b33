/** Distinguishes a burst, which a reader takes in a moment, from a reader that is too slow. */
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import type { Flow } from "./flow.js";
import { burstBytes } from "../message/limits.js";

/**
 * How often an unsent backlog is checked, and how many checks in a row must find it above the limit. A number of checks, not
 * one deadline: a process that stalls for a minute has given its reader no time to read.
 */
const CHECK_MS = 1_000;
const CHECKS = 10;

/** Watches the backlog of one connection, from when it exceeds `maxUnsentBytes` until it no longer does. */
export class Backlog implements Expiring {
  deadline = 0;
  readonly #flow: Flow;
  /** How many checks in a row found the backlog above the limit; `undefined` while it is not watched. */
  #found: number | undefined;

  constructor(flow: Flow) {
    this.#flow = flow;
  }

  /** Starts to watch: the backlog exceeds `maxUnsentBytes`. Above the hard limit, acts at once. */
  exceeded(): void {
    const { limits, ordinaryUnsentBytes } = this.#flow;
    const most = burstBytes(limits);
    if (ordinaryUnsentBytes > most) return this.#flow.endSession(`more than ${most} bytes wait to be read`);
    if (this.#found !== undefined) return;
    this.#found = 0;
    setDeadline(this, CHECK_MS);
  }

  /** Stops watching. */
  stop(): void {
    this.#found = undefined;
    clearDeadline(this);
  }

  expire(): void {
    const { limits, ordinaryUnsentBytes } = this.#flow;
    const { maxUnsentBytes } = limits;
    if (ordinaryUnsentBytes <= maxUnsentBytes) return this.stop();
    this.#found! += 1;
    setDeadline(this, CHECK_MS);
    if (this.#found! < CHECKS) return;
    this.#flow.endSession(`more than ${maxUnsentBytes} bytes unread for ${(CHECKS * CHECK_MS) / 1000} s`);
  }
}
