/** The end of a stream that reads: asks for the next values before it has eaten the last, so that the round trip is hidden. */
import { ProtocolError } from "../core/errors.js";
import { observed } from "../core/promises.js";

/** How a reader reaches its stream. */
export interface Source {
  /** Answers the stream as it stands in a result or in params. */
  open(): Promise<unknown>;
  /** Gives up `open`. */
  abandon(reason: unknown): void;
  /** Asks for more. */
  next(token: unknown): Promise<unknown>;
  /** Says that nobody reads on. */
  abort(token: unknown): void;
}

/** Values that came in one reply, and the token that more can be had by; `undefined` when these are the last. */
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
  #eaten = 0;
  /** The reply that is under way: to `open` at first. */
  #ahead: Promise<Batch> | undefined;
  #isOpening = false;
  /** The token, while the other side holds the stream for us. */
  #held: unknown;
  #end: { error?: unknown } | undefined;
  /** The last `next()`: the one after it waits for it. */
  #turn: Promise<unknown> = Promise.resolve();
  #wake: (() => void) | undefined;

  constructor(source: Source, signal: AbortSignal | undefined) {
    this.#source = source;
    this.#signal = signal;
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

  /** Ends it at once, also while a `next()` waits. */
  async return(value?: unknown): Promise<IteratorResult<unknown>> {
    this.#stop({}, new Error("nobody reads the stream any more"));
    return { done: true, value };
  }

  async #pull(): Promise<IteratorResult<unknown>> {
    if (!this.#hasBegun && this.#end === undefined) this.#open();
    for (;;) {
      if (this.#end !== undefined) return this.#over(this.#end);
      if (this.#eaten < this.#values.length) return { done: false, value: this.#values[this.#eaten++] };
      if (this.#ahead === undefined) this.#stop({}, undefined);
      else await this.#arrival(this.#ahead);
    }
  }

  /** A failure is told once; whoever asks again is told that it is over. */
  #over(end: { error?: unknown }): IteratorResult<unknown> {
    this.#end = {};
    if ("error" in end) throw end.error;
    return { done: true, value: undefined };
  }

  #open(): void {
    this.#hasBegun = true;
    if (this.#signal?.aborted) return this.#onAbort();
    this.#signal?.addEventListener("abort", this.#onAbort);
    this.#isOpening = true;
    this.#ahead = this.#ask(this.#source.open(), readOpening);
  }

  readonly #onAbort = (): void => this.#stop({ error: this.#signal!.reason }, this.#signal!.reason);

  /** Waits for the reply that is under way, or for the end, whichever is first; and asks for the next. */
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
      this.#values = values;
      this.#eaten = 0;
      this.#ahead =
        token === undefined ? undefined : this.#ask(this.#source.next(token), (reply) => readMore(reply, token));
    } catch (error) {
      this.#stop({ error }, undefined);
    }
  }

  #ask(reply: Promise<unknown>, read: (reply: unknown) => Batch): Promise<Batch> {
    const batch = async (): Promise<Batch> => {
      try {
        const answer = await reply;
        const values = read(answer);
        this.#held = values.token;
        return values;
      } catch (error) {
        // An error frees the token where it came from. A reply that cannot be read frees nothing.
        if (!(error instanceof ProtocolError)) this.#held = undefined;
        throw error;
      } finally {
        this.#isOpening = false;
      }
    };
    return observed(batch());
  }

  #stop(end: { error?: unknown }, reason: unknown): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#values = [];
    this.#signal?.removeEventListener("abort", this.#onAbort);
    if (this.#isOpening) this.#source.abandon(reason);
    else if (this.#held !== undefined) this.#source.abort(this.#held);
    this.#wake?.();
  }
}

/** A stream as it stands on the wire: `{ token }`, `{ token, values }`, `{ values }` or `{}`. */
function readOpening(stream: unknown): Batch {
  if (typeof stream !== "object" || stream === null || Array.isArray(stream)) {
    throw new ProtocolError("a stream must be an object, with `token` where there is more to come", stream);
  }
  const { token, values = [] } = stream as { token?: unknown; values?: unknown };
  if (!Array.isArray(values)) throw new ProtocolError("the `values` of a stream must be an array", stream);
  return { values, token: token ?? undefined };
}

function readMore(reply: unknown, token: unknown): Batch {
  const { values, finished } = (reply ?? {}) as { values?: unknown; finished?: unknown };
  if (!Array.isArray(values) || typeof finished !== "boolean") {
    throw new ProtocolError("more of a stream must have an array `values` and a boolean `finished`", reply);
  }
  return { values, token: finished ? undefined : token };
}
