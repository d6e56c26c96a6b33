/**
 * The extensions of one connection: cancelling and progress, in the messages of its dialect, and streams.
 *
 * Streams are the enumerables of StreamJsonRpc: `{ token, values }` stands for a stream, `$/enumerator/next` asks for more
 * values, `$/enumerator/abort` stops the stream. Source: StreamJsonRpc, "Asynchronous enumerables".
 */
import type { Slot } from "../core/batch.js";
import { ById } from "../core/by-id.js";
import { encodeError, encodeNotification, encodeRawResult, encodeRequest, encodeResult } from "../core/codec.js";
import * as ErrorCode from "../core/codes.js";
import type { Connection } from "../core/connection.js";
import type { CallOptions } from "../core/contract.js";
import { isExempt } from "../core/dialect.js";
import { expected, RpcError } from "../core/errors.js";
import type { Extensions, ExtensionsFactory } from "../core/extensions.js";
import type { AbortCause, IncomingCall } from "../core/incoming-call.js";
import { isObject, member, type Id, type NotificationMessage, type RequestMessage } from "../core/message.js";
import { isSignal } from "../core/options.js";
import type { OutgoingCall } from "../core/outgoing-calls.js";
import type { Frame, SendHandle } from "../core/transport.js";
import { lsp } from "./dialects/lsp.js";
import { Producer, type Portion } from "./producer.js";
import { Progress } from "./progress.js";
import { StreamReader, tokenOf, type Source } from "./reader.js";

const NEXT = "$/enumerator/next";
const ABORT = "$/enumerator/abort";

/** If the first value of a stream takes longer, the call is answered without a value, so that it does not time out. */
const FIRST_VALUE_WAIT_MS = 100;

/** Memory of a stream besides its values, in UTF-16 code units: its iterator, its call, its entry here. */
const STREAM_COST = 2048;

/** The first interval between two checks whether the connection has room. Each further interval is longer. */
const ROOM_CHECK_MS = 10;

/** A stream that the other side reads. */
interface Served {
  readonly token: number;
  readonly producer: Producer;
  /** The call whose result the stream is, or stands in; `undefined` for a stream in params. */
  readonly call: IncomingCall | undefined;
  /** Whether the stream is the whole result. Then the signal of the call lives as long as the stream. */
  readonly isWhole: boolean;
  /** The frame that the call came in: a generator keeps the params. */
  readonly frame: Frame | undefined;
  /** Whether the token was sent. Until then it names no stream: a guessed token must not end the call. */
  isAnnounced: boolean;
  /** Whether a request for more values waits for its response. Only one may wait at a time. */
  isAsked: boolean;
}

/** The send handle of a queued cancel that leaves only if the other side understands it. */
class OptionalCancel implements SendHandle {
  sent = false;
}

