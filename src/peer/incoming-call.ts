/** One call that the other side made, and where its response goes. */
import type { MessageText } from "../message/codec.js";
import type { Linked } from "../base/list.js";
import type { Id } from "../message/message.js";
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
  listeners: ((isResult: boolean) => void)[] | undefined = undefined;

  constructor(id: Id | undefined, method: string, params: unknown, slot: Slot) {
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

  /** Aborts the handler now, or when it first reads `signal`. Also aborts a stream that is the result of an answered call. */
  abort(cause: AbortCause): void {
    if (this.abortCause !== undefined) return;
    this.abortCause = cause;
    this.#controller?.abort(cause.reason);
  }
}

/** Whether the caller of a call waits for the response. */
export function isAwaited({ state, abortCause }: IncomingCall): boolean {
  return state === "running" && abortCause === undefined;
}

/**
 * Calls `listener` once: with true right after the result of the handler of `call` was handed to the connection (in a batch, with the
 * reply to all of it), with false when an error or nothing is answered, or the connection has ended. Never calls it for a
 * notification. Throws if the call is answered already.
 */
export function onReply(call: IncomingCall, listener: (isResult: boolean) => void): void {
  if (call.state === "answered") throw new Error(`"${call.method}" is answered already`);
  (call.listeners ??= []).push(listener);
}
