/**
 * The calls that the other side makes: finds the handler, starts it, and ensures that a request gets exactly one response,
 * whatever its handler does.
 */
import {
  encodeError,
  encodeRawResult,
  encodeResult,
  encodeTooLarge,
  exceeds,
  isNamelessError,
  sentForm,
  type MessageText,
} from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { AnyHandler } from "./config.js";
import type { Connection } from "./connection.js";
import { isExempt } from "./dialect.js";
import { isAbort, isReceived, RpcError } from "../message/errors.js";
import { IncomingCall, type AbortCause, type Slot } from "./incoming-call.js";
import { List, unlink } from "../base/list.js";
import {
  idOf,
  isInternalMethod,
  isLoneId,
  isObject,
  type ErrorObject,
  type Id,
  type Kind,
  type NotificationMessage,
  type RequestMessage,
} from "../message/message.js";
import { isStreamed, isThenable, observed, promised, type AnyIterable } from "../base/promises.js";
import { minuteCount, rateLimit } from "../base/rate.js";
import { PolicyViolation } from "../message/close-codes.js";

/**
 * The incoming calls of one connection, and the slot of each response that is not in a batch. Its tables are made when first needed: most
 * peers of a server are idle.
 */
export class IncomingCalls implements Slot {
  declare readonly connection: Connection;
  /** What counts these calls against the limits: the calls of the connection that this connection is a part of, or these themselves. */
  counter: IncomingCalls = this;
  /** How many streams the other side reads, those of the parts included. */
  streams = 0;
  /** Called when the last handler that returned a promise has ended. */
  onIdle: (() => void) | undefined = undefined;
  /** Calls whose handler has not returned, or whose promise is not settled. */
  #calls: List<IncomingCall> | undefined;
  /** How many requests, and how many notifications, wait for the promise of their handler, those of the parts included. */
  #requests = 0;
  #notifications = 0;
  /** Errors with id null that were sent, less those received since: an implementation may answer each with one. Never below 0. */
  namelessErrors = 0;
  /** Counts one message. Returns false if too many came. `undefined` if there is no such limit. */
  readonly takeRate: (() => boolean) | undefined;
  /** Made with the first malformed message. */
  #countMalformed: (() => number) | undefined;
  /** The handlers that this peer added to those of its config. */
  #added: Map<string, AnyHandler> | undefined;

  /** `previous`: the calls of the connection that this one follows, whose added handlers stay. */
  constructor(connection: Connection, previous?: IncomingCalls) {
    this.connection = connection;
    if (previous !== undefined) this.#added = previous.#added;
    const { maxMessagesPerSecond } = connection.config.limits;
    this.takeRate = maxMessagesPerSecond === Infinity ? undefined : rateLimit(maxMessagesPerSecond);
  }

  /** How many calls wait for the promise of their handler. A part counts none: its `counter` does. */
  get running(): number {
    return this.#requests + this.#notifications;
  }

