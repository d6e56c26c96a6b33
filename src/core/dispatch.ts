/**
 * The calls the other side makes: finds the handler, starts it, and sees to it that a request gets exactly one answer,
 * whatever its handler does.
 */
import type { Slot } from "./batch.js";
import { ById } from "./by-id.js";
import { encodeError, encodeInternalError, encodeRawResult, encodeResult, exceeds, isNamelessError } from "./codec.js";
import { CallContext, type AbortCause } from "./context.js";
import type { Conventions, Streaming } from "./conventions.js";
import * as ErrorCode from "./codes.js";
import { isExempt } from "./dialect.js";
import type { Hooks } from "./hooks.js";
import { isAbort, isReceived, RpcError } from "./errors.js";
import { List, unlink, type Linked } from "./list.js";
import { isInternalMethod, type Id, type NotificationMessage, type RequestMessage } from "./message.js";
import { isAsyncIterable, isThenable, observed } from "./promises.js";
import { validate } from "./schema.js";
import type { Counts } from "./stats.js";
import type { AnyHandler, CallRecord, Config } from "./config.js";
import type { Frame } from "./transport.js";

/** What the dispatcher needs of its connection. */
export interface Host {
  readonly peer: unknown;
  readonly answersOnly: Error | undefined;
  /** Why the connection ended; `undefined` while it is open. */
  readonly ended: Error | undefined;
  readonly counts: Counts;
  readonly hooks: Hooks;
  /** What takes control messages and serves streams. */
  readonly conventions: Conventions;
  /** The same, when something needed it already. */
  readonly usedConventions: Conventions | undefined;
  /** What encodes streams, once one was offered. */
  readonly offering: Streaming | undefined;
  /** Errors with id null that were sent and not yet answered by one. */
  namelessErrors: number;
  /** Longest single answer, in bytes of UTF-8. */
  readonly maxReplyBytes: number;
  /** Hands a text to the connection; false when it will not be sent. */
  send(text: string): boolean;
  /** Takes an error that must not cross the wire; `method`: where it was thrown, one of a bounded number of names. */
  report(error: unknown, method?: string): void;
  /** Takes an error that the other side can cause with each of its messages. `make` runs only if there is a listener. */
  reportIfHeard(make: () => unknown): void;
  /** Takes a notification that nobody handles. */
  unhandled(method: string, params: unknown): void;
  /** Told when the last handler that ran has ended. */
  idle(): void;
  /** As `Transport.afterRead`; returns false also where the transport has no such function. */
  afterRead(then: () => void): boolean;
  /** Keeps the frame that is received at present, until `dropFrame`: it holds the params of its calls. */
  keepFrame(): Frame | undefined;
  dropFrame(frame: Frame | undefined): void;
}

/** A call among those that run. */
interface Running extends Linked {
  readonly context: CallContext;
}

/** The incoming calls of one connection. Its tables are made when first needed: most peers of a server are idle. */
export class Dispatcher {
  readonly #host: Host;
  readonly #config: Config;
  /** Calls whose handler has returned a promise that is not settled. A synchronous handler is never in here. */
  #running: List<Running> | undefined;
  /**
   * The requests in `#running` that a cancel can still abort. Exists from the first cancel until no call runs: a Map costs each
   * call time (`list.ts`), so connections without cancels have none.
   */
  #byId: ById<CallContext> | undefined;
  #requests = 0;
  #notifications = 0;
  /** Calls whose handler has not returned: one, or more when a transport answers inside `send`. */
  #starting: readonly CallContext[] | undefined;
  #added: Map<string, AnyHandler> | undefined;

  /** `before`: the calls of a connection that this one goes on from, whose handlers of this peer's own stay. */
  constructor(host: Host, config: Config, before?: Dispatcher) {
    this.#host = host;
    this.#config = config;
    if (before !== undefined) this.#added = before.#added;
  }

  /** Handlers that run, notifications' included. */
  get running(): number {
    return this.#requests + this.#notifications;
  }

