/**
 * The calls the other side makes: finds the handler, starts it, and sees to it that a request gets exactly one answer,
 * whatever its handler does.
 */
import type { Slot } from "./batch.js";
import { encodeError, encodeInternalError, encodeResult, exceeds } from "./codec.js";
import { CallContext } from "./context.js";
import { ErrorCode, RpcError } from "./errors.js";
import { isInternalMethod, type Id, type NotificationMessage, type RequestMessage } from "./message.js";
import { isThenable, observed } from "./promises.js";
import { validate } from "./schema.js";
import type { AnyHandler, CallRecord, Settings } from "./settings.js";

/** What the dispatcher needs of its peer. */
export interface Host {
  send(text: string): void;
  /** Takes an error that must not cross the wire. */
  report(error: unknown): void;
  /** Takes a notification that nobody handles. */
  unhandled(method: string, params: unknown): void;
  /** Told when the last handler that ran has ended and is answered. */
  idle?: (() => void) | undefined;
}

/** The incoming calls of one peer. */
export class Dispatcher {
  readonly #host: Host;
  readonly #settings: Settings;
  readonly #peer: unknown;
  /** Calls whose handler has returned a promise that is not settled. A synchronous handler is never in here. */
  readonly #running = new Set<CallContext>();
  /** How many of those are requests. */
  #requests = 0;
  /** Calls whose handler has not returned: one, or more when a transport answers inside `send`. */
  readonly #starting: CallContext[] = [];
  #added: Map<string, AnyHandler> | undefined;

  constructor(host: Host, peer: unknown, settings: Settings) {
    this.#host = host;
    this.#peer = peer;
    this.#settings = settings;
  }

  /** Handlers that run, notifications' included. */
  get running(): number {
    return this.#running.size;
  }

  /** Requests among them: each is still owed its answer. */
  get owed(): number {
    return this.#requests;
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
  request({ method, params, id }: RequestMessage, slot?: Slot): void {
    if (this.#requests >= this.#settings.limits.maxInFlight) return this.#send(id, encodeError(id, busy()), slot);
    const context = new this.#settings.owner.Context(this.#peer, method, id);
    let result: unknown;
    try {
      result = this.#start(context, params);
      if (!isThenable(result)) return this.#answer(id, result, slot);
    } catch (error) {
      return this.#refuse(id, error, slot);
    }
    this.#await(
      context,
      result,
      (value) => this.#answer(id, value, slot),
      (error) => this.#refuse(id, error, slot),
    );
  }

  /** Runs a notification. Nothing is ever answered: what goes wrong is reported here (section 4.1). */
  notification({ method, params }: NotificationMessage): void {
    // Counted apart, so that a notification that some request waits for is not refused because of it.
    if (this.#running.size - this.#requests >= this.#settings.limits.maxInFlight) return this.#host.report(busy());
    const context = new this.#settings.owner.Context(this.#peer, method, undefined);
    const fail = (error: unknown): void => this.#host.report(error);
    try {
      const result = this.#start(context, params);
      if (isThenable(result)) this.#await(context, result, () => {}, fail);
    } catch (error) {
      fail(error);
    }
  }

  /** Tells every handler that nobody waits any more. */
  abortAll(reason: unknown): void {
    for (const context of [...this.#starting, ...this.#running]) CallContext.abort(context, reason);
  }

  /** Calls the handler. Until it returns, the call is among those that starts: a handler may close its own peer. */
  #start(context: CallContext, params: unknown): unknown {
    this.#starting.push(context);
    try {
      return this.#run(context, params);
    } finally {
      this.#starting.pop();
    }
  }

  #await(
    context: CallContext,
    result: PromiseLike<unknown>,
    succeed: (value: unknown) => void,
    fail: (error: unknown) => void,
  ): void {
    const weight = context.id === undefined ? 0 : 1;
    this.#requests += weight;
    this.#running.add(context);
    // Whatever a hostile promise does, the call ends once: with its first word.
    const once =
      <T>(end: (outcome: T) => void) =>
      (outcome: T): void => {
        if (!this.#running.delete(context)) return;
        this.#requests -= weight;
        end(outcome);
        if (this.#running.size === 0) this.#host.idle?.();
      };
    try {
      // An async function would cost one more promise for every call.
      Promise.resolve(result).then(once(succeed), once(fail));
    } catch (error) {
      // A promise with a `then` of its own that throws.
      once(fail)(error);
    }
  }

  #run(context: CallContext, params: unknown): unknown {
    const { around } = this.#settings;
    if (around === undefined) return this.#serve(context, params);
    const { method, id } = context;
    const call: CallRecord = { direction: "incoming", peer: this.#peer, method, id, params, context };
    return around(call, () => observed(new Promise((resolve) => resolve(this.#serve(context, call.params)))));
  }

  #serve(context: CallContext, params: unknown): unknown {
    const { method } = context;
    const handler = this.#added?.get(method) ?? this.#settings.methods.get(method);
    if (handler === undefined) return this.#unhandled(context, params);
    const schema = this.#settings.schemas?.get(method);
    if (schema === undefined) return handler(params, context);
    return validate(schema, params, (checked) => handler(checked, context));
  }

  /** Section 8: names that begin with `rpc.` belong to the protocol, so no fallback may answer for them. */
  #unhandled(context: CallContext, params: unknown): unknown {
    const { method, id } = context;
    const { fallback } = this.#settings;
    if (fallback !== undefined && !isInternalMethod(method)) return fallback(params, context);
    if (id !== undefined) throw new RpcError(ErrorCode.MethodNotFound, "Method not found");
    this.#host.unhandled(method, params);
    return undefined;
  }

  #answer(id: Id, result: unknown, slot: Slot | undefined): void {
    let text: string;
    try {
      text = encodeResult(id, result);
    } catch (error) {
      return this.#refuse(id, error, slot);
    }
    this.#send(id, text, slot);
  }

  /** Only an RpcError says anything to the other side; everything else may hold secrets and stays here. */
  #refuse(id: Id, error: unknown, slot: Slot | undefined): void {
    let text: string | undefined;
    try {
      if (error instanceof RpcError) text = encodeError(id, error);
      else this.#host.report(error);
    } catch (failure) {
      // The error itself cannot be examined or encoded: a hostile Proxy, cyclic data.
      this.#host.report(failure);
    }
    this.#send(id, text ?? encodeInternalError(id), slot);
  }

  #send(id: Id, text: string, slot: Slot | undefined): void {
    const { maxReplyBytes } = this.#settings.limits;
    if (slot === undefined) return this.#host.send(exceeds(text, maxReplyBytes) ? tooLarge(id, maxReplyBytes) : text);
    slot.reply.put(slot.index, slot.reply.fits(text) ? text : tooLarge(id, maxReplyBytes));
  }
}

function busy(): RpcError {
  return new RpcError(ErrorCode.Busy, "Server is busy");
}

function tooLarge(id: Id, maxReplyBytes: number): string {
  const { ResponseTooLarge: code } = ErrorCode;
  return encodeError(id, { code, message: "Response is too large", data: { maxReplyBytes } });
}