  /** Adds a handler for this peer only, over one in `methods`. Returns a function that removes the handler. */
  handle(method: string, handler: AnyHandler): () => void {
    const added = (this.#added ??= new Map());
    if (added.has(method)) throw new Error(`\`${method}\` has a handler already`);
    added.set(method, handler);
    return () => {
      if (added.get(method) === handler) added.delete(method);
    };
  }

  /** Starts a request or a notification, or refuses it. The response to a request goes into `slot`. */
  receive(kind: Kind, message: unknown, slot: Slot): void {
    const { connection, counter } = this;
    const { config, counts } = connection;
    const { maxInFlight, maxMessagesPerSecond } = config.limits;
    if (kind === "invalid") {
      // An id without anything else may be that of a response: an error under it could settle a call of the other side.
      const echoedId = isObject(message) && isLoneId(message) ? null : idOf(message);
      return this.refuse(echoedId, ErrorCode.InvalidRequest, "Invalid Request", slot);
    }
    // A notification is never answered: what goes wrong is reported here (section 4.1).
    const { id, method, params } = message as { id?: Id; method: string; params?: unknown };
    const isRequest = id !== undefined;
    if (isRequest) counts.requestsReceived++;
    else counts.notificationsReceived++;
    if (counter.takeRate?.() === false) {
      counts.refusedRate++;
      const error = { code: ErrorCode.Busy, message: "Too many messages", data: { maxMessagesPerSecond } };
      if (isRequest) this.respond(id, encodeError(id, error), slot);
      return;
    }
    const handler = this.#handlerOf(method);
    if (config.protocolMethods.has(method) && (handler === undefined || !isRequest)) {
      const isCancel = !isRequest && method === config.dialect.cancel.method;
      const isTaken = this.#receiveProtocol(message as RequestMessage, isCancel, slot);
      // An application that handles cancels gets them too. What a feature has taken is no concern of a handler.
      if (isTaken && !(isCancel && handler !== undefined)) return;
    }
    // Counted apart, so that a notification that some request waits for is not refused because of it.
    if ((isRequest ? counter.#requests : counter.#notifications) >= maxInFlight) {
      counts.refusedBusy++;
      if (isRequest) this.respond(id, encodeError(id, BUSY), slot);
      else connection.reportToListeners(() => new RpcError(BUSY.code, BUSY.message), { method, id });
    } else if (isRequest && handler === undefined && config.fallback === undefined && config.around === undefined) {
      // Refused without a context and an RpcError, whose stack is expensive: the other side can repeat this.
      this.respond(id, encodeError(id, METHOD_NOT_FOUND), slot);
    } else this.#start(new IncomingCall(id, method, params, slot), handler);
  }

  /** Returns whether a cancel, or a message of a feature, was taken. The dialect of an application may throw for any params. */
  #receiveProtocol(message: RequestMessage | NotificationMessage, isCancel: boolean, slot: Slot): boolean {
    const { connection } = this;
    try {
      if (!isCancel) return connection.parts.first("receive", message, slot) !== undefined;
      this.#cancel(message.params);
      return true;
    } catch (error) {
      connection.report(error, { method: message.method, id: idOf(message) ?? undefined });
      return true;
    }
  }

  #handlerOf(method: string): AnyHandler | undefined {
    return this.#added?.get(method) ?? this.connection.config.methods.get(method);
  }

  /** Runs the handler, and answers at once unless it returns a promise. */
  #start(call: IncomingCall, handler: AnyHandler | undefined): void {
    const { config } = this.connection;
    const context = new CallContext(call, this.connection);
    // In the table before the handler runs: a handler may close its own peer.
    (this.#calls ??= new List()).add(call);
    let result: unknown;
    try {
      if (config.around !== undefined) result = this.#runAround(call, context);
      else if (handler !== undefined && config.checkParams === undefined) result = handler(call.params, context);
      else result = this.#run(call, context, call.params);
      if (config.checks !== undefined) result = config.checks.checkSent("result", call.method, result);
      if (isThenable(result)) return this.#await(call, result, encodeReturned);
    } catch (error) {
      unlink(call);
      return this.#answer(call, encodeFailure, error);
    }
    unlink(call);
    this.#answer(call, encodeReturned, result);
  }

  #runAround(call: IncomingCall, context: CallContext): unknown {
    const { method, id, params } = call;
    const record = { direction: "incoming", peer: context.peer, method, id, params, context };
    const next = (): Promise<unknown> => promised(() => this.#run(call, context, record.params));
    return this.connection.config.around!(record, next);
  }

