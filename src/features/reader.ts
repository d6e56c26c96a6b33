/** The reading end of a stream: requests more values before it has consumed the last, which hides the round trip. */
import { isObject, member } from "../core/message.js";
import * as ErrorCode from "../core/codes.js";
import { ConnectionLostError, ProtocolError, RpcError } from "../core/errors.js";
import { observed } from "../core/promises.js";
import type { Frame } from "../core/transport.js";

/** The stream of a reader, on the other side. */
export interface Source {
  /** The method in errors of reading: that of the call that opened the stream, if it is known. */
  readonly method: string;
  /** Returns the stream as it stands in a result or in params. */
  open(): Promise<unknown>;
  /** Cancels `open`. */
  abandon(reason: unknown): void;
  /** Requests more values. */
  next(token: unknown): Promise<unknown>;
  /** Stops the stream on the other side. */
  abort(token: unknown): void;
  /** Counts the frame that a reply came in as kept, until `drop`. Returns it; `undefined` where frames are not counted. */
  keep(reply: unknown): Frame | undefined;
  drop(frame: Frame | undefined): void;
}

/** The values of one reply, and the token for more; `undefined` if these are the last. */
interface Batch {
  readonly values: unknown[];
  readonly token: unknown;
}

/** Reads one stream, once. Never holds more than the values of two replies. */
export class StreamReader implements AsyncIterableIterator<unknown> {
  readonly #source: Source;
  readonly #signal: AbortSignal | undefined;
  #isTaken = false;
  #hasBegun = false;
  #values: unknown[] = [];
  #consumed = 0;
  /** The frames of the kept replies: of the values being read, and of those that follow. */
  readonly #frames: (Frame | undefined)[] = [];
  /** The pending reply: to `open` at first. */
  #ahead: Promise<Batch> | undefined;
  /** Whether the token is still unknown. */
  #isOpening: boolean;
  /** The token, while the other side holds the stream for this reader. */
  #held: unknown;
  #end: { error?: unknown } | undefined;
  /** The last `next()`, for which the following one waits. */
  #turn: Promise<unknown> = Promise.resolve();
  #wake: (() => void) | undefined;

  /** `held`: the token of a stream that came in a message. */
  constructor(source: Source, signal: AbortSignal | undefined, held?: unknown) {
    this.#source = source;
    this.#signal = signal;
    this.#held = held;
    this.#isOpening = held === undefined;
  }

  [Symbol.asyncIterator](): this {
    if (this.#isTaken) throw new Error("a stream is read once: its values are gone");
    this.#isTaken = true;
    return this;
  }

  next(): Promise<IteratorResult<unknown>> {
    const result = this.#turn.then(() => this.#pull());
    this.#turn = result.catch(() => {});
    return result;
  }

  /** Ends the stream at once, also while a `next()` waits. */
  async return(value?: unknown): Promise<IteratorResult<unknown>> {
    this.#stop({}, new Error("the stream is no longer read"));
    return { done: true, value };
  }

  async #pull(): Promise<IteratorResult<unknown>> {
    if (!this.#hasBegun && this.#end === undefined) this.#begin();
    for (;;) {
      if (this.#end !== undefined) return this.#over(this.#end);
      if (this.#consumed < this.#values.length) return { done: false, value: this.#values[this.#consumed++] };
      if (this.#ahead === undefined) this.#stop({}, undefined);
      else await this.#arrival(this.#ahead);
    }
  }

  /** Throws a failure once. After that, returns the end. */
  #over(end: { error?: unknown }): IteratorResult<unknown> {
    this.#end = {};
    if ("error" in end) throw end.error;
    return { done: true, value: undefined };
  }

  #begin(): void {
    this.#hasBegun = true;
    if (this.#signal?.aborted) return this.#onAbort();
    this.#signal?.addEventListener("abort", this.#onAbort);
    this.#ahead = observed(this.#open());
  }

  readonly #onAbort = (): void => this.#stop({ error: this.#signal!.reason }, this.#signal!.reason);

  /** Waits for the reply that is under way, or for the end, whichever is first. Then asks for the next reply. */
  async #arrival(ahead: Promise<Batch>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
      ahead.then(
        () => resolve(),
        () => resolve(),
      );
    });
    if (this.#end !== undefined) return;
    try {
      const { values, token } = await ahead;
      if (this.#frames.length > 1) this.#source.drop(this.#frames.shift());
      this.#values = values;
      this.#consumed = 0;
      this.#ahead = token === undefined ? undefined : observed(this.#more(token));
    } catch (error) {
      this.#stop({ error }, undefined);
    }
  }

  async #open(): Promise<Batch> {
    const stream = this.#kept(await this.#source.open());
    if (this.#isOpening) {
      this.#isOpening = false;
      this.#held = tokenOf(stream);
      // The reader stopped while the reply was on its way through the promises.
      if (this.#end !== undefined) this.#letGo();
    }
    return readOpening(stream);
  }

  async #more(token: unknown): Promise<Batch> {
    try {
      const batch = readMore(this.#kept(await this.#source.next(token)), token);
      this.#held = batch.token;
      return batch;
    } catch (error) {
      if (freesToken(error)) this.#held = undefined;
      throw ofOpeningCall(error, this.#source.method);
    }
  }

  #stop(end: { error?: unknown }, reason: unknown): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#values = [];
    for (const frame of this.#frames.splice(0)) this.#source.drop(frame);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    if (this.#isOpening) this.#source.abandon(reason);
    else this.#letGo();
    this.#wake?.();
  }

  /** Counts a reply as kept, unless the reader has stopped. */
  #kept(reply: unknown): unknown {
    if (this.#end === undefined) this.#frames.push(this.#source.keep(reply));
    return reply;
  }

  #letGo(): void {
    if (this.#held !== undefined) this.#source.abort(this.#held);
  }
}

/**
 * Returns what reading rejects with when a request for more values fails with `error`. The call that opened the stream has
 * left, so it may have run, even if the request for more was never sent.
 */
function ofOpeningCall(error: unknown, method: string): unknown {
  if (error instanceof ConnectionLostError) return new ConnectionLostError(method, "unknown", error.cause);
  if (error instanceof RpcError) error.method = method;
  return error;
}

/** Whether the other side no longer holds the stream. A malformed reply frees nothing, nor does a refusal for too many calls. */
function freesToken(error: unknown): boolean {
  return !(error instanceof ProtocolError || (error instanceof RpcError && error.code === ErrorCode.Busy));
}

/** Returns the token of a stream as it stands on the wire; `undefined` if the other side holds no more values. */
export function tokenOf(stream: unknown): unknown {
  return member(stream, "token") ?? undefined;
}

/** Reads a stream as it stands on the wire: `{ token }`, `{ token, values }`, `{ values }` or `{}`. */
function readOpening(stream: unknown): Batch {
  if (!isObject(stream)) {
    throw new ProtocolError("a stream must be an object, with `token` where there is more to come", stream);
  }
  const { values = [] } = stream as { values?: unknown };
  if (!Array.isArray(values)) throw new ProtocolError("the `values` of a stream must be an array", stream);
  return { values, token: tokenOf(stream) };
}

function readMore(reply: unknown, token: unknown): Batch {
  const { values, finished } = (reply ?? {}) as { values?: unknown; finished?: unknown };
  if (!Array.isArray(values) || typeof finished !== "boolean" || (values.length === 0 && !finished)) {
    throw new ProtocolError("more of a stream must have `values`, or a `finished` that is true", reply);
  }
  return { values, token: finished ? undefined : token };
}
