/** What a handler is told about its call. */
import type { Conventions } from "./conventions.js";
import type { Id } from "./message.js";

/** What a context needs of its connection. */
interface Line {
  readonly peer: unknown;
  readonly conventions: Conventions;
  readonly answersOnly: Error | undefined;
  afterRead(then: () => void): boolean;
}

/** Why a call is aborted. An error records a stack, which is expensive, so `reason` may make it when it is first read. */
export interface AbortCause {
  readonly reason: unknown;
}

/**
 * The `context` of one incoming call. An AbortController a call is dear, so `signal` and `progress` are made when they are
 * read; as accessors they survive destructuring.
 */
export class CallContext {
  readonly peer: unknown;
  readonly method: string;
  /** `undefined` for a notification. */
  readonly id: Id | undefined;
  readonly #line: Line;
  /** `undefined` once the answer is given: then nobody can report progress, and a stream may live much longer. */
  #params: unknown;
  #isAnswered = false;
  #controller: AbortController | undefined;
  #abortCause: AbortCause | undefined;
  #onReply: ((isResult: boolean) => void)[] | undefined;

  constructor(line: Line, method: string, id: Id | undefined, params: unknown) {
    this.peer = line.peer;
    this.method = method;
    this.id = id;
    this.#line = line;
    this.#params = params;
  }

  /** Aborts when nobody waits for the answer any more, with the reason. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#abortCause !== undefined) this.#controller.abort(this.#abortCause.reason);
    }
    return this.#controller.signal;
  }

  /** Reports progress to a caller that asked for it; to one that did not, and after the answer, it does nothing. */
  get progress(): (value: unknown) => void {
    return this.#line.conventions.reporter(this, this.#params);
  }

  /** Tells the handler, now or when it first reads `signal`. */
  static abort(context: CallContext, cause: AbortCause): void {
    if (context.#abortCause !== undefined) return;
    context.#abortCause = cause;
    context.#controller?.abort(cause.reason);
  }

  /** Why nobody waits any more; `undefined` while somebody does. */
  static abortCause(context: CallContext): AbortCause | undefined {
    return context.#abortCause;
  }

  /**
   * Notes that the answer is given. For a result, returns what is to be told when the reply has left, if anything is: whether
   * the result is in it.
   */
  static answer(context: CallContext, isResult: boolean): ((isResult: boolean) => void) | undefined {
    context.#isAnswered = true;
    context.#params = undefined;
    const listeners = context.#onReply;
    if (listeners === undefined) return undefined;
    const tell = (isInReply: boolean): void => listeners.forEach((listener) => listener(isInReply));
    if (isResult) return tell;
    tell(false);
    return undefined;
  }

  /**
   * Calls `listener` once: with true right after the handler's result was handed to the connection (in a batch, with the
   * reply to all of it), with false when an error or nothing is answered, or the connection has ended. Never for a notification.
   * Throws when the answer is given already.
   */
  static onReply(context: CallContext, listener: (isResult: boolean) => void): void {
    if (context.#isAnswered) throw new Error(`"${context.method}" is answered already`);
    (context.#onReply ??= []).push(listener);
  }

  /** Why nothing but the answer can be sent to the caller, where that is so. */
  static answersOnly(context: CallContext): Error | undefined {
    return context.#line.answersOnly;
  }

  /** As `Transport.afterRead`; returns false also where the transport has no such function. */
  static afterRead(context: CallContext, then: () => void): boolean {
    return context.#line.afterRead(then);
  }

  /** Whether somebody waits for the answer. */
  static isAwaited(context: CallContext): boolean {
    return !context.#isAnswered && context.#abortCause === undefined;
  }
}
