/** The reading end of a stream: requests more values before it has consumed the last, which hides the round trip. */
import { encodeNotification } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { Connection } from "../peer/connection.js";
import { isLongToken, LONGEST_TOKEN } from "../peer/dialect.js";
import { ConnectionLostError, ProtocolError, RpcError, show, shownAt } from "../message/errors.js";
import type { Sink } from "../peer/flow.js";
import { isObject, member } from "../message/message.js";
import { observed } from "../base/promises.js";
import { onAbort } from "../base/tell.js";

/** The request for more values of a stream, and the notification that stops it. */
export const NEXT = "$/enumerator/next";
export const ABORT = "$/enumerator/abort";

/** Why a stream stops, on either side, when its reader ends the iteration. */
export const NO_LONGER_READ = "the stream is no longer read";

/** A stream on the other side. */
export interface Source {
  /** The method in errors of reading: that of the call that opened the stream, if it is known. */
  readonly method: string;
  /**
   * Returns the stream as it came in a result or in params. `signal` cancels the call that opens the stream. With `sink`, that call is
   * sent through it.
   */
  readonly open: (signal: AbortSignal, sink?: Sink) => Promise<unknown>;
  /** Requests more values, and returns the reply. */
  readonly requestMore?: typeof requestMore;
  /** Called when the reading ends. */
  readonly onEnd?: () => void;
  /** The token of a stream that came in a message. */
  readonly token?: unknown;
  /** The signal of the application, which ends the reading. */
  readonly signal?: AbortSignal | undefined;
}

const iterated = new WeakSet<object>();

/** Notes that a stream is iterated. Throws if it was iterated before, because its values are gone. */
export function iterateOnce(stream: object): void {
  if (iterated.has(stream)) throw new Error("a stream can be read once");
  iterated.add(stream);
}

/** Requests more values of a stream. */
export function requestMore(connection: Connection, token: unknown, sink?: Sink): Promise<unknown> {
  return connection.outgoing.requestDirectly(NEXT, { token }, { timeoutMs: Infinity }, sink);
}

/** How many requests for more values of a stream may wait, so that a reply is on its way while the next one is made. */
export const MOST_NEXT = 2;

/** The values of a reply, and whether no more follow. */
interface Reply {
  readonly values: unknown[];
  readonly finished: boolean;
}

/** Reads one stream, once. Never holds more than the values of three replies. */
export class StreamReader implements AsyncIterableIterator<unknown> {
  readonly #connection: Connection;
  readonly #source: Source;
  /** Cancels the call that opens the stream, while that waits. */
  #opening: AbortController | undefined;
  /** The token, while the other side holds the stream for this reader. */
  #token: unknown;
  /** The requested replies, in order. Only a reciproc peer is asked for more than one: other implementations may refuse that. */
  readonly #ahead: Promise<Reply>[] = [];
  #end: { error?: unknown } | undefined;
  #ignoreSignal: (() => void) | undefined;
  /** Ends the wait for a reply. */
  #wake: (() => void) | undefined;
  readonly #reading = this.#read();

  constructor(connection: Connection, source: Source) {
    this.#connection = connection;
    this.#source = source;
    this.#token = source.token;
  }

  [Symbol.asyncIterator](): this {
    iterateOnce(this);
    return this;
  }

  next(): Promise<IteratorResult<unknown>> {
    return this.#reading.next();
  }

  /** Ends the stream at once, also while a `next()` waits. */
  async return(value?: unknown): Promise<IteratorResult<unknown>> {
    this.#stop({});
    return { done: true, value };
  }

  /** Ends the reading, once. The next `next()` throws the error of `how`, if it has one. */
  #stop(how: { error?: unknown }): void {
    if (this.#end !== undefined) return;
    this.#end = how;
    this.#source.onEnd?.();
    this.#ignoreSignal?.();
    this.#abort();
    this.#wake?.();
    this.#opening?.abort("error" in how ? how.error : new Error(NO_LONGER_READ));
  }

