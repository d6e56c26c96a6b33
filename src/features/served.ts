/** The serving end of a stream: reads an iterable a little ahead, and sends the values that are ready when they are requested. */
import type { Slot } from "../core/batch.js";
import { encodeError, encodeRawResult, exceeds, joinTexts, stringify, type MessageText } from "../core/codec.js";
import * as ErrorCode from "../core/codes.js";
import type { Connection } from "../core/connection.js";
import { clearDeadline, setDeadline } from "../core/deadlines.js";
import { isAbort, RpcError } from "../core/errors.js";
import type { AbortCause, IncomingCall } from "../core/incoming-call.js";
import type { Id } from "../core/message.js";
import type { AnyIterable } from "../core/promises.js";
import { VALUE_COST } from "../core/transport.js";
import { MOST_NEXT, NEXT } from "./reader.js";

/** The most characters of JSON, and the most values, that are read ahead, which bounds the memory for a slow reader. */
const MOST_AHEAD = 64 * 1024;
/** As much of a stream of bytes, in parts of `MOST_AHEAD`. With one part for each reply, an upload took a quarter longer. */
const MOST_BYTES_AHEAD = 4 * MOST_AHEAD;
const MOST_VALUES = 1000;
/** What a reply adds to its values, in bytes, with an id and a token of ordinary length. */
const ENVELOPE_BYTES = 128;
/** For how many microtasks a reply that could be sent waits for more values: an async generator takes three to yield. */
const QUIET_TICKS = 8;
/** Memory of a stream besides its values, in UTF-16 code units: its iterator, its call, its functions here. */
const STREAM_COST = 2048;
/** The first and the longest interval between two checks whether the connection has room. */
const ROOM_CHECK_MS = 10;
const LONGEST_ROOM_CHECK_MS = 160;

/** The content of a reply: the values as JSON, and whether they are the last. */
export interface Portion {
  readonly values: readonly MessageText[];
  readonly isLast: boolean;
}

const TOO_MANY_NEXT = { code: ErrorCode.InvalidRequest, message: "Too many `next`" };

const NOTHING: Portion = { values: [], isLast: false };

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

/** The streams of one connection that the other side reads. */
export interface ServedStreams {
  readonly connection: Connection;
  /** The streams that have not ended, by token. */
  readonly streams: Map<unknown, ServedStream>;
  lastToken: number;
}

/** One iterable that the other side reads. */
export interface ServedStream {
  readonly call: IncomingCall | undefined;
  readonly token: number;
  /** Whether the token was sent. Until then it names no stream: a guessed token must not end the call. */
  isAnnounced: boolean;
  /** Resolves when values are queued or the source has ended, at the latest after `waitMs`. */
  readonly ready: (waitMs: number) => Promise<void>;
  /** Takes the queued values, if any. After the last value, throws the error of a source that failed. */
  readonly take: () => Portion;
  /** Returns the JSON of the stream as a whole result, with the queued values if the connection has room for them. */
  readonly toJson: () => MessageText;
  /** Answers a request for more values. */
  readonly answer: (id: Id, slot: Slot) => void;
  /** Drops the queued values, and closes the source. Unless `isAborted` by the reader, a pending request fails. */
  readonly stop: (reason: unknown, isAborted?: boolean) => void;
  /** Continues to read: the connection has a socket again. */
  readonly resumed: () => void;
}

/**
 * Serves an iterable, which is read when its values are first waited for. `call`: the call whose result the stream is or stands
 * in; `undefined` for a stream in params. `isWhole`: the stream is the whole result, so the signal of the call lives as long as
 * the stream. If the caller no longer waits or too many streams are open, closes the source and throws.
 */
