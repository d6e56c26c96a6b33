/**
 * The loop by which an engine connects, and connects again after each loss: its state, its delays and its reports. The engine says only how
 * it connects once.
 */
import { EngineError, type Channel, type EngineHost } from "../topics/engine.js";
import { LONGEST_RECONNECT_DELAY_MS } from "./nodes.js";

/** The delay of an attempt is random, up to a bound that doubles with each failure. */
const FIRST_DELAY_MS = 100;
/** How long a loop whose engine is connected waits before it connects what has moved. */
const MOVED_DELAY_MS = 50;

/** The codes of `tls.connect` for certificates that are not trusted. */
export const UNTRUSTED = /^(ERR_TLS_|CERT_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_)/;

/** An error that trying again does not cure, such as a wrong password. */
export class FinalError extends EngineError {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, "not-sent", options);
  }
}

/** What a loop connects. */
export interface Connectable {
  /** Whether all is connected that the engine needs. */
  readonly isConnected: boolean;
  /**
   * Connects what is not connected, and subscribes. `signal` aborts when the engine closes meanwhile. Returns the channels whose
   * subscriptions have moved.
   */
  connect(signal: AbortSignal): Promise<readonly Channel[]>;
  /** Drops all connections. */
  drop(error: EngineError): void;
  /** Returns true if an attempt that has failed so often in a row is soon to succeed, so that it is no loss yet. */
  isPassing?(error: EngineError, failures: number): boolean;
}

/** Connects one engine. */
export class Reconnecting {
  readonly #name: string;
  readonly #engine: Connectable;
  readonly #host: EngineHost;
  #state: "new" | "starting" | "up" | "down" | "closed" = "new";
  /** Ends the attempt in progress. */
  #ending: AbortController | undefined;
  /** `undefined` while the loop does not run. */
  #attempt: Promise<void> | undefined;
  /** Whether the loop has to run once more. */
  #isStale = false;
  #failures = 0;
  #final: FinalError | undefined;

  constructor(name: string, engine: Connectable, host: EngineHost) {
    this.#name = name;
    this.#engine = engine;
    this.#host = host;
  }

  get isUp(): boolean {
    return this.#state === "up";
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** Resolves when the attempt in progress has ended; `undefined` if there is none. */
  get attempt(): Promise<void> | undefined {
    return this.#attempt;
  }

  /** Returns the error of what needs a connection while there is none. */
  refusal(): EngineError {
    return new EngineError(`the engine ${this.#name} is ${this.isClosed ? "closed" : "not connected"}`, "not-sent");
  }

  /** Resolves when the engine is connected. Rejects with a `FinalError`, and when the engine is closed. */
  async open(): Promise<void> {
    if (this.#state !== "new") throw this.refusal();
    this.#state = "starting";
    await this.#run();
    if (this.isClosed) throw this.#final ?? this.refusal();
  }

  /** Ends the loop. Returns false if it was closed before. */
  close(): boolean {
    if (this.isClosed) return false;
    this.#state = "closed";
    this.#ending?.abort();
    return true;
  }

  /** Drops the connections of an engine that is connected, and connects it again. */
  reconnect(cause: Error): void {
    if (!this.isUp) return;
    const error = new EngineError(`the engine ${this.#name} connects again: ${cause.message}`, "unknown", { cause });
    this.#engine.drop(error);
    this.lost(error);
  }

  /** A connection is lost. */
  lost(error: EngineError): void {
    this.#fall(error);
    this.wake();
  }

  /** Connects what is not connected. */
  wake(): void {
    if (this.#state === "up" || this.#state === "down") void this.#run();
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    this.#isStale = true;
    if (this.#attempt !== undefined) return;
    while (this.#isStale && !this.isClosed) await (this.#attempt = this.#try());
    this.#attempt = undefined;
  }

  async #try(): Promise<void> {
    const { signal } = (this.#ending = new AbortController());
    if (this.#state !== "starting" || this.#failures > 0) await pause(this.#delayMs(), signal);
    if (this.isClosed) return;
    this.#isStale = false;
    try {
      this.#connected(await this.#engine.connect(signal));
    } catch (error) {
      this.#isStale = true;
      this.#failures++;
      this.#failed(error as EngineError);
    } finally {
      this.#ending = undefined;
    }
  }

  #delayMs(): number {
    if (this.#failures === 0 && this.isUp) return MOVED_DELAY_MS;
    return Math.random() * Math.min(LONGEST_RECONNECT_DELAY_MS, FIRST_DELAY_MS * 2 ** this.#failures);
  }

  #connected(moved: readonly Channel[]): void {
    if (this.isClosed) return;
    if (!this.#engine.isConnected) throw this.refusal();
    const before = this.#state;
    this.#state = "up";
    this.#failures = 0;
    if (before === "down") {
      this.#host.up();
      this.#host.resubscribed("all");
    } else if (before === "up" && moved.length > 0) this.#host.resubscribed(moved);
  }

  #failed(error: EngineError): void {
    if (this.#state === "starting" && error instanceof FinalError) {
      this.#final = error;
      this.close();
      this.#engine.drop(error);
    } else if (this.isUp && this.#engine.isConnected) return;
    else if (this.#engine.isPassing?.(error, this.#failures) !== true) this.#fall(error);
  }

  #fall(error: EngineError): void {
    if (this.isClosed) return;
    if (this.isUp) this.#state = "down";
    this.#host.down(error);
  }
}

/** Resolves after a time, or when the signal aborts. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, signal.aborted ? 0 : ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Returns the same in a random order, so that nodes which connect again do not all begin with the same. */
export function shuffled<T>(list: readonly T[]): T[] {
  const result = [...list];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [result[i], result[j]] = [result[j]!, result[i]!];
  }
  return result;
}
