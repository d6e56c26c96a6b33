/** The producing end of a stream: reads an iterable a little ahead, and returns the values that are ready when asked. */
import { exceeds, stringify } from "../core/codec.js";
import { clearDeadline, setDeadline } from "../core/deadlines.js";
import * as ErrorCode from "../core/codes.js";
import { isAbort, RpcError } from "../core/errors.js";
import type { Connection } from "../core/connection.js";
import { VALUE_COST } from "../core/transport.js";

/** The most characters of JSON, and the most values, that are read ahead, which bounds the memory for a slow reader. */
const MOST_AHEAD = 64 * 1024;
const MOST_VALUES = 1000;
/** What a reply adds to its values, in bytes, with an id and a token of ordinary length. */
const ENVELOPE_BYTES = 128;
/** For how many microtasks a reply that could leave waits for more values: an async generator takes three to yield. */
const QUIET_TICKS = 8;

/** The content of a reply: the values as JSON, without brackets, and whether they are the last. */
export interface Portion {
  readonly values: string;
  readonly isLast: boolean;
}

type AnyIterable = AsyncIterable<unknown> | Iterable<unknown>;

/** The part of an iterator that is used. */
interface Cursor {
  next(): Promise<IteratorResult<unknown>>;
  return?(value?: unknown): Promise<unknown>;
}

/** The part of a Node stream that is used. */
interface NodeStream {
  readonly pipe: unknown;
  destroy(): void;
  on(event: "error", listener: (error: unknown) => void): unknown;
}

/** One iterable that the other side reads. */
export class Producer {
  readonly #source: AnyIterable;
  readonly #maxBytes: number;
  readonly #connection: Connection;
  readonly #failed: (error: unknown) => void;
  #iterator: Cursor | undefined;
  /** Queued values, as JSON. */
  #ready: string[] = [];
  #length = 0;
  /** How the source ended; `undefined` while it has not. */
  #end: { error?: unknown } | undefined;
  /** Why the producer was stopped. */
  #reason: unknown;
  #isReading = false;
  /** Whether reading waits for the connection to have a socket. */
  #isPaused = false;
  #wake: (() => void) | undefined;