export function serveStream(
  table: ServedStreams,
  source: AnyIterable,
  call: IncomingCall | undefined,
  isWhole: boolean,
): ServedStream {
  const { connection, streams } = table;
  const refusal = whyRefused(table, call);
  const token = refusal === undefined ? newToken(table) : 0;
  const { incoming, transport } = connection;
  const method = call?.method ?? NEXT;
  const isNode = isNodeStream(source);
  /** The frame that the call came in: a generator keeps the params. */
  const frame = call && (call.frame ?? transport.currentFrame);
  frame?.keep();
  let iterator: Cursor | undefined;
  /** Queued values, as JSON. */
  let queued: MessageText[] = [];
  /** The length of all queued values. */
  let length = 0;
  /** Whether no value follows the queued values. */
  let isOver = false;
  /** What the first request after the last value is refused with. */
  let failure: { readonly error: unknown } | undefined;
  /** Why the stream was stopped. */
  let stopReason: unknown;
  let isReading = false;
  /** The parts of a view that the source has yielded: that of a `Blob` may yield one of any length. */
  let parts: Iterator<unknown> | undefined;
  /** Whether reading waits for the connection to have a socket. */
  let isPaused = false;
  /** How many requests for more values wait for their responses. */
  let asked = 0;
  /** Settles when the last of these requests is answered. The next one is answered after that. */
  let turn = Promise.resolve();
  /** Ends the wait for a value. */
  let wake: (() => void) | undefined;

  // Reading the source.

  const canRead = (): boolean =>
    !isOver && length < (parts === undefined ? MOST_AHEAD : MOST_BYTES_AHEAD) && queued.length < MOST_VALUES;

  async function readAhead(): Promise<void> {
    if (isReading) return;
    isReading = true;
    try {
      while (canRead()) {
        isPaused = connection.flow.isDown;
        if (isPaused) break;
        const part = parts?.next();
        if (part?.done === false) {
          add(part.value);
          continue;
        }
        iterator ??= iteratorOf(source);
        const { done, value } = await iterator.next();
        // `stop` may have come meanwhile.
        if (isOver) break;
        if (done === true) finish();
        else if (connection.config.bytes !== undefined && ArrayBuffer.isView(value)) {
          parts = connection.config.bytes.parts(value, MOST_AHEAD);
        } else add(value);
      }
    } catch (error) {
      iteratorFailed(error);
    }
    isReading = false;
  }

  function add(value: unknown): void {
    try {
      connection.config.checks?.sent("stream", method, value);
      const text = stringify(value) ?? "null";
      // The source may fill the same buffer again.
      if (typeof text !== "string") text.keep();
      if (exceeds(text, connection.maxReplyBytes - ENVELOPE_BYTES))
        throw new RpcError(ErrorCode.ResponseTooLarge, "Value of a stream is too large");
      queued.push(text);
      count(text.length, 1);
      wake?.();
    } catch (error) {
      // The source did not fail, so it must be closed.
      finish({ error });
      void close();
    }
  }

  /** Counts values that are queued, or no longer are. */
  function count(characters: number, values: number): void {
    length += characters;
    transport.keeps?.(characters + values * VALUE_COST);
  }

  function finish(how?: { error: unknown }): void {
    isOver = true;
    failure = how;
    wake?.();
  }

  /** Closes the source. Called last, because `return` may wait for a pending `next`. */
  async function close(): Promise<void> {
    try {
      if (isNode) source.destroy();
      else await (iterator ??= iteratorOf(source)).return?.();
    } catch (error) {
      iteratorFailed(error);
    }
  }

  /** The iterator of a Node stream also fails if the stream is destroyed. The stream itself emits its errors. */
  function iteratorFailed(error: unknown): void {
    if (!isOver || !isNode) sourceFailed(error);
  }

  /** Ends the stream with an error of its source. If the stream is over, reports the error. */
  function sourceFailed(error: unknown): void {
    if (!isOver) finish({ error });
    else if (!isAbort(error, stopReason)) incoming.reportFailure(call?.id, method, error);
  }

  // Sending the values.

  /** Waits for a value or the end. Resolves to false if neither comes within `waitMs`. */
  function arrival(waitMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const late = { deadline: 0, expire: () => resolve(false) };
      setDeadline(late, waitMs);
      wake = () => {
        clearDeadline(late);
        resolve(true);
      };
    });
  }

  const isWaiting = (): boolean => !isOver && queued.length === 0;

  async function ready(waitMs: number): Promise<void> {
    void readAhead();
    while (isWaiting() && (await arrival(waitMs)));
    // Waits until a quick source yields no more.
    for (let seen = -1; seen !== queued.length && canRead();) {
      seen = queued.length;
      for (let tick = 0; tick < QUIET_TICKS; tick++) await Promise.resolve();
    }
  }

  /** Takes what fits into one reply: one value, and more while they fit even if each character took three bytes. */
  function take(): Portion {
    if (queued.length === 0 && failure !== undefined) {
      const { error } = failure;
      // A request that waits behind this one gets no values.
      failure = undefined;
      remove();
      throw error;
    }
    const most = connection.maxReplyBytes / 3 - ENVELOPE_BYTES;
    let taken = 0;
    let characters = 0;
    while (taken < queued.length && (taken === 0 || characters + taken + queued[taken]!.length < most))
      characters += queued[taken++]!.length;
    count(-characters, -taken);
    const values = queued.splice(0, taken);
    const isLast = isOver && failure === undefined && queued.length === 0;
    if (isLast) remove();
    void readAhead();
    return { values, isLast };
  }

  /** Removes the stream from the table. Returns false if it was removed before. */
  function remove(): boolean {
    if (!streams.delete(token)) return false;
    transport.keeps?.(-STREAM_COST);
    frame?.drop();
    return true;
  }

  /** Answers one request when values are ready and the connection has room for them, or the stream is over. */
  async function sendMore(id: Id, slot: Slot): Promise<void> {
    try {
      await ready(Infinity);
      // Checked right before sending: if many streams are ready at once, each must count what the streams before it sent.
      for (
        let ms = ROOM_CHECK_MS;
        queued.length > 0 && !connection.flow.hasRoom;
        ms = Math.min(2 * ms, LONGEST_ROOM_CHECK_MS)
      )
        await arrival(connection.flow.isDown ? Infinity : ms);
      // Before the reply: its reader may request more at once.
      asked--;
      const { values, isLast } = take();
      const text = encodeRawResult(id, joinTexts('{"values":[', values, `],"finished":${isLast}}`));
      incoming.reply(id, text, slot, onSent);
    } catch (error) {
      incoming.reply(id, incoming.encodeFailure(id, method, error), slot);
    }
  }

  /** Called when values were sent, or will not be sent. */
  const onSent = (isSent: boolean): void => {
    if (!isSent) stream.stop(new Error("the response was not sent"));
  };

  const stream: ServedStream = {
    call,
    token,
    isAnnounced: !isWhole,
    ready,
    take,

    toJson() {
      // If the call was cancelled meanwhile, the end of the source is not its result.
      if (call?.abortCause !== undefined) throw call.abortCause.reason;
      stream.isAnnounced = true;
      const { values, isLast } = queued.length > 0 && !connection.flow.hasRoom ? NOTHING : take();
      if (values.length === 0 && !isLast) return `{"token":${token}}`;
      return joinTexts(isLast ? '{"values":[' : `{"token":${token},"values":[`, values, "]}");
    },

    answer(id, slot) {
      // Refused without an RpcError, whose stack is expensive: the other side can send many.
      if (asked === MOST_NEXT) return incoming.reply(id, encodeError(id, TOO_MANY_NEXT), slot);
      asked++;
      turn = turn.then(() => sendMore(id, slot));
    },

    stop(reason, isAborted = false) {
      if (!remove()) return;
      // Aborted before `return()` is called: a source that waits for its signal would never return.
      if (isWhole && stream.isAnnounced) call!.abort({ reason });
      stopReason = reason;
      count(-length, -queued.length);
      queued = [];
      parts = undefined;
      const wasOver = isOver;
      const before = failure;
      finish(isAborted ? undefined : { error: new RpcError(ErrorCode.NoSuchStream, "The stream was given up") });
      if (!wasOver) void close();
      // The source failed, and no request came after that.
      else if (before !== undefined) sourceFailed(before.error);
    },

    resumed() {
      wake?.();
      if (isPaused) void readAhead();
    },
  };

  streams.set(token, stream);
  transport.keeps?.(STREAM_COST);
  // A Node stream emits errors also while it is not read. Without a listener, they would end the process.
  if (isNode) source.on("error", sourceFailed);
  if (refusal !== undefined) {
    stream.stop(refusal.reason);
    throw refusal.reason;
  }
  call?.onReply(onSent);
  return stream;
}