/** The extensions of one connection. */
class StandardExtensions implements Extensions {
  readonly #connection: Connection;
  readonly #progress: Progress;
  readonly #served = new Map<number, Served>();
  /** The streams of a call, by its id. */
  readonly #byCall = new ById<Served>();
  #lastToken = 0;
  /** Whether a stream was offered. */
  isOffering = false;
  /** Whether a stream was read. */
  isReading = false;
  /** The call of the message that is being encoded, and the streams that were found in it. */
  #encoding: { readonly call: IncomingCall | undefined; readonly met: Served[] } | undefined;
  readonly #iterated = new WeakSet<object>();
  /** The frames in which the results of this side's calls came, while streams are read. */
  readonly #frames = new WeakMap<object, Frame>();
  /** The signals of calls that open streams. */
  readonly #openings = new WeakSet<AbortSignal>();

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#progress = new Progress(connection);
  }

  control(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { method, params } = message;
    const { dialect } = this.#connection.config;
    if ("id" in message) {
      if (method !== NEXT) return false;
      void this.#next(message.id, params, slot);
    } else if (method === ABORT) this.#abort(params);
    else if (method === dialect.cancel.method) this.#cancelled(params);
    else return method === dialect.progress.method && this.#progress.receive(params);
    return true;
  }

  cancel(call: OutgoingCall, reason: unknown): void {
    const { outgoing, speaksDialect, config } = this.#connection;
    const { cancel } = config.dialect;
    // A side that serves a stream must learn that the stream is no longer read, whatever else it understands.
    const isDue = speaksDialect || this.#opens(call);
    if (!isDue && (call.sent || !outgoing.isHeld)) return;
    if (isExempt(config.dialect, call.method)) return;
    try {
      const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
      // A call of a batch is still queued: the cancel leaves behind it.
      if (call.sent) this.#send(text);
      else outgoing.deliver(text, isDue ? undefined : new OptionalCancel(), undefined);
    } catch (error) {
      this.#connection.report(error);
    }
  }

  /** The other side cancelled a call. For an unknown id, looks into each table once, and stores nothing. */
  #cancelled(params: unknown): void {
    const id = this.#connection.config.dialect.cancel.idOf(params);
    if (id === undefined) return;
    const cause = new Cancellation();
    this.#connection.incoming.cancel(id, cause);
    this.#cancelStreams(id, cause);
  }

  askProgress(call: OutgoingCall, params: unknown): unknown {
    return this.#progress.ask(call, params);
  }

  rewriteQueued(text: string, handle: SendHandle): string | undefined {
    if (this.#connection.speaksDialect) return this.#progress.rewrite(text, handle);
    return handle instanceof OptionalCancel ? undefined : text;
  }

  progressOf(call: IncomingCall): (value: unknown) => void {
    return this.#progress.reporterOf(call, (text) => this.#send(text));
  }

  #send(text: string): void {
    if (!this.#connection.send(text)) this.#connection.outgoing.failUnsent(text);
  }

  counts(): { streams: number; progress: number } {
    return { streams: this.#served.size, progress: this.#progress.size };
  }

  /** Calls a method, and reads its result as a stream. */
  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown> {
    const giveUp = new AbortController();
    this.#openings.add(giveUp.signal);
    const signal: unknown = options?.signal;
    // A value that is no signal is refused as any bad option: when the call is made.
    const own = signal === undefined || isSignal(signal) ? { signal: giveUp.signal } : undefined;
    const open = (): Promise<unknown> => this.#connection.outgoing.request(method, params, { ...options, ...own });
    const reader = this.#source(method, open, (reason) => giveUp.abort(reason));
    return new StreamReader(reader, isSignal(signal) ? signal : undefined);
  }

  /** Whether a call opens a stream. */
  #opens({ wait: { signal } }: OutgoingCall): boolean {
    return signal !== undefined && this.#openings.has(signal);
  }

  /** Reads a stream that came inside params or a result. */
  iterate(stream: unknown): AsyncIterable<unknown> {
    if (typeof stream !== "object" || stream === null) throw expected("stream", "a stream out of a message", stream);
    if (this.#iterated.has(stream)) throw new Error("a stream is read once: its values are gone");
    this.#iterated.add(stream);
    const source = this.#source(
      NEXT,
      async () => stream,
      () => {},
    );
    return new StreamReader(source, undefined, tokenOf(stream));
  }

  /** Makes a stream that registers itself when a message with it is encoded. */
  offer(source: unknown): object {
    if (!isIterable(source)) throw expected("source", "an iterable or an async iterable", source);
    const { answersOnly } = this.#connection;
    if (answersOnly !== undefined)
      throw new Error("the caller cannot read a stream in a response to HTTP POST", { cause: answersOnly });
    this.isOffering = true;
    let isSent = false;
    const toJSON = (): object => {
      if (this.#encoding === undefined)
        throw new TypeError("a stream stands in the params of a request or in a result, and nowhere else");
      if (isSent) throw new TypeError("a stream can be sent once");
      isSent = true;
      const served = this.#serve(source, this.#encoding.call, false);
      this.#encoding.met.push(served);
      return { token: served.token };
    };
    return { toJSON };
  }

  /** Encodes a request. The streams in it end with its call. */
  encodeRequest(call: OutgoingCall, params: unknown): string {
    const met: Served[] = [];
    const text = this.#encode(undefined, met, () => encodeRequest(call.id, call.method, params as object));
    if (met.length > 0) call.whenSettled(() => this.#stopAll(met, new Error("the call of this stream has ended")));
    return text;
  }

  /** Encodes a result. If the caller no longer waits, stops the streams in it and throws. */
  encodeResult(call: IncomingCall, result: unknown): string {
    return this.#encode(call, [], () => encodeResult(call.id ?? null, result));
  }

  /** Encodes a message, and adds the streams in it to `met`. */
  #encode(call: IncomingCall | undefined, met: Served[], encode: () => string): string {
    const outer = this.#encoding;
    this.#encoding = { call, met };
    try {
      return encode();
    } catch (error) {
      this.#stopAll(met, error);
      throw error;
    } finally {
      this.#encoding = outer;
    }
  }

  /**
   * Serves the stream that a handler returned. The promise gives a function that makes the JSON of the stream right before it
   * is sent: with the values that are ready soon, if the connection has room for them then.
   */
  async serve(source: AsyncIterable<unknown>, call: IncomingCall): Promise<() => string> {
    const served = this.#serve(source, call, true);
    const { token, producer } = served;
    // A caller that cannot ask for more gets all values.
    const isAll = this.#connection.answersOnly !== undefined;
    const first = isAll ? this.#takeAll(served) : this.#takeEnd(served);
    const known = await first.finally(() => {
      // If the call was cancelled meanwhile, the end of the source is not its result.
      const unread = whyUnread(call);
      if (unread !== undefined) throw unread.reason;
    });
    return () => {
      served.isAnnounced = true;
      const { values, isLast } = known ?? (producer.waits && this.#connection.hasRoom ? this.#take(served) : NOTHING);
      const rest = values === "" ? "" : `"values":[${values}]`;
      if (isLast) return `{${rest}}`;
      return `{"token":${token}${rest && `,${rest}`}}`;
    };
  }

  /** Answers a request for more values. */
  async #next(id: Id, params: unknown, slot: Slot): Promise<void> {
    const { incoming } = this.#connection;
    const served = this.#announced(params);
    // Refused without an RpcError, whose stack is expensive: the other side can send any token.
    if (served === undefined) return void incoming.reply(id, encodeError(id, NO_SUCH_STREAM), slot);
    try {
      if (served.isAsked) throw new RpcError(ErrorCode.InvalidRequest, "One `next` of a stream at a time");
      served.isAsked = true;
      await served.producer.ready(Infinity);
      // Checked right before sending: if many streams are ready at once, each must count what the streams before it sent.
      for (let ms = ROOM_CHECK_MS; served.producer.waits && !this.#connection.hasRoom; ms = Math.min(2 * ms, 160))
        await served.producer.arrival(this.#connection.isDown ? Infinity : ms);
      const { values, isLast } = this.#take(served);
      served.isAsked = false;
      const text = encodeRawResult(id, `{"values":[${values}],"finished":${isLast}}`);
      if (!incoming.reply(id, text, slot)) this.#stop(served, new Error("values of this stream did not fit"));
    } catch (error) {
      incoming.reply(id, incoming.encodeFailure(id, served.call?.method ?? NEXT, error), slot);
    }
  }

  /** Stops the stream that the other side no longer reads. */
  #abort(params: unknown): void {
    const served = this.#announced(params);
    if (served !== undefined) this.#stop(served, abortError("the stream is no longer read"), true);
  }

  /** Stops the streams of the calls of that id, which were cancelled. Their responses may have crossed the cancel. */
  #cancelStreams(id: Id, cause: AbortCause): void {
    const { dialect } = this.#connection.config;
    for (const served of this.#byCall.get(id)) {
      if (!isExempt(dialect, served.call!.method)) this.#stop(served, cause.reason);
    }
  }

  /** Stops the streams of a call whose response could not be sent. */
  responseNotSent(call: IncomingCall): void {
    for (const served of this.#byCall.get(call.id!)) {
      if (served.call === call) this.#stop(served, new Error("the answer could not be sent"));
    }
  }

  /** Continues to read sources: the connection has a socket again. */
  resumed(): void {
    for (const { producer } of this.#served.values()) producer.resumed();
  }

  /** Notes the frame of the result in a message, for `Source.keep`. */
  note(message: unknown, frame: Frame | undefined): void {
    if (frame === undefined) return;
    for (const one of Array.isArray(message) ? message : [message]) {
      const result = member(one, "result");
      if (isObject(result)) this.#frames.set(result, frame);
    }
  }

  /** Stops all streams: the connection has ended. */
  end(reason: unknown): void {
    this.#stopAll([...this.#served.values()], reason);
  }

  #source(method: string, open: Source["open"], abandon: Source["abandon"]): Source {
    const connection = this.#connection;
    this.isReading = true;
    return {
      method,
      open,
      abandon,
      next: (token) => connection.outgoing.control(NEXT, { token }, { timeoutMs: Infinity }),
      abort: (token) => void connection.send(encodeNotification(ABORT, { token })),
      keep: (reply) => {
        const frame = isObject(reply) ? this.#frames.get(reply) : undefined;
        frame?.keep();
        return frame;
      },
      drop: (frame) => frame?.drop(),
    };
  }

  /** Registers a stream. If the caller no longer waits or too many streams are open, stops the source and throws. */
  #serve(source: AsyncIterable<unknown> | Iterable<unknown>, call: IncomingCall | undefined, isWhole: boolean): Served {
    const { config } = this.#connection;
    const { maxStreams } = config.limits;
    const producer = new Producer(source, this.#connection, (error) =>
      this.#connection.incoming.reportFailure(call?.method ?? NEXT, error),
    );
    const refusal = whyUnread(call) ?? (this.#served.size >= maxStreams ? tooMany(call, maxStreams) : undefined);
    if (refusal !== undefined) {
      producer.stop(refusal.reason);
      throw refusal.reason;
    }
    // A reciproc peer may still hold the token of a stream of an earlier connection: it must name no stream of this one. While
    // messages are queued, it is not known whether the other side is one.
    const { transport, outgoing } = this.#connection;
    if (this.#lastToken === 0 && (transport.isReciproc === true || outgoing.isHeld))
      this.#lastToken = Math.floor(Math.random() * 2 ** 32);
    const token = ++this.#lastToken;
    const frame = call && (call.frame ?? transport.currentFrame);
    frame?.keep();
    const served = { token, producer, call, isWhole, frame, isAnnounced: !isWhole, isAsked: false };
    this.#served.set(token, served);
    if (call?.id !== undefined) this.#byCall.add(call.id, served);
    transport.keeps?.(STREAM_COST);
    return served;
  }

  /** Takes the values that are ready. */
  #take(served: Served): Portion {
    try {
      const portion = served.producer.take();
      if (portion.isLast) this.#delete(served);
      return portion;
    } catch (error) {
      this.#delete(served);
      throw error;
    }
  }

  /** Waits for the first values. Returns `undefined` if there are any; otherwise that there are none yet, or will be none. */
  async #takeEnd(served: Served): Promise<Portion | undefined> {
    await served.producer.ready(FIRST_VALUE_WAIT_MS);
    return served.producer.waits ? undefined : this.#take(served);
  }

  /** Takes all values, or more than the longest reply takes: that reply is refused, and the stream is stopped then. */
  async #takeAll(served: Served): Promise<Portion> {
    const { maxReplyBytes } = this.#connection;
    const all: string[] = [];
    for (let length = 0, isLast = false; !isLast && length <= maxReplyBytes;) {
      await served.producer.ready(Infinity);
      const portion = this.#take(served);
      if (portion.values !== "") all.push(portion.values);
      length += portion.values.length;
      isLast = portion.isLast;
    }
    return { values: all.join(","), isLast: true };
  }

  /** Returns the stream whose token stands in the params of a control message, if the token was sent. */
  #announced(params: unknown): Served | undefined {
    const served = this.#served.get(member(params, "token", 0) as number);
    return served?.isAnnounced === true ? served : undefined;
  }

  #stopAll(all: readonly Served[], reason: unknown): void {
    for (const served of all) this.#stop(served, reason);
  }

  /** Stops a stream. Unless its reader aborted it, a waiting request for more values gets an error and not the end. */
  #stop(served: Served, reason: unknown, isAborted = false): void {
    if (!this.#delete(served)) return;
    // Aborted before `return()` is called: a source that waits for its signal would never return.
    if (served.isWhole) served.call!.abort({ reason });
    served.producer.stop(reason, isAborted ? undefined : noSuchStream("The stream was given up"));
  }

  #delete(served: Served): boolean {
    const id = served.call?.id;
    if (id !== undefined) this.#byCall.delete(id, served);
    if (!this.#served.delete(served.token)) return false;
    this.#connection.transport.keeps?.(-STREAM_COST);
    served.frame?.drop();
    return true;
  }
}