  /** `failed` gets what the source fails with when it is no longer read. */
  constructor(source: AnyIterable, connection: Connection, failed: (error: unknown) => void) {
    this.#source = source;
    this.#maxBytes = connection.maxReplyBytes;
    this.#connection = connection;
    this.#failed = failed;
    // A Node stream emits errors also while it is not read. Without a listener, they would end the process.
    if (isNodeStream(source)) source.on("error", (error) => this.#sourceFailed(error));
  }

  /** Whether values are queued. */
  get waits(): boolean {
    return this.#ready.length > 0;
  }

  /** Resolves when values are queued or the source has ended, at the latest after `waitMs`. */
  async ready(waitMs: number): Promise<void> {
    void this.#readAhead();
    while (!this.waits && this.#end === undefined) if (!(await this.arrival(waitMs))) return;
    await this.#quiet();
  }

  /** Takes the queued values, if any. After the last value, throws the error of a source that failed. */
  take(): Portion {
    const values = this.#portion();
    const hasFailed = this.#end !== undefined && "error" in this.#end;
    if (values === "" && hasFailed) throw this.#end!.error;
    const isLast = !this.waits && this.#end !== undefined && !hasFailed;
    void this.#readAhead();
    return { values, isLast };
  }

  /** Drops the queued values, and closes the source. A later request for values gets the end, or `error`. */
  stop(reason: unknown, error?: RpcError): void {
    this.#reason = reason;
    const before = this.#end;
    this.#removed(this.#ready.splice(0));
    this.#finish(error === undefined ? {} : { error });
    if (before === undefined) void this.#close();
    // The source failed, and no request came after that.
    else if ("error" in before) this.#failedLate(before.error);
  }

  /** Continues to read: the connection has a socket again. */
  resumed(): void {
    this.#wake?.();
    if (this.#isPaused) void this.#readAhead();
  }

  async #readAhead(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#end === undefined && this.#length < MOST_AHEAD && this.#ready.length < MOST_VALUES) {
        this.#isPaused = this.#connection.isDown;
        if (this.#isPaused) break;
        this.#iterator ??= iteratorOf(this.#source);
        const { done, value } = await this.#iterator.next();
        // `stop` may have come meanwhile.
        if (this.#end !== undefined) break;
        if (done === true) this.#finish({});
        else this.#keep(value);
      }
    } catch (error) {
      if (this.#end === undefined) this.#finish({ error });
      else this.#iteratorFailedLate(error);
    }
    this.#isReading = false;
  }

  /** A Node stream failed. If its iterator waits, the iterator fails too. */
  #sourceFailed(error: unknown): void {
    if (this.#end !== undefined) this.#failedLate(error);
    else if (!this.#isReading) this.#finish({ error });
  }

  #keep(value: unknown): void {
    try {
      const text = stringify(value) ?? "null";
      if (exceeds(text, this.#maxBytes - ENVELOPE_BYTES))
        throw new RpcError(ErrorCode.ResponseTooLarge, "Value of a stream is too large");
      this.#ready.push(text);
      this.#length += text.length;
      this.#connection.transport.keeps?.(text.length + VALUE_COST);
      this.#wake?.();
    } catch (error) {
      // The source did not fail, so it must be closed.
      this.#finish({ error });
      void this.#close();
    }
  }

  #finish(end: { error?: unknown }): void {
    this.#end = end;
    this.#wake?.();
  }

  /** Closes the source. Called last, because `return` may wait for a pending `next`. */
  async #close(): Promise<void> {
    try {
      if (isNodeStream(this.#source)) this.#source.destroy();
      else await (this.#iterator ??= iteratorOf(this.#source)).return?.();
    } catch (error) {
      this.#iteratorFailedLate(error);
    }
  }

  /** A destroyed Node stream fails its iterator, and emits its errors itself. */
  #iteratorFailedLate(error: unknown): void {
    if (!isNodeStream(this.#source)) this.#failedLate(error);
  }

  #failedLate(error: unknown): void {
    if (!isAbort(error, this.#reason)) this.#failed(error);
  }

  /** Waits for a value or the end. Resolves to false if neither comes within `waitMs`. */
  arrival(waitMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const late = { deadline: 0, expire: () => resolve(false) };
      setDeadline(late, waitMs);
      this.#wake = () => {
        clearDeadline(late);
        resolve(true);
      };
    });
  }

  /** Waits until a quick source yields no more. */
  async #quiet(): Promise<void> {
    for (let seen = -1; seen !== this.#ready.length && this.#length < MOST_AHEAD && this.#end === undefined;) {
      seen = this.#ready.length;
      for (let tick = 0; tick < QUIET_TICKS; tick++) await Promise.resolve();
    }
  }

  /** Takes what fits into one reply: one value, and more while they fit even if each character took three bytes. */
  #portion(): string {
    const most = this.#maxBytes / 3 - ENVELOPE_BYTES;
    let count = 0;
    let length = 0;
    for (const text of this.#ready) {
      if (count > 0 && length + text.length >= most) break;
      count++;
      length += text.length + 1;
    }
    const taken = this.#ready.splice(0, count);
    this.#removed(taken);
    return taken.join(",");
  }

  #removed(values: readonly string[]): void {
    let length = 0;
    for (const text of values) length += text.length;
    this.#length -= length;
    this.#connection.transport.keeps?.(-(length + values.length * VALUE_COST));
  }
}

/** Returns the iterator of a source. A web stream's iterator cannot be closed while it waits, but its reader can. */
function iteratorOf(source: AnyIterable): Cursor {
  if ("getReader" in source) {
    const reader = (source as ReadableStream<unknown>).getReader();
    return { next: () => reader.read(), return: () => reader.cancel() };
  }
  return Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : awaited(source);
}

/** Makes an async iterator of a plain iterable, which may yield promises, as `for await` does. */
async function* awaited(source: Iterable<unknown>): AsyncGenerator<unknown> {
  yield* source;
}

/** The iterator of a Node stream cannot be ended while it waits, or before it was begun. The stream itself can. */
function isNodeStream(source: object): source is NodeStream {
  const { pipe, destroy, on } = source as Partial<NodeStream>;
  return typeof pipe === "function" && typeof destroy === "function" && typeof on === "function";
}
