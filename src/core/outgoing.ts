/** The calls this side makes: encodes them, registers what waits for an answer, and hands them to the connection or to a batch. */
import { encodeNotification, encodeRequest, exceeds, utf8Bytes } from "./codec.js";
import type { CallOptions } from "./contract.js";
import type { Counts } from "./stats.js";
import type { Conventions, Streaming } from "./conventions.js";
import { ConnectionLostError, TooLargeError } from "./errors.js";
import type { Id } from "./message.js";
import { observed } from "./promises.js";
import { PendingCall, PendingCalls } from "./pending.js";
import { waitOf, type CallRecord, type Config } from "./config.js";
import type { Ticket } from "./transport.js";
import { Waiting } from "./waiting.js";

/** What outgoing calls need of their connection. */
export interface Line {
  readonly peer: unknown;
  /** Why nothing can be sent of this side's own accord; `undefined` while it can. */
  readonly mute: Error | undefined;
  readonly counts: Counts;
  /** What asks for progress. */
  readonly conventions: Conventions;
  /** The same, when something needed it already. */
  readonly usedConventions: Conventions | undefined;
  /** What encodes streams, once one was offered. */
  readonly offering: Streaming | undefined;
  /** Ends the connection when its other side reads too slowly. */
  checkRoom(): void;
  /** Hands a text to the connection; false when it will not be sent. */
  hand(text: string, ticket: Ticket | undefined): boolean;
  /** Why the connection did not take a text that is not too long. */
  readonly refusal: Error;
  /** Longest message that the other side takes, in bytes; `Infinity` while that is not known. */
  readonly maxSentBytes: number;
  /** Takes an error that has no caller to go to. */
  report(error: unknown): void;
  /** A call that was sent: its caller no longer waits. */
  givenUp(call: PendingCall, reason: unknown): void;
  /** One that was not: it is not to be sent any more. */
  withdraw(call: PendingCall): void;
}

/** Where messages go that are not simply sent. */
export interface Sink {
  /** Takes an encoded message; false when it will not be sent. `ticket` is of the call, if it is one. */
  add(text: string, ticket: Ticket | undefined): boolean;
}

/** The outgoing calls of one connection. */
export class Outgoing {
  #pending: PendingCalls | undefined;
  readonly #line: Line;
  readonly #config: Config;
  /** Messages that wait until `release`. */
  #held: Waiting | undefined;

  /** `before`: the calls of a connection that this one goes on from. */
  constructor(line: Line, config: Config, before?: Outgoing) {
    this.#line = line;
    this.#config = config;
    if (before !== undefined) this.#pending = new PendingCalls(line, before.pending);
  }

