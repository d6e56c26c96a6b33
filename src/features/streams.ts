/**
 * All streams of one connection. They are the enumerables of StreamJsonRpc: `{ token, values }` stands for a stream,
 * `$/enumerator/next` asks for more, `$/enumerator/abort` says that nobody reads on. Source: StreamJsonRpc,
 * "Asynchronous enumerables".
 */
import { encodeNotification, encodeRawResult } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { CallContext } from "../core/context.js";
import type { CallOptions } from "../core/contract.js";
import { member } from "../core/dialect.js";
import { ErrorCode, expected, RpcError } from "../core/errors.js";
import type { Id } from "../core/message.js";
import type { PendingCall } from "../core/pending.js";
import { observed } from "../core/promises.js";
import { Producer, type Portion } from "./producer.js";
import { StreamReader } from "./reader.js";

export const NEXT = "$/enumerator/next";
export const ABORT = "$/enumerator/abort";

/** A stream that the other side reads. */
interface Served {
  readonly producer: Producer;
  /** The call whose result it is, as a whole: its signal lives as long as the stream. */
  readonly context: CallContext | undefined;
  /** Whether an answer to `next` is owed: one at a time. */
  isAsked: boolean;
}

/** Both ends of the streams of one connection. */
export class Streams {
  readonly #connection: Connection;
  readonly #served = new Map<number, Served>();
  #lastToken = 0;
  /** Streams that were met while the present message is encoded; `undefined` when none is. */
  #met: number[] | undefined;
  readonly #iterated = new WeakSet<object>();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** How many this side serves. */
  get size(): number {
    return this.#served.size;
  }

