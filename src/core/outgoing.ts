/** The calls this side makes: encodes them, registers what waits for an answer, and hands them to the connection or to a batch. */
import { encodeNotification, encodeRequest } from "./codec.js";
import type { CallOptions } from "./contract.js";
import { ConnectionLostError, expected } from "./errors.js";
import { checkKnown, checkTimeout } from "./limits.js";
import type { Id } from "./message.js";
import { observed } from "./promises.js";
import { PendingCall, PendingCalls } from "./pending.js";
import type { CallRecord, Settings } from "./settings.js";

/** What outgoing calls need of their peer. */
export interface Line {
  /** Why the connection ended; `undefined` while it is open. */
  readonly ended: Error | undefined;
  /** Hands a text to the connection; false when it will not be sent. */
  send(text: string): boolean;
  /** Takes an error that has no caller to go to. */
  report(error: unknown): void;
}

/** Takes an encoded message, and the call that waits for its answer; false when it will not be sent. */
type Deliver = (text: string, call?: PendingCall) => boolean;

const CALL_OPTIONS = { timeoutMs: 0, signal: 0, onProgress: 0 };

/** The outgoing calls of one peer. */
export class Outgoing {
  readonly pending = new PendingCalls();
  readonly #line: Line;
  readonly #peer: unknown;
  readonly #settings: Settings;

  constructor(line: Line, peer: unknown, settings: Settings) {
    this.#line = line;
    this.#peer = peer;
    this.#settings = settings;
  }

  /** Calls, and promises the answer. Never throws. */
  request(method: string, params: unknown, options?: CallOptions, deliver = this.#now): Promise<unknown> {
    const id = this.pending.nextId();
    const { around } = this.#settings;
    if (around === undefined) return this.#open(id, method, params, options, deliver);
    const call = this.#describe(method, params, id);
    let unused: number | undefined = id;
    const next = (): Promise<unknown> => {
      // Going on again, after a failure or beside the first, is another call: under one id only one of them could settle.
      const own = unused ?? this.pending.nextId();
      unused = undefined;
      return observed(this.#open(own, method, call.params, options, deliver));
    };
    return new Promise((resolve) => resolve(around(call, next)));
  }

  /** Notifies, and answers whether the message was taken. Throws a `TypeError` for a message that cannot be encoded. */
  notify(method: string, params: unknown, deliver = this.#now): boolean {
    // Also where `around` may change it: what cannot be encoded is the caller's mistake, and thrown at the caller.
    const text = encodeNotification(method, params as object);
    const { around } = this.#settings;
    if (around === undefined) return deliver(text);
    const call = this.#describe(method, params, undefined);
    let taken = this.#line.ended === undefined;
    const deliverCall = async (): Promise<void> => {
      // Once more: the params may have been changed in place.
      taken = deliver(encodeNotification(method, call.params as object));
    };
    const next = (): Promise<void> => observed(deliverCall());
    new Promise((resolve) => resolve(around(call, next))).catch((error: unknown) => this.#line.report(error));
    return taken;
  }

  /** Whether nothing more can be sent. */
  get ended(): boolean {
    return this.#line.ended !== undefined;
  }

  /** Starts a batch. */
  batch(): OutgoingBatch {
    return new OutgoingBatch(this, this.#now);
  }

  readonly #now: Deliver = (text, call) => {
    // Before the bytes leave: the connection may end inside send(), and then they may have been read.
    if (call !== undefined) call.sent = true;
    return this.#line.send(text);
  };

  #describe(method: string, params: unknown, id: Id | undefined): CallRecord {
    return { direction: "outgoing", peer: this.#peer, method, id, params, context: undefined };
  }

  #open(
    id: number,
    method: string,
    params: unknown,
    options: CallOptions | undefined,
    deliver: Deliver,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const wait = this.#checkWait(options);
      if (wait.signal?.aborted) throw wait.signal.reason;
      const text = encodeRequest(id, method, params as object);
      const { ended } = this.#line;
      if (ended !== undefined) throw new ConnectionLostError(method, "not-sent", ended);
      const call = new PendingCall(this.pending, id, method, wait, resolve, reject);
      // Registered before it is sent: an in-memory peer may answer inside send().
      this.pending.add(call);
      if (!deliver(text, call)) this.failUnsent(call);
    });
  }

  /** Rejects a call that the connection did not take. */
  failUnsent(call: PendingCall): void {
    this.pending.fail(
      call.id,
      new ConnectionLostError(call.method, "not-sent", this.#line.ended ?? new Error("the connection is closing")),
    );
  }

  #checkWait(options: CallOptions | undefined): { timeoutMs: number; signal: AbortSignal | undefined } {
    if (options !== undefined) checkKnown("options", options, CALL_OPTIONS);
    const timeoutMs = options?.timeoutMs;
    const signal = options?.signal;
    if (signal !== undefined && !isSignal(signal)) throw expected("signal", "an AbortSignal", signal);
    return {
      timeoutMs: timeoutMs === undefined ? this.#settings.timeoutMs : checkTimeout("timeoutMs", timeoutMs),
      signal,
    };
  }
}

/** A batch that is being collected (section 6). */
export class OutgoingBatch {
  readonly #entries: { text: string; call: PendingCall | undefined }[] = [];
  readonly #out: Outgoing;
  readonly #now: Deliver;
  #sent = false;

  constructor(out: Outgoing, now: Deliver) {
    this.#out = out;
    this.#now = now;
  }

  /** Adds a request. */
  async request(method: string, params: unknown, options?: CallOptions): Promise<unknown> {
    this.#checkUnsent();
    return this.#out.request(method, params, options, this.#add);
  }

  /** Adds a notification. */
  notify(method: string, params: unknown): boolean {
    this.#checkUnsent();
    return this.#out.notify(method, params, this.#add);
  }

  /** Sends what was collected and still waits, in one array. */
  send(): void {
    this.#checkUnsent();
    this.#sent = true;
    const { pending } = this.#out;
    const live = this.#entries.filter(({ call }) => call === undefined || pending.has(call.id));
    if (live.length === 0) return;
    const calls = new Set(live.flatMap(({ call }) => call ?? []));
    for (const call of calls) call.sent = true;
    if (calls.size > 0) pending.openBatch(calls);
    if (this.#now(`[${live.map(({ text }) => text).join(",")}]`)) return;
    for (const call of calls) this.#out.failUnsent(call);
  }

  /** An `around` that let the batch leave without its call is not punished for it: the call follows alone. */
  readonly #add: Deliver = (text, call) => {
    if (this.#sent) return this.#now(text, call);
    if (this.#out.ended) return false;
    this.#entries.push({ text, call });
    return true;
  };

  #checkUnsent(): void {
    if (this.#sent) throw new Error("this batch was sent already");
  }
}

/** By its shape: another realm's AbortSignal is no instance of this one's. */
function isSignal(value: unknown): boolean {
  const { aborted, addEventListener } = (value ?? {}) as Partial<AbortSignal>;
  return typeof aborted === "boolean" && typeof addEventListener === "function";
}