  /** The calls that wait for their answer. Most peers of a server never call. */
  get pending(): PendingCalls {
    return (this.#pending ??= new PendingCalls(this.#line));
  }

  /** How many do. */
  get waiting(): number {
    return this.#pending?.size ?? 0;
  }

  /** Rejects all of them: the connection is over. */
  failAll(cause: unknown): void {
    this.#pending?.failAll(cause);
  }

  /** Whether messages wait until `release`. */
  get isHeld(): boolean {
    return this.#held !== undefined;
  }

  /** From now on messages wait, but those given to `through`. */
  hold(): void {
    this.#held = new Waiting();
  }

  /** Passes by what is held. */
  get through(): Sink {
    return { add: (text, ticket) => this.#pass(text, ticket) };
  }

  /** Sends what was held, and holds no more. */
  release(): void {
    // What is sent meanwhile is held too, and leaves behind the rest.
    for (const [ticket, text] of this.#held ?? []) {
      this.#held!.remove(ticket);
      const { usedConventions } = this.#line;
      const leaving = usedConventions === undefined ? text : usedConventions.decide(text, ticket);
      if (leaving !== undefined && !this.#pass(leaving, ticket)) this.#refused(leaving, ticket);
    }
    this.#held = undefined;
  }

  /** Takes back a call, or a batch, that waits. */
  withdraw(ticket: Ticket): void {
    this.#held?.remove(ticket);
  }

  /** Calls, and promises the answer; in `batch`, when that is sent. Never throws. */
  request(method: string, params: unknown, options?: CallOptions, batch?: Sink): Promise<unknown> {
    const id = this.pending.nextId();
    const { around } = this.#config;
    if (around === undefined) return this.#call(id, method, params, options, batch);
    const call = this.#describe(method, params, id);
    let unused: number | undefined = id;
    const next = (): Promise<unknown> => {
      // Going on again, after a failure or beside the first, is another call: under one id only one of them could settle.
      const own = unused ?? this.pending.nextId();
      unused = undefined;
      return observed(this.#call(own, method, call.params, options, batch));
    };
    return new Promise((resolve) => resolve(around(call, next)));
  }

  /** Calls for a convention's sake: `around` does not see it. */
  control(method: string, params: object, options: CallOptions): Promise<unknown> {
    return this.#call(this.pending.nextId(), method, params, options, this.through);
  }

  /** Notifies, and answers whether the message was taken. Throws a `TypeError` for a message that cannot be encoded. */
  notify(method: string, params: unknown, batch?: Sink): boolean {
    // Also where `around` may change it: what cannot be encoded is the caller's mistake, and thrown at the caller.
    const text = encodeNotification(method, params as object);
    this.#line.counts.notificationsSent++;
    const { around } = this.#config;
    if (around === undefined) return this.#notify(method, text, batch);
    const call = this.#describe(method, params, undefined);
    let taken = this.#line.mute === undefined;
    const deliverCall = async (): Promise<void> => {
      // Once more: the params may have been changed in place.
      taken = this.#notify(method, encodeNotification(method, call.params as object), batch);
    };
    const next = (): Promise<void> => observed(deliverCall());
    new Promise((resolve) => resolve(around(call, next))).catch((error: unknown) => this.#line.report(error));
    return taken;
  }

  /** Whether nothing more can be sent. */
  get ended(): boolean {
    return this.#line.mute !== undefined;
  }

  /** Takes an encoded message, and the ticket of a call in it; false when it will not be sent. */
  deliver(text: string, ticket: Ticket | undefined, sink: Sink | undefined): boolean {
    if (sink !== undefined) return sink.add(text, ticket);
    if (this.#held === undefined) return this.#pass(text, ticket);
    // As much as may wait in a link: a socket that is full takes no more at once when it is let go.
    if (this.ended || this.#held.length + text.length > this.#config.limits.maxUnsentBytes / 2) return false;
    this.#held.add(text, ticket);
    return true;
  }

  #pass(text: string, ticket: Ticket | undefined): boolean {
    // Should that end the connection, nothing was sent.
    this.#line.checkRoom();
    // Before the bytes leave: the connection may end inside, and then they may have been read.
    if (ticket !== undefined) ticket.sent = true;
    return this.#line.hand(text, ticket);
  }

  #notify(method: string, text: string, sink: Sink | undefined): boolean {
    if (this.deliver(text, undefined, sink)) return true;
    this.reportTooLarge(text, method);
    return false;
  }

  /** What was held is not taken after all. */
  #refused(text: string, ticket: Ticket): void {
    if (ticket instanceof PendingCall) this.failUnsent([ticket], text);
    else if (ticket instanceof BatchTicket) ticket.fail(this, text);
    else this.reportTooLarge(text);
  }

  /**
   * Reports a message without a caller that was not taken, if it is longer than the other side takes. It is not thrown: the
   * other side chooses that length, and must not make a loop over many peers fail.
   */
  reportTooLarge(text: string, method?: string): void {
    const bytes = this.#excess(text);
    if (bytes === undefined) return;
    this.#line.report(new TooLargeError(method ?? methodOf(text), bytes, this.#line.maxSentBytes));
  }

  /** Returns the size in bytes of a text that is longer than the other side takes; `undefined` for any other. */
  #excess(text: string): number | undefined {
    const { mute, maxSentBytes } = this.#line;
    return mute === undefined && exceeds(text, maxSentBytes) ? utf8Bytes(text) : undefined;
  }

  #describe(method: string, params: unknown, id: Id | undefined): CallRecord {
    return { direction: "outgoing", peer: this.#line.peer, method, id, params, context: undefined };
  }

  #call(
    id: number,
    method: string,
    params: unknown,
    options: CallOptions | undefined,
    sink: Sink | undefined,
  ): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const wait = options === undefined ? this.#config.wait : waitOf(options, this.#config.wait.timeoutMs);
      if (wait.signal?.aborted) throw wait.signal.reason;
      const call = new PendingCall(this.pending, id, method, wait, resolve, reject);
      let text: string;
      try {
        text = this.#encode(call, params);
        const { mute } = this.#line;
        if (mute !== undefined) throw new ConnectionLostError(method, "not-sent", mute);
      } catch (error) {
        call.onSettled?.();
        throw error;
      }
      // Registered before it is sent: an in-memory peer may answer inside send().
      this.pending.add(call);
      this.#line.counts.requestsSent++;
      if (!this.deliver(text, call, sink)) this.failUnsent([call], text);
    });
  }

  #encode(call: PendingCall, given: unknown): string {
    const { id, method, wait } = call;
    const params = wait.onProgress === undefined ? given : this.#line.conventions.askProgress(call, given);
    const { offering } = this.#line;
    if (offering === undefined) return encodeRequest(id, method, params as object);
    return offering.encode(call, () => encodeRequest(id, method, params as object));
  }

  /** Rejects the calls of a text that the connection did not take. */
  failUnsent(calls: Iterable<PendingCall>, text: string): void {
    const { refusal, maxSentBytes } = this.#line;
    const bytes = this.#excess(text);
    for (const { id, method } of calls) {
      const error =
        bytes === undefined
          ? new ConnectionLostError(method, "not-sent", refusal)
          : new TooLargeError(method, bytes, maxSentBytes);
      this.pending.fail(id, error);
    }
  }
}