  #run(call: IncomingCall, context: CallContext, params: unknown): unknown {
    const { method } = call;
    const { fallback, checkParams } = this.connection.config;
    // Section 8: names that begin with `rpc.` belong to the protocol, so no fallback may answer them.
    const handler = this.#handlerOf(method) ?? (isInternalMethod(method) ? undefined : fallback);
    if (handler !== undefined) {
      if (checkParams === undefined) return handler(params, context);
      return checkParams(method, params, (checked) => handler(checked, context));
    }
    if (call.id !== undefined) throw new RpcError(METHOD_NOT_FOUND.code, METHOD_NOT_FOUND.message);
    this.connection.emit("notification", method, params);
    return undefined;
  }

  /** Waits for the promise of a handler or of its stream. Then answers with its value by `encode`, or with its error. */
  #await<T>(call: IncomingCall, result: PromiseLike<T>, encode: Encode<T>): void {
    call.frame ??= this.connection.transport.currentFrame;
    call.frame?.keep();
    call.awaited = result;
    this.#count(call, 1);
    try {
      // An async function would make one more promise for each call.
      Promise.resolve(result).then(
        (value) => this.#settle(call, result, encode, value),
        (error: unknown) => this.#settle(call, result, encodeFailure, error),
      );
    } catch (error) {
      // A promise with a `then` of its own that throws.
      this.#settle(call, result, encodeFailure, error);
    }
  }

  /**
   * Ends the wait for a promise, which has settled. A promise with a `then` of its own may settle several times: only its first
   * outcome counts.
   */
  #settle<T>(call: IncomingCall, promise: PromiseLike<unknown>, encode: Encode<T>, outcome: T): void {
    if (call.awaited !== promise) return;
    call.awaited = undefined;
    unlink(call);
    this.#count(call, -1);
    call.frame?.drop();
    this.#answer(call, encode, outcome);
    if (this.onIdle !== undefined && this.running === 0) this.onIdle();
  }

  /**
   * Sends the response that `encode` returns for `outcome`, or the error that it throws. Sends nothing for `undefined`, and in some dialects
   * if the call was cancelled.
   */
  #answer<T>(call: IncomingCall, encode: Encode<T>, outcome: T): void {
    let isResult = encode !== encodeFailure;
    let text: MessageText | undefined;
    try {
      text = encode(this, call, outcome);
    } catch (error) {
      isResult = false;
      text = encodeFailure(this, call, error);
    }
    if (text === undefined) return;
    const { slot, abortCause, listeners } = call;
    const isUnwanted = abortCause !== undefined && !this.connection.config.dialect.cancel.isAnswered;
    call.state = "answered";
    call.params = undefined;
    const onSent = listeners && ((isWhole: boolean) => listeners.forEach((listener) => listener(isWhole)));
    if (isUnwanted || !isResult) onSent?.(false);
    if (isUnwanted) slot.leaveOut();
    else this.respond(call.id!, text, slot, isResult ? onSent : undefined);
  }

  #count(call: IncomingCall, by: number): void {
    const { counter } = this;
    if (call.id === undefined) counter.#notifications += by;
    else counter.#requests += by;
  }

  /** Answers a call with the stream that its handler returned. The call runs until the first values are there. */
  stream(call: IncomingCall, source: AnyIterable): undefined {
    const json = this.connection.parts.get("streams").serve(source, call);
    this.#calls!.add(call);
    this.#await(call, json, encodeStream);
  }

  /** Aborts the calls that a cancel names: several if the caller has used an id twice. Ignores an unknown id. */
  #cancel(params: unknown): void {
    const { config, madeParts } = this.connection;
    const id = config.dialect.cancel.idOf(params);
    if (id === undefined) return;
    let error: Error | undefined;
    const cause: AbortCause = {
      // Made when a handler or a stream first reads it: an AbortError records its stack, which takes several microseconds.
      get reason() {
        return (error ??= new DOMException("the caller cancelled", "AbortError"));
      },
    };
    // Compares the ids of all calls: a Map of calls would be expensive for every call (`list.ts`).
    const named = this.#calls?.toArray((call) => call.id === id && !isExempt(config.dialect, call.method));
    named?.forEach((call) => call.abort(cause));
    madeParts?.each("cancelled", id, cause);
  }

  /** Aborts every call that runs: the connection has ended. */
  abortAll(cause: AbortCause): void {
    this.#calls?.toArray().forEach((call) => call.abort(cause));
  }

  /**
   * Sends a response, or -32008 in its place if it is too long. `onSent` is called once the response was sent or will not be
   * sent, with whether the caller gets it as it is.
   */
  respond(id: Id, encoded: MessageText, slot: Slot, onSent?: (isWhole: boolean) => void): void {
    const text = sentForm(encoded, this.connection.transport.takesBytes);
    const isNameless = id === null && isNamelessError(text);
    if (isNameless) this.namelessErrors++;
    if (!slot.reserveBytes(text)) onSent?.(false);
    // The link has refused it if it is too long for the other side.
    else if (slot.put(text, onSent) || !exceeds(text, this.maxReplyBytes)) return;
    if (id === null && !isNameless) this.namelessErrors++;
    slot.put(encodeTooLarge(id, this.maxReplyBytes));
  }

  /** Refuses a malformed message, and counts it. Ends the connection if there were too many. */
  refuse(id: Id, code: number, message: string, slot: Slot): void {
    const { connection, counter } = this;
    connection.counts.malformed++;
    const { maxMalformedPerMinute } = connection.config.limits;
    const count = (counter.#countMalformed ??= minuteCount())();
    if (count <= maxMalformedPerMinute) this.putError(id, { code, message }, slot);
    else
      counter.connection.end({
        code: PolicyViolation,
        reason: `more than ${maxMalformedPerMinute} malformed messages in a minute`,
      });
  }

  /** Puts an error into `slot`, whatever its length. */
  putError(id: Id, error: ErrorObject, slot: Slot): void {
    if (id === null) this.namelessErrors++;
    slot.put(encodeError(id, error));
  }

  /** Longest response, or reply to a batch, in bytes of UTF-8. */
  get maxReplyBytes(): number {
    const { config, transport } = this.connection;
    return Math.min(config.limits.maxReplyBytes, transport.maxMessageBytes ?? Infinity);
  }

  /** Returns whether a response that is not in a batch is short enough for this side. A link refuses what is too long for the other side. */
  reserveBytes(text: MessageText): boolean {
    return !exceeds(text, this.connection.config.limits.maxReplyBytes);
  }

  /** Sends a response that is not in a batch. */
  put(text: MessageText, onSent?: (isWhole: boolean) => void): boolean {
    const { connection } = this;
    const isTaken = connection.flow.send(text);
    onSent?.(isTaken && connection.ended === undefined);
    return isTaken;
  }

  /** What is sent by itself needs no note of what is not answered. */
  leaveOut(): void {}

  /**
   * Returns the error that answers a call to `method`. It says what an RpcError of this side says, whose cause is reported. Anything
   * else may hold secrets, so it is reported here, and answered with what the hook says or with -32603.
   */
  encodeFailure(id: Id, method: string, error: unknown): MessageText {
    let reason = error;
    try {
      if (error instanceof RpcError && !isReceived(error)) {
        const text = encodeError(id, error);
        // Its cause is not sent, so that it is reported here or nowhere.
        if (error.cause !== undefined) this.reportFailure(id, method, error);
        return text;
      }
    } catch (failure) {
      // The error itself cannot be examined or encoded: a hostile Proxy, cyclic data.
      reason = failure;
    }
    this.reportFailure(id, method, reason);
    return encodeError(
      id,
      this.connection.config.hooks.answerFor?.(reason) ?? { code: ErrorCode.InternalError, message: "Internal error" },
    );
  }

  /** Reports what a call to `method` failed with. For an RpcError that was received, reports an error that has it as its cause. */
  reportFailure(id: Id | undefined, method: string, error: unknown): void {
    const message = `a call by "${method}" failed`;
    const failure = isReceived(error) ? new Error(message, { cause: error }) : error;
    // The other side chooses the names of methods that are not served, so all of them are reported under one.
    const isServed = this.#handlerOf(method) !== undefined || this.connection.config.protocolMethods.has(method);
    this.connection.report(failure, { method, id }, isServed ? method : "fallback or around");
  }
}

