/** One call that the other side made, and the context that its handler gets. */
import { encodeError, encodeRawResult, encodeResult, type MessageText } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import { isAbort } from "../message/errors.js";
import type { IncomingCalls } from "./incoming-calls.js";
import type { Linked } from "../base/list.js";
import type { Id } from "../message/message.js";
import { isStreamed, observed } from "../base/promises.js";
import type { Frame } from "../message/transport.js";

/** Where one response goes: to the connection, to its place in the reply to a batch, or to an HTTP response. */
export interface Slot {
  /** Whether it is in the reply to a batch. @internal */
  readonly isInBatch?: boolean;
  /** Reserves the bytes of a response, which must then be put. Returns false if they do not fit. */
  reserveBytes(text: MessageText): boolean;
  /**
   * Takes the response. Returns false if it will not be sent. `onSent` is called once: with true when what holds the response was
   * sent, with false if that will not be sent or the connection has ended. A peer whose connection has ended may have another.
   */
  put(text: MessageText, onSent?: (isWhole: boolean) => void): boolean;
  /** Notes that no response will come. */
  leaveOut(): void;
}

/** Why a call is aborted. An error records a stack, which is expensive, so `reason` may make it when it is first read. */
export interface AbortCause {
  readonly reason: unknown;
}

/** One incoming request or notification, from the start of its handler to its response. */
export class IncomingCall implements Linked {
  /** The links of the list of calls that run. */
  before: Linked | undefined = undefined;
  after: Linked | undefined = undefined;
  declare readonly calls: IncomingCalls;
  /** `undefined` for a notification. */
  declare readonly id: Id | undefined;
  declare readonly method: string;
  /** `undefined` once the call is answered: a stream that is its result may live much longer. */
  declare params: unknown;
  /** Where the response goes. */
  declare readonly slot: Slot;
  /** "answered" from right before the response is sent, or omitted. A notification stays "running". */
  state: "running" | "answered" = "running";
  /** Set when the caller no longer waits: it cancelled, or the connection ended. */
  abortCause: AbortCause | undefined = undefined;
  /** The promise, of the handler or of its stream, that the call waits for. */
  awaited: PromiseLike<unknown> | undefined = undefined;
  /**
   * The frame that the call came in. Set with the first wait for a promise, and never cleared. Until then, the call came in the
   * frame that is received at present.
   */
  frame: Frame | undefined = undefined;
  /** Made when the handler first reads `signal`. */
  #controller: AbortController | undefined;
  /** Called as `onReply` says. */
  #listeners: ((isResult: boolean) => void)[] | undefined;

  constructor(calls: IncomingCalls, id: Id | undefined, method: string, params: unknown, slot: Slot) {
    this.calls = calls;
    this.id = id;
    this.method = method;
    this.params = params;
    this.slot = slot;
  }

  /** Aborts when the caller no longer waits. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.abortCause !== undefined) this.#controller.abort(this.abortCause.reason);
    }
    return this.#controller.signal;
  }

  /** Whether the caller waits for the response. */
  get isAwaited(): boolean {
    return this.state === "running" && this.abortCause === undefined;
  }

  /** Aborts the handler now, or when it first reads `signal`. Also aborts a stream that is the result of an answered call. */
  abort(cause: AbortCause): void {
    if (this.abortCause !== undefined) return;
    this.abortCause = cause;
    this.#controller?.abort(cause.reason);
  }

  /**
   * Sends the response that `encode` returns for `outcome`, or the error that it throws. Sends nothing for `undefined`, and in some dialects
   * if the call was cancelled.
   */
  answer<T>(encode: Encode<T>, outcome: T): void {
    let isResult = encode !== encodeFailure;
    let text: MessageText | undefined;
    try {
      text = encode(this, outcome);
    } catch (error) {
      isResult = false;
      text = encodeFailure(this, error);
    }
    if (text === undefined) return;
    const { calls, slot, abortCause } = this;
    const listeners = this.#listeners;
    const isUnwanted = abortCause !== undefined && !calls.connection.config.dialect.cancel.isAnswered;
    this.state = "answered";
    this.params = undefined;
    const onSent = listeners && ((isWhole: boolean) => listeners.forEach((listener) => listener(isWhole)));
    if (isUnwanted || !isResult) onSent?.(false);
    if (isUnwanted) slot.leaveOut();
    else calls.reply(this.id!, text, slot, isResult ? onSent : undefined);
  }

  /**
   * Calls `listener` once: with true right after the handler's result was handed to the connection (in a batch, with the
   * reply to all of it), with false when an error or nothing is answered, or the connection has ended. Never calls it for a
   * notification. Throws if the call is answered already.
   */
  onReply(listener: (isResult: boolean) => void): void {
    if (this.state === "answered") throw new Error(`"${this.method}" is answered already`);
    (this.#listeners ??= []).push(listener);
  }
}

/** Returns the response to a call for what its handler returned or failed with; `undefined` if there is none, or if it follows. */
export type Encode<T> = (call: IncomingCall, outcome: T) => MessageText | undefined;

/** Returns the response with what a handler returned. */
export function encodeReturned(call: IncomingCall, result: unknown): MessageText | undefined {
  const { id, method, calls } = call;
  if (id === undefined) return discard(call, result);
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

/** Drops the result of a notification. Stops the streams in it, which would wait for a reader and hold their sources. */
function discard(call: IncomingCall, result: unknown): undefined {
  const { connection } = call.calls;
  try {
    if (isStreamed(result)) void observed(connection.parts.get("streams").serve(result, call));
    else connection.madeParts?.first("encode", call, result);
  } catch {
    // The result cannot be encoded, or was a stream and is stopped. No caller waits for it.
  }
}

/** Returns the response with a stream, for which `encode` returns the JSON. */
export function encodeStream(call: IncomingCall, encode: () => MessageText): MessageText {
  return encodeRawResult(call.id!, encode());
}

/** Returns the response with an error. Reports what the handler of a notification fails with. */
export function encodeFailure(
  { id, method, calls, abortCause }: IncomingCall,
  error: unknown,
): MessageText | undefined {
  if (id !== undefined && abortCause === undefined) return calls.encodeFailure(id, method, error);
  // An aborted handler that stops does what its caller asked for, so it did not fail.
  if (abortCause === undefined || !isAbort(error, abortCause.reason)) calls.reportFailure(id, method, error);
  return id === undefined ? undefined : encodeError(id, CANCELLED);
}

const CANCELLED = { code: ErrorCode.RequestCancelled, message: "Request cancelled" };

let readCall: (context: object) => IncomingCall | undefined;

/** The `context` that a handler gets. Its members survive destructuring. */
export class CallContext {
  declare readonly peer: unknown;
  declare readonly method: string;
  /** `undefined` for a notification. */
  declare readonly id: Id | undefined;
  readonly #call: IncomingCall;

  constructor(call: IncomingCall) {
    this.peer = call.calls.connection.peer;
    this.method = call.method;
    this.id = call.id;
    this.#call = call;
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
    return this.#call.calls.connection.parts.get("progress").reporterOf(this.#call);
  }

  static {
    readCall = (context) => (#call in context ? context.#call : undefined);
  }
}

/** Returns the call of a handler's context; `undefined` for any other value. */
export function callOf(context: unknown): IncomingCall | undefined {
  return typeof context === "object" && context !== null ? readCall(context) : undefined;
}
