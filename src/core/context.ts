/** What a handler is told about its call. */
import type { Id } from "./message.js";

const noProgress = (): void => {};

/**
 * The `context` of one incoming call. An AbortController a call is dear, so `signal` is made when it is first read; as an
 * accessor it survives destructuring.
 */
export class CallContext {
  readonly peer: unknown;
  readonly method: string;
  /** `undefined` for a notification. */
  readonly id: Id | undefined;
  #controller: AbortController | undefined;
  #abortReason: { reason: unknown } | undefined;

  constructor(peer: unknown, method: string, id: Id | undefined) {
    this.peer = peer;
    this.method = method;
    this.id = id;
  }

  /** Aborts when nobody waits for the answer any more, with the reason. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#abortReason !== undefined) this.#controller.abort(this.#abortReason.reason);
    }
    return this.#controller.signal;
  }

  /** Reports progress to a caller that asked for it; to one that did not, it does nothing. */
  get progress(): (value: unknown) => void {
    return noProgress;
  }

  /** Tells the handler, now or when it first reads `signal`. */
  static abort(context: CallContext, reason: unknown): void {
    context.#abortReason ??= { reason };
    context.#controller?.abort(reason);
  }
}