  /** Stops the stream on the other side. */
  #abort(): void {
    const token = this.#token;
    if (token !== undefined) this.#connection.flow.send(encodeNotification(ABORT, { token }));
  }

  async *#read(): AsyncGenerator<unknown, void> {
    const { method, signal } = this.#source;
    try {
      if (signal?.aborted) this.#stop({ error: signal.reason });
      if (this.#end === undefined) this.#ahead.push(this.#begin());
      while (this.#end === undefined) {
        const reply = await this.#nextReply();
        if (reply === undefined || this.#end !== undefined) break;
        for (const value of reply.values) {
          this.#connection.config.checks?.checkReceived("stream", method, value);
          yield value;
          if (this.#end !== undefined) break;
        }
        if (reply.finished) this.#stop({});
      }
    } catch (error) {
      this.#stop({ error });
    }
    const end = this.#end!;
    // oxlint-disable-next-line typescript/unbound-method -- the stack of the error begins above it.
    if ("error" in end) throw shownAt(end.error, method, this.#read);
  }

  /** Opens the stream, and returns its first values. */
  async #begin(): Promise<Reply> {
    const { signal, open, token, method } = this.#source;
    this.#ignoreSignal = signal && onAbort(signal, () => this.#stop({ error: signal.reason }));
    this.#opening = new AbortController();
    const stream = await open(this.#opening.signal);
    this.#opening = undefined;
    if (token === undefined) {
      this.#token = tokenOf(stream);
      // The reader stopped while the reply was on its way through the promises.
      if (this.#end !== undefined) this.#abort();
    }
    return { values: valuesOf(stream, this.#connection, method), finished: this.#token === undefined };
  }

  /** Waits for the next reply, and requests those that follow. Returns `undefined` if the reading has ended meanwhile. */
  async #nextReply(): Promise<Reply | undefined> {
    const ahead = this.#ahead;
    const reply = await new Promise<Reply | undefined>((resolve, reject) => {
      this.#wake = resolve as () => void;
      ahead.shift()!.then(resolve, reject);
    });
    if (reply === undefined || this.#end !== undefined) return undefined;
    const most = this.#connection.transport.isReciproc === true ? MOST_NEXT : 1;
    while (this.#token !== undefined && ahead.length < most) ahead.push(observed(this.#more()));
    return reply;
  }

  async #more(): Promise<Reply> {
    const { requestMore: request = requestMore, method } = this.#source;
    try {
      const reply = readMore(await request(this.#connection, this.#token));
      if (reply.finished) this.#token = undefined;
      return reply;
    } catch (error) {
      if (freesToken(error)) this.#token = undefined;
      throw ofOpeningCall(error, method);
    }
  }
}

/**
 * Returns what reading rejects with when a request for more values fails with `error`. The call that opened the stream was
 * sent, so it may have run, even if the request for more was never sent.
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

/**
 * Returns the token of a stream as it was received; `undefined` if the other side holds no more values. Throws a `ProtocolError` for a
 * token that is too long.
 */
export function tokenOf(stream: unknown): unknown {
  const token = member(stream, "token") ?? undefined;
  if (isLongToken(token))
    throw new ProtocolError(`a stream must have a token of at most ${LONGEST_TOKEN} characters`, stream);
  return token;
}

/** Returns the first values of a stream as it was received: `{ token }`, `{ token, values }`, `{ values }`, or `{}` of another program. */
function valuesOf(stream: unknown, { transport }: Connection, method: string): unknown[] {
  const { values = [] } = Object(stream) as { values?: unknown };
  const isStream =
    isObject(stream) &&
    ("token" in stream || "values" in stream || (!transport.isReciproc && Object.keys(stream).length === 0));
  if (isStream && Array.isArray(values)) return values;
  throw new ProtocolError(`expected a stream of "${method}", got ${show(stream).slice(0, 100)}`, stream);
}

function readMore(reply: unknown): Reply {
  const { values, finished } = (reply ?? {}) as { values?: unknown; finished?: unknown };
  if (!Array.isArray(values) || typeof finished !== "boolean" || (values.length === 0 && !finished)) {
    throw new ProtocolError("more of a stream must have `values` or `finished: true`", reply);
  }
  return { values, finished };
}