/**
 * A reciproc peer may still hold the token of a stream of an earlier connection: it must name no stream of this one. While
 * messages are queued, it is not known whether the other side is a reciproc peer.
 */
function newToken(table: ServedStreams): number {
  const { transport, opening } = table.connection;
  if (table.lastToken === 0 && (transport.isReciproc === true || opening !== undefined))
    table.lastToken = Math.floor(Math.random() * 2 ** 32);
  return ++table.lastToken;
}

const NO_RESPONSE = { reason: new Error("a notification has no response") };

/** Returns why a stream cannot be served: its caller no longer waits, or too many streams are open. */
function whyRefused({ connection, streams }: ServedStreams, call: IncomingCall | undefined): AbortCause | undefined {
  if (call?.abortCause !== undefined) return call.abortCause;
  if (call !== undefined && call.id === undefined) return NO_RESPONSE;
  const { maxStreams } = connection.config.limits;
  if (streams.size < maxStreams) return undefined;
  if (call !== undefined) return { reason: new RpcError(ErrorCode.Busy, "Too many streams are open") };
  return { reason: new RangeError(`\`limits.maxStreams\`, ${maxStreams}, is reached`) };
}

/** Returns the iterator of a source. A web stream's iterator cannot be closed while it waits, but its reader can. */
function iteratorOf(source: AnyIterable): Cursor {
  if ("getReader" in source) {
    const reader = (source as ReadableStream<unknown>).getReader();
    return { next: () => reader.read(), return: () => reader.cancel() };
  }
  if (Symbol.asyncIterator in source) return source[Symbol.asyncIterator]();
  const iterator = source[Symbol.iterator]();
  return {
    // A plain iterable may yield promises, as in `for await`.
    async next() {
      const { done = false, value } = iterator.next();
      return { done, value: await value } as IteratorResult<unknown>;
    },
    return: async () => iterator.return?.(),
  };
}

/** The iterator of a Node stream cannot be ended while it waits, or before it was begun. The stream itself can. */
function isNodeStream(source: object): source is NodeStream & AnyIterable {
  const { pipe, destroy, on } = source as Partial<NodeStream>;
  return [pipe, destroy, on].every((one) => typeof one === "function");
}