/** Returns the response to a call for what its handler returned or failed with; `undefined` if there is none, or if it follows. */
type Encode<T> = (calls: IncomingCalls, call: IncomingCall, outcome: T) => MessageText | undefined;

/** Returns the response with what a handler returned. */
function encodeReturned(calls: IncomingCalls, call: IncomingCall, result: unknown): MessageText | undefined {
  const { id, method } = call;
  if (id === undefined) return discard(calls, call, result);
  try {
    if (isStreamed(result)) return calls.stream(call, result);
    return calls.connection.madeParts?.first("encode", call, result) ?? encodeResult(id, result);
  } catch (error) {
    // The stack has no line of the application, so the error names the method.
    throw error instanceof TypeError
      ? new TypeError(`The result of "${method}": ${error.message}`, { cause: error })
      : error;
  }
}

/** Drops a result that is not sent. Stops the streams in it, which would wait for a reader and hold their sources. */
export function discard({ connection }: IncomingCalls, call: IncomingCall, result: unknown): undefined {
  try {
    if (isStreamed(result)) void observed(connection.parts.get("streams").serve(result, call));
    else connection.madeParts?.first("encode", call, result);
  } catch {
    // The result cannot be encoded, or was a stream and is stopped. No caller waits for it.
  }
}

/** Returns the response with a stream, for which `encode` returns the JSON. */
function encodeStream(_calls: IncomingCalls, call: IncomingCall, encode: () => MessageText): MessageText {
  return encodeRawResult(call.id!, encode());
}