/** Returns why the caller no longer waits for the result; `undefined` while it waits. */
function whyUnread(call: IncomingCall | undefined): AbortCause | undefined {
  if (call === undefined) return undefined;
  return call.id === undefined ? NOT_ANSWERED : call.abortCause;
}

const NO_SUCH_STREAM = { code: ErrorCode.NoSuchStream, message: "No such stream" };
const NOTHING: Portion = { values: "", isLast: false };
const NOT_ANSWERED = { reason: new Error("a notification has no answer") };

function tooMany(call: IncomingCall | undefined, maxStreams: number): { reason: Error } {
  if (call !== undefined) return { reason: new RpcError(ErrorCode.Busy, "Too many streams are open") };
  return { reason: new RangeError(`\`limits.maxStreams\`, ${maxStreams}, is reached`) };
}

function noSuchStream(message: string): RpcError {
  return new RpcError(ErrorCode.NoSuchStream, message);
}

/** Makes its error when a handler or a stream first reads it: an AbortError records its stack, which takes several microseconds. */
class Cancellation implements AbortCause {
  #reason: Error | undefined;

  get reason(): Error {
    return (this.#reason ??= abortError("the caller cancelled"));
  }
}

/** Returns the error that the signal of a handler aborts with when the caller cancelled. */
function abortError(message: string): Error {
  return new DOMException(message, "AbortError");
}

function isIterable(value: unknown): value is AsyncIterable<unknown> | Iterable<unknown> {
  return typeof value === "object" && value !== null && (Symbol.asyncIterator in value || Symbol.iterator in value);
}

/** Makes the extensions of a connection. */
export const standardExtensions: ExtensionsFactory = {
  defaultDialect: lsp,
  controlMethodsOf: ({ cancel, progress }) => new Set([cancel.method, progress.method, NEXT, ABORT]),
  create: (connection) => new StandardExtensions(connection),
};