  /** Adds a handler for this peer alone, over one that `methods` may hold. */
  handle(method: string, handler: AnyHandler): () => void {
    const added = (this.#added ??= new Map());
    if (added.has(method)) throw new Error(`\`${method}\` is handled already; undo that first`);
    added.set(method, handler);
    return () => {
      if (added.get(method) === handler) added.delete(method);
    };
  }

  /** Runs a request and answers it, into `slot` when it came in a batch. */
  request(message: RequestMessage, slot?: Slot): void {
    const { method, params, id } = message;
    const { controls, limits } = this.#config;
    if (controls.has(method) && this.#handlerOf(method) === undefined && this.#host.conventions.control(message, slot))
      return;
    if (this.#requests >= limits.maxInFlight) {
      this.#host.counts.refusedBusy++;
      this.reply(id, encodeError(id, BUSY), slot);
      return;
    }
    if (this.#isUnknown(method)) {
      this.reply(id, encodeError(id, METHOD_NOT_FOUND), slot);
      return;
    }
    const context = new this.#host.hooks.Context(this.#host, method, id, params);
    let result: unknown;
    try {
      result = this.#start(context, params);
      if (!isThenable(result)) return this.#answer(context, result, slot, undefined);
    } catch (error) {
      return this.#refuse(context, error, slot);
    }
    const frame = this.#host.keepFrame();
    this.#await(
      context,
      result,
      (value) => this.#answer(context, value, slot, frame),
      (error) => this.#refuse(context, error, slot),
      frame,
    );
  }

  /** Runs a notification. Nothing is ever answered: what goes wrong is reported here (section 4.1). */
  notification(message: NotificationMessage): void {
    const { method, params } = message;
    const { limits } = this.#config;
    if (this.#isTaken(message) && this.#handlerOf(method) === undefined) return;
    // Counted apart, so that a notification that some request waits for is not refused because of it.
    if (this.#notifications >= limits.maxInFlight) {
      this.#host.counts.refusedBusy++;
      return this.#host.reportIfHeard(() => new RpcError(BUSY.code, BUSY.message));
    }
    const context = new this.#host.hooks.Context(this.#host, method, undefined, params);
    let result: unknown;
    try {
      result = this.#start(context, params);
      if (!isThenable(result)) return this.#discard(context, result);
    } catch (error) {
      return this.#failed(context, error);
    }
    this.#await(
      context,
      result,
      (value) => this.#discard(context, value),
      (error) => this.#failed(context, error),
      this.#host.keepFrame(),
    );
  }

  /** Reports what a notification failed with, unless it was that its peer is gone. */
  #failed(context: CallContext, error: unknown): void {
    const aborted = CallContext.abortCause(context);
    if (aborted === undefined || !isAbort(error, aborted.reason)) this.failed(context.method, error);
  }

  /** Whether the conventions took a notification. A dialect that somebody wrote may fail over what a stranger sent. */
  #isTaken(message: NotificationMessage): boolean {
    if (!this.#config.controls.has(message.method)) return false;
    try {
      return this.#host.conventions.control(message, undefined);
    } catch (error) {
      this.#host.report(error);
      return true;
    }
  }