/** Returns the response with an error. Reports what the handler of a notification fails with. */
function encodeFailure(calls: IncomingCalls, call: IncomingCall, error: unknown): MessageText | undefined {
  const { id, method, abortCause } = call;
  if (id !== undefined && abortCause === undefined) return calls.encodeFailure(id, method, error);
  // An aborted handler that stops does what its caller asked for, so it did not fail.
  if (abortCause === undefined || !isAbort(error, abortCause.reason)) calls.reportFailure(id, method, error);
  return id === undefined ? undefined : encodeError(id, CANCELLED);
}

const CANCELLED = { code: ErrorCode.RequestCancelled, message: "Request cancelled" };
const BUSY = { code: ErrorCode.Busy, message: "Server is busy" };
const METHOD_NOT_FOUND = { code: ErrorCode.MethodNotFound, message: "Method not found" };

let readContext: (context: object) => { call: IncomingCall; connection: Connection } | undefined;

/** The `context` that a handler gets. Its members survive destructuring. */
export class CallContext {
  declare readonly peer: unknown;
  declare readonly method: string;
  /** `undefined` for a notification. */
  declare readonly id: Id | undefined;
  readonly #call: IncomingCall;
  readonly #connection: Connection;

  constructor(call: IncomingCall, connection: Connection) {
    this.peer = connection.peer;
    this.method = call.method;
    this.id = call.id;
    this.#call = call;
    this.#connection = connection;
  }

  /** Aborts when the caller no longer waits for the response, with the reason. */
  get signal(): AbortSignal {
    return this.#call.signal;
  }

  /**
   * Reports progress to a caller that asked for it. Does nothing for another caller, and after the response. Throws a `TypeError` if
   * the peer does not use the feature `progress`.
   */
  get progress(): (value: unknown) => void {
    return this.#connection.parts.get("progress").reporterOf(this.#call);
  }

  /** The server that the peer is of, if it is of one. */
  get server(): unknown {
    return this.#connection.config.hooks.server;
  }

  static {
    readContext = (context) =>
      #call in context ? { call: context.#call, connection: context.#connection } : undefined;
  }
}

/** Returns the call of a handler's context, and its connection; `undefined` for any other value. */
export function callOf(context: unknown): ReturnType<typeof readContext> {
  return typeof context === "object" && context !== null ? readContext(context) : undefined;
}