  /** Calls, and reads the result. */
  call(method: string, params: unknown, options: CallOptions = {}): AsyncIterable<unknown> {
    const { signal, ...rest } = options;
    const giveUp = new AbortController();
    return this.#reader(
      () => this.#connection.outgoing.request(method, params, { ...rest, signal: giveUp.signal }),
      (reason) => giveUp.abort(reason),
      signal,
    );
  }

  /** Reads a stream that came inside params or a result. */
  iterate(stream: unknown): AsyncIterable<unknown> {
    if (typeof stream !== "object" || stream === null) throw expected("stream", "a stream out of a message", stream);
    if (this.#iterated.has(stream)) throw new Error("a stream is read once: its values are gone");
    this.#iterated.add(stream);
    return this.#reader(
      async () => stream,
      () => {},
      undefined,
    );
  }

  /** Makes a stream that serves itself where it is encoded. */
  offer(source: unknown): object {
    if (!isIterable(source)) throw expected("source", "an iterable or an async iterable", source);
    const { answersOnly } = this.#connection;
    if (answersOnly !== undefined)
      throw new Error("nobody could read a stream out of an answer", { cause: answersOnly });
    let isSent = false;
    const toJSON = (): object => {
      if (this.#met === undefined)
        throw new TypeError("a stream stands in the params of a request or in a result, and nowhere else");
      if (isSent) throw new TypeError("a stream can be sent once");
      isSent = true;
      const token = this.#serve(source, undefined);
      this.#met.push(token);
      return { token };
    };
    return { toJSON };
  }

  /** Encodes a message. The streams in it end with `call`, or when the other side says so. */
  encode(call: PendingCall | undefined, encode: () => string): string {
    const met: number[] = [];
    const outer = this.#met;
    this.#met = met;
    try {
      const text = encode();
      if (call !== undefined && met.length > 0) whenSettled(call, () => this.#stopAll(met, "its call is over"));
      return text;
    } catch (error) {
      this.#stopAll(met, error);
      throw error;
    } finally {
      this.#met = outer;
    }
  }

  /** Serves what a handler returned, and answers the JSON that stands for it: with the values that are ready at once. */
  async serve(source: AsyncIterable<unknown>, context: CallContext): Promise<string> {
    const token = this.#serve(source, context);
    const served = this.#served.get(token)!;
    let { values, isLast } = await this.#take(token, served);
    // Whoever cannot ask for more is given all of it, or what the dispatcher then refuses as too large.
    while (!isLast && this.#connection.answersOnly !== undefined) {
      const more = await this.#take(token, served);
      values += (values && more.values && ",") + more.values;
      isLast = more.isLast || values.length > this.#connection.settings.limits.maxReplyBytes;
    }
    if (isLast) this.#stop(token, abortError("the stream is too long for one reply"));
    const rest = values === "" ? "" : `"values":[${values}]`;
    if (isLast) return `{${rest}}`;
    return `{"token":${token}${rest && `,${rest}`}}`;
  }

  /** Answers `next`. */
  async next(id: Id, params: unknown): Promise<string> {
    const token = member(params, "token", 0);
    const served = this.#served.get(token as number);
    if (served === undefined) throw new RpcError(ErrorCode.NoSuchStream, "No such stream");
    if (served.isAsked) throw new RpcError(ErrorCode.InvalidRequest, "One `next` of a stream at a time");
    const { values, isLast } = await this.#take(token as number, served);
    return encodeRawResult(id, `{"values":[${values}],"finished":${isLast}}`);
  }

  /** The other side reads no further. */
  abort(params: unknown): void {
    this.#stop(member(params, "token", 0) as number, abortError("nobody reads the stream any more"));
  }

  /** The call of that id is cancelled: what it returned may be on its way, but nobody will read it. */
  cancel(id: Id, reason: unknown): void {
    for (const [token, { context }] of this.#served) if (context?.id === id) this.#stop(token, reason);
  }

  /** The connection is over. */
  end(reason: unknown): void {
    this.#stopAll([...this.#served.keys()], reason);
  }

  #reader(
    open: () => Promise<unknown>,
    abandon: (reason: unknown) => void,
    signal: AbortSignal | undefined,
  ): AsyncIterable<unknown> {
    const connection = this.#connection;
    const next = (token: unknown): Promise<unknown> =>
      connection.outgoing.control(NEXT, { token }, { timeoutMs: Infinity });
    const abort = (token: unknown): void => void connection.send(encodeNotification(ABORT, { token }));
    return new StreamReader({ open, abandon, next, abort }, signal);
  }

  #serve(source: AsyncIterable<unknown> | Iterable<unknown>, context: CallContext | undefined): number {
    const { maxStreams, maxReplyBytes } = this.#connection.settings.limits;
    const producer = new Producer(source, maxReplyBytes);
    if (this.#served.size >= maxStreams) {
      void observed(producer.stop());
      if (context !== undefined) throw new RpcError(ErrorCode.Busy, "Too many streams are open");
      throw new RangeError(`\`limits.maxStreams\`, ${maxStreams}, is reached`);
    }
    const token = ++this.#lastToken;
    this.#served.set(token, { producer, context, isAsked: false });
    return token;
  }

  async #take(token: number, served: Served): Promise<Portion> {
    served.isAsked = true;
    try {
      const portion = await served.producer.take();
      if (portion.isLast) this.#served.delete(token);
      return portion;
    } catch (error) {
      this.#served.delete(token);
      throw error;
    } finally {
      served.isAsked = false;
    }
  }

  #stopAll(tokens: readonly number[], reason: unknown): void {
    for (const token of tokens) this.#stop(token, reason);
  }

  #stop(token: number, reason: unknown): void {
    const served = this.#served.get(token);
    if (served === undefined) return;
    this.#served.delete(token);
    // Before `return()`: a source that waits for its signal would never come to it.
    if (served.context !== undefined) CallContext.abort(served.context, reason);
    served.producer.stop().catch((error: unknown) => {
      if (error !== reason) this.#connection.report(error);
    });
  }
}

/** Also tells `told` when a call is settled. */
export function whenSettled(call: PendingCall, told: () => void): void {
  const before = call.onSettled;
  call.onSettled = () => {
    before?.();
    told();
  };
}

/** What a handler's signal aborts with when its caller has no more use for it. */
export function abortError(message: string): Error {
  return new DOMException(message, "AbortError");
}

function isIterable(value: unknown): value is AsyncIterable<unknown> | Iterable<unknown> {
  return typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value);
}
