/** The end of a stream that yields: reads an iterable a little ahead, and hands over what is ready when it is asked. */
import { exceeds } from "../core/codec.js";
import { ErrorCode, RpcError } from "../core/errors.js";

/** So many characters of JSON are read ahead at most, and so many values: all that a slow reader makes this side keep. */
const MOST_AHEAD = 64 * 1024;
const MOST_VALUES = 1000;
/** What a reply adds to its values, in bytes, with an id and a token of ordinary length. */
const ENVELOPE_BYTES = 512;
/** For how many microtasks a batch that could leave waits for more: an async generator takes three to yield. */
const QUIET_TICKS = 8;

/** What a reply is made of: the values as JSON, without brackets, and whether they are the last. */
export interface Portion {
  readonly values: string;
  readonly isLast: boolean;
}

/** One iterable that the other side reads. */
export class Producer {
  readonly #source: AsyncIterable<unknown> | Iterable<unknown>;
  readonly #maxBytes: number;
  #iterator: AsyncIterator<unknown> | Iterator<unknown> | undefined;
  /** Values that wait to be asked for, as JSON. */
  #ready: string[] = [];
  #length = 0;
  /** How the source ended; `undefined` while it has not. */
  #end: { error?: unknown } | undefined;
  #isReading = false;
  #wake: (() => void) | undefined;

  /** `maxBytes`: the longest reply. */
  constructor(source: AsyncIterable<unknown> | Iterable<unknown>, maxBytes: number) {
    this.#source = source;
    this.#maxBytes = maxBytes;
  }

  /** What is ready, as soon as something is. Rejects with what the source failed with, after the values before it. */
  async take(): Promise<Portion> {
    void this.#readAhead();
    while (this.#ready.length === 0 && this.#end === undefined) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    await this.#quiet();
    const values = this.#portion();
    const isAll = this.#ready.length === 0;
    if (values === "" && this.#end !== undefined && "error" in this.#end) throw this.#end.error;
    void this.#readAhead();
    return { values, isLast: isAll && this.#end !== undefined && !("error" in this.#end) };
  }

  /** Nobody reads on: what waits is dropped, who asks is told that it is over, and the source may clean up. Rejects with what that fails with. */
  async stop(): Promise<void> {
    if (this.#end !== undefined) return;
    this.#end = {};
    this.#ready = [];
    this.#wake?.();
    // Last, for it may hang behind a `next` that is under way.
    this.#iterator ??= iteratorOf(this.#source);
    await this.#iterator.return?.();
  }

  async #readAhead(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      this.#iterator ??= iteratorOf(this.#source);
      while (this.#end === undefined && this.#length < MOST_AHEAD && this.#ready.length < MOST_VALUES) {
        const { done, value } = await this.#iterator.next();
        // `stop` may have come meanwhile.
        if (this.#end !== undefined) break;
        if (done === true) this.#end = {};
        else this.#keep(value);
        this.#wake?.();
      }
    } catch (error) {
      this.#end ??= { error };
      this.#wake?.();
    }
    this.#isReading = false;
  }

  #keep(value: unknown): void {
    const json = JSON.stringify(value) as string | undefined;
    const text = json ?? "null";
    if (exceeds(text, this.#maxBytes - ENVELOPE_BYTES)) {
      this.#end = { error: new RpcError(ErrorCode.ResponseTooLarge, "Value of a stream is too large") };
      void (async () => this.#iterator!.return?.())().catch(() => {});
      return;
    }
    this.#ready.push(text);
    this.#length += text.length;
  }

  /** A source that is quick fills the batch before it leaves. */
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
    for (const text of taken) this.#length -= text.length;
    return taken.join(",");
  }
}

function iteratorOf(source: AsyncIterable<unknown> | Iterable<unknown>): AsyncIterator<unknown> | Iterator<unknown> {
  return Symbol.asyncIterator in source ? source[Symbol.asyncIterator]() : source[Symbol.iterator]();
}