  /** What a notification's handler returned goes nowhere. A stream in it must not wait for a reader, nor hold what it reads from. */
  #discard(context: CallContext, result: unknown): void {
    try {
      if (isAsyncIterable(result)) void observed(this.#host.conventions.streams.serve(result, context));
      else if (this.#host.offering !== undefined) this.#encode(context, result);
    } catch {
      // It cannot be encoded, or was a stream and is stopped: nobody asked for it.
    }
  }

  /** Aborts the calls that run under `id`, with `cause`: several when the caller has used an id twice. Ignores an unknown id. */
  cancel(id: Id, cause: AbortCause): void {
    for (const context of this.#starting ?? []) if (context.id === id) this.#abort(context, cause);
    if (this.#running?.first === undefined) return;
    for (const context of (this.#byId ??= this.#indexRunning()).take(id)) this.#abort(context, cause);
  }

  #abort(context: CallContext, cause: AbortCause): void {
    if (!isExempt(this.#config.dialect, context.method)) CallContext.abort(context, cause);
  }

  /** Each call in it was added once since the index was last dropped, so building it costs O(1) for each call. */
  #indexRunning(): ById<CallContext> {
    const byId = new ById<CallContext>();
    for (const { context } of this.#running!.toArray()) if (context.id !== undefined) byId.add(context.id, context);
    return byId;
  }

  /** Aborts every call that runs: no caller waits any more. */
  abortAll(reason: unknown): void {
    const calls = [...(this.#starting ?? []), ...(this.#running?.toArray() ?? []).map(({ context }) => context)];
    for (const context of calls) CallContext.abort(context, { reason });
  }

  /** Sends an answer, or an error in its place when it is too large. Whether it was taken as it is; `onSent` is told, once it has left or nobody can get it any more, whether it was. */
  reply(id: Id, text: string, slot: Slot | undefined, onSent?: (isWhole: boolean) => void): boolean {
    const { maxReplyBytes } = this.#host;
    const fits = slot === undefined ? !exceeds(text, maxReplyBytes) : slot.fits(text);
    const reply = fits ? text : tooLarge(id, maxReplyBytes);
    if (id === null && isNamelessError(reply)) this.#host.namelessErrors++;
    // It goes nowhere when the connection has ended; the peer may go on with another.
    const told = onSent && (() => onSent(fits && this.#host.ended === undefined));
    if (slot !== undefined) {
      slot.put(reply, told);
      return fits;
    }
    const isTaken = this.#host.send(reply);
    told?.();
    return isTaken && fits;
  }

  /** Calls the handler. Until it returns, the call is among those that starts: a handler may close its own peer. */
  #start(context: CallContext, params: unknown): unknown {
    const outer = this.#starting;
    // Hardly ever does one start within another; and an array that is kept, once it was pushed to, has room for seventeen.
    this.#starting = outer === undefined ? [context] : [...outer, context];
    try {
      return this.#run(context, params);
    } finally {
      this.#starting = outer;
    }
  }

  #await<T>(
    context: CallContext,
    result: PromiseLike<T>,
    succeed: (value: T) => void,
    fail: (error: unknown) => void,
    frame?: Frame,
  ): void {
    const running: Running = { context, before: undefined, after: undefined };
    (this.#running ??= new List()).add(running);
    if (context.id !== undefined) this.#byId?.add(context.id, context);
    this.#count(context, 1);
    // Whatever a hostile promise does, the call ends once: with its first word.
    const once =
      <O>(end: (outcome: O) => void) =>
      (outcome: O): void => {
        if (!unlink(running)) return;
        if (context.id !== undefined) this.#byId?.delete(context.id, context);
        if (this.#running!.first === undefined) this.#byId = undefined;
        this.#count(context, -1);
        this.#host.dropFrame(frame);
        end(outcome);
        if (this.running === 0) this.#host.idle();
      };
    try {
      // An async function would cost one more promise for every call.
      Promise.resolve(result).then(once(succeed), once(fail));
    } catch (error) {
      // A promise with a `then` of its own that throws.
      once(fail)(error);
    }
  }

  #count({ id }: CallContext, by: number): void {
    if (id === undefined) this.#notifications += by;
    else this.#requests += by;
  }

  #run(context: CallContext, params: unknown): unknown {
    const { around } = this.#config;
    if (around === undefined) return this.#serve(context, params);
    const { peer, method, id } = context;
    const call: CallRecord = { direction: "incoming", peer, method, id, params, context };
    return around(call, () => observed(new Promise((resolve) => resolve(this.#serve(context, call.params)))));
  }

  #serve(context: CallContext, params: unknown): unknown {
    const { method } = context;
    const handler = this.#handlerOf(method) ?? this.#fallbackFor(method);
    if (handler === undefined) return this.#unhandled(context, params);
    const schema = this.#config.schemas?.get(method);
    if (schema === undefined) return handler(params, context);
    return validate(schema, params, (checked) => handler(checked, context));
  }

  #handlerOf(method: string): AnyHandler | undefined {
    return this.#added?.get(method) ?? this.#config.methods.get(method);
  }

  /** Whether a request of `method` can be refused without a context and an error, whose stack is expensive. */
  #isUnknown(method: string): boolean {
    const { fallback, around } = this.#config;
    return around === undefined && fallback === undefined && this.#handlerOf(method) === undefined;
  }

  /** Section 8: names that begin with `rpc.` belong to the protocol, so no fallback may answer for them. */
  #fallbackFor(method: string): AnyHandler | undefined {
    return isInternalMethod(method) ? undefined : this.#config.fallback;
  }

  #unhandled({ method, id }: CallContext, params: unknown): undefined {
    if (id !== undefined) throw new RpcError(METHOD_NOT_FOUND.code, METHOD_NOT_FOUND.message);
    this.#host.unhandled(method, params);
    return undefined;
  }

  /** `frame`: what the call came in; by default the frame that is received at present. */
  #answer(context: CallContext, result: unknown, slot: Slot | undefined, frame: Frame | undefined): void {
    let text: string;
    try {
      if (isAsyncIterable(result)) return this.#stream(context, result, slot, frame);
      text = this.#encode(context, result, frame);
    } catch (error) {
      return this.#refuse(context, error, slot);
    }
    this.#finish(context, text, slot);
  }

  #encode(context: CallContext, result: unknown, frame?: Frame): string {
    const { offering } = this.#host;
    if (offering === undefined) return encodeResult(context.id!, result);
    return offering.encode(context, () => encodeResult(context.id!, result), frame);
  }

  /** A handler may return an async iterable as its whole result. */
  #stream(
    context: CallContext,
    source: AsyncIterable<unknown>,
    slot: Slot | undefined,
    frame: Frame | undefined,
  ): void {
    // Until its first values are there it runs, as any call that is not answered.
    this.#await(
      context,
      this.#host.conventions.streams.serve(source, context, frame),
      (json) => this.#finish(context, encodeRawResult(context.id!, json()), slot),
      (error) => this.#refuse(context, error, slot),
    );
  }

  /**
   * Answers a call to `method` with an error. Sends what an RpcError of this side's own says; everything else may hold secrets
   * and is reported here.
   */
  refuse(id: Id, method: string, error: unknown, slot: Slot | undefined): void {
    let text: string | undefined;
    try {
      if (error instanceof RpcError && !isReceived(error)) text = encodeError(id, error);
      else this.failed(method, error);
    } catch (failure) {
      // The error itself cannot be examined or encoded: a hostile Proxy, cyclic data.
      this.failed(method, failure);
    }
    this.reply(id, text ?? encodeInternalError(id), slot);
  }

  /** Reports what a call to `method` failed with. For an RpcError that was received, reports an error that has it as its cause. */
  failed(method: string, error: unknown): void {
    const message = `a call that "${method}" made was answered with an error`;
    const failure = isReceived(error) ? new Error(message, { cause: error }) : error;
    // The other side chooses the names of methods that are not served, so all of them are reported under one.
    const isServed = this.#handlerOf(method) !== undefined || this.#config.controls.has(method);
    this.#host.report(failure, isServed ? method : "fallback or around");
  }

  #refuse(context: CallContext, error: unknown, slot: Slot | undefined): void {
    const aborted = CallContext.abortCause(context);
    if (aborted !== undefined) return this.#cancelled(context, error, aborted.reason, slot);
    CallContext.answer(context, false);
    this.refuse(context.id!, context.method, error, slot);
  }

  /** A handler failed after its caller had cancelled. That it was stopped is what was asked for, and no failure. */
  #cancelled(context: CallContext, error: unknown, reason: unknown, slot: Slot | undefined): void {
    if (!isAbort(error, reason)) this.failed(context.method, error);
    this.#finish(context, encodeError(context.id!, CANCELLED), slot, false);
  }

  /** Whether no answer may be sent: in some dialects a cancelled call gets none. */
  #isUnwanted(context: CallContext): boolean {
    return CallContext.abortCause(context) !== undefined && !this.#config.dialect.cancel.isAnswered;
  }

  #finish(context: CallContext, text: string, slot: Slot | undefined, isResult = true): void {
    const isUnwanted = this.#isUnwanted(context);
    const onSent = CallContext.answer(context, isResult && !isUnwanted);
    if (isUnwanted) slot?.leaveOut();
    else if (!this.reply(context.id!, text, slot, onSent)) this.#host.usedConventions?.unsent(context);
  }
}

const CANCELLED = { code: ErrorCode.RequestCancelled, message: "Request cancelled" };
const BUSY = { code: ErrorCode.Busy, message: "Server is busy" };
const METHOD_NOT_FOUND = { code: ErrorCode.MethodNotFound, message: "Method not found" };

/** The error in place of a reply that is too long. */
export function tooLarge(id: Id, maxReplyBytes: number): string {
  const data = { maxReplyBytes };
  return encodeError(id, { code: ErrorCode.ResponseTooLarge, message: "Response is too large", data });
}