/** Returns the method of an encoded message; the first, of a batch. */
function methodOf(text: string): string {
  const [message] = [JSON.parse(text) as unknown].flat();
  return (message as { method: string }).method;
}

/** A batch that is being collected (section 6). */
export class OutgoingBatch implements Sink {
  readonly #entries: { text: string; call: PendingCall | undefined }[] = [];
  readonly #out: Outgoing;
  #sent = false;

  constructor(out: Outgoing) {
    this.#out = out;
  }

  /** Adds a request. */
  async request(method: string, params: unknown, options?: CallOptions): Promise<unknown> {
    this.#checkUnsent();
    return this.#out.request(method, params, options, this);
  }

  /** Adds a notification. */
  notify(method: string, params: unknown): boolean {
    this.#checkUnsent();
    return this.#out.notify(method, params, this);
  }

  /** Sends what was collected and still waits, in one array. */
  send(): void {
    this.#checkUnsent();
    this.#sent = true;
    const { pending } = this.#out;
    const live = this.#entries.filter(({ call }) => call === undefined || pending.get(call.id) !== undefined);
    if (live.length === 0) return;
    const ticket = new BatchTicket(live.flatMap(({ call }) => call ?? []));
    if (ticket.size > 0) pending.openBatch(ticket);
    const batch = `[${live.map(({ text }) => text).join(",")}]`;
    if (!this.#out.deliver(batch, ticket, undefined)) ticket.fail(this.#out, batch);
  }

  /** Takes an encoded message. An `around` that let the batch leave without its call is not punished for it: the call follows alone. */
  add(text: string, call: Ticket | undefined): boolean {
    if (this.#sent) return this.#out.deliver(text, call, undefined);
    if (this.#out.ended) return false;
    this.#entries.push({ text, call: call as PendingCall | undefined });
    return true;
  }

  #checkUnsent(): void {
    if (this.#sent) throw new Error("this batch was sent already");
  }
}

/** All calls of a batch leave together. */
class BatchTicket extends Set<PendingCall> implements Ticket {
  get sent(): boolean {
    return [...this].every((call) => call.sent);
  }

  set sent(value: boolean) {
    for (const call of this) call.sent = value;
  }

  /** The batch, `text`, was not taken. */
  fail(out: Outgoing, text: string): void {
    if (this.size === 0) out.reportTooLarge(text);
    else out.failUnsent(this, text);
  }
}
