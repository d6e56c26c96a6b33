/** The serving end of a stream: reads an iterable a little ahead, and sends the values that are ready when they are requested. */
import { encodeError, encodeRawResult, exceeds, joinTexts, stringify, type MessageText } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { Connection } from "../peer/connection.js";
import { notInUse } from "../peer/feature.js";
import { clearDeadline, setDeadline } from "../base/deadlines.js";
import { isAbort, RpcError } from "../message/errors.js";
import type { IncomingCall, Slot } from "../peer/incoming-call.js";
import type { Id } from "../message/message.js";
import type { AnyIterable } from "../base/promises.js";
import { VALUE_COST, type Frame } from "../message/transport.js";
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
const MOST_CHECK_MS = 160;

/** The content of a reply: the values as JSON, and whether they are the last. */
export interface Portion {
  readonly values: readonly MessageText[];
  readonly isLast: boolean;
}

const NOTHING: Portion = { values: [], isLast: false };
const givenUp = (): RpcError => new RpcError(ErrorCode.NoSuchStream, "The stream was given up");
const TOO_MANY_NEXT = { code: ErrorCode.InvalidRequest, message: "Too many `next`" };

/** The part of an iterator that is used. */
interface Cursor {
  next(): Promise<IteratorResult<unknown>>;
  return?(value?: unknown): Promise<unknown>;
}

/** What follows the queued values of a stream. */
type State =
  /** Values of a source that was not asked for one yet, because no value was waited for. */
  | { readonly name: "unread" }
  /** Values of a source that is not asked for one: enough are queued, or the connection has no socket. */
  | { readonly name: "resting" }
  /** Values of a source that is asked for one. */
  | { readonly name: "reading" }
  /** Nothing. `reason`: as below. */
  | { readonly name: "finished"; readonly reason?: unknown }
  /** An error, with which one request for more values is refused. `reason`: why the stream was stopped, if it was. */
  | { readonly name: "failed"; readonly error: unknown; readonly reason?: unknown };

/** Whether the source may yield more values. */
function isOpen(state: State): state is Exclude<State, { name: "finished" | "failed" }> {
  return state.name !== "finished" && state.name !== "failed";
}

/** One iterable that the other side reads. */
export class ServedStream {
  /** The call whose result the stream is or stands in; `undefined` for a stream in params. */
  declare readonly call: IncomingCall | undefined;
  declare readonly token: number;
  /** Whether the token was sent. Until then it names no stream: a guessed token must not end the call. */
  declare isAnnounced: boolean;
  readonly #connection: Connection;
  readonly #table: Map<unknown, ServedStream>;
  readonly #source: AnyIterable;
  /** The call whose result the stream is. */
  readonly #whole: IncomingCall | undefined;
  /** The frame that the call came in: a generator keeps the params. */
  readonly #frame: Frame | undefined;
  #state: State = { name: "unread" };
  #iterator: Cursor | undefined;
  /** The parts of a view that the source has yielded: that of a `Blob` may yield one of any length. */
  #parts: Iterator<unknown> | undefined;
  /** Queued values, as JSON. */
  #queued: MessageText[] = [];
  /** The length of all queued values. */
  #length = 0;
  /** How many requests for more values wait for their responses. */
  #asked = 0;
  /** Settles when the last of these requests is answered. The next one is answered after that. */
  #answered = Promise.resolve();
  /** Ends the wait for a value. */
  #wake: (() => void) | undefined;

  /** Adds the stream to `table`, the streams of the connection. For the other arguments, see `Streams.serveStream`. */
  constructor(
    connection: Connection,
    table: Map<unknown, ServedStream>,
    token: number,
    source: AnyIterable,
    isWhole: boolean,
    call?: IncomingCall,
  ) {
    const { transport } = connection;
    this.call = call;
    this.token = token;
    this.isAnnounced = !isWhole;
    this.#connection = connection;
    this.#table = table;
    this.#source = source;
    this.#whole = isWhole ? call : undefined;
    this.#frame = call && (call.frame ?? transport.currentFrame);
    this.#frame?.keep();
    table.set(token, this);
    connection.incoming.counter.streams++;
    transport.keeps?.(STREAM_COST);
    // A Node stream emits errors also while it is not read. Without a listener, they would end the process.
    if (isNodeStream(source)) source.on("error", (error) => this.#fail(error));
  }

  /** Changes the state. A wait for a value ends if none follows. */
  #become(state: State): void {
    this.#state = state;
    if (!isOpen(state)) this.#wake?.();
  }

  /** Ends the stream with an error of its source, after the queued values. If no value follows them, reports the error. */
  #fail(error: unknown): void {
    const state = this.#state;
    if (isOpen(state)) this.#become({ name: "failed", error });
    else if (!isAbort(error, state.reason)) {
      this.#connection.incoming.reportFailure(this.call?.id, this.call?.method ?? NEXT, error);
    }
  }

  /** Drops the queued values, and closes the source. Unless `isAborted` by the reader, a pending request fails. */
  stop(reason: unknown, isAborted = false): void {
    if (!this.#remove()) return;
    // Aborted before `return()` is called: a source that waits for its signal would never return.
    if (this.isAnnounced) this.#whole?.abort({ reason });
    const state = this.#state;
    this.#become(isAborted ? { name: "finished" } : { name: "failed", error: givenUp(), reason });
    this.#count(-this.#length, -this.#queued.length);
    this.#queued = [];
    this.#parts = undefined;
    if (isOpen(state)) void this.#close();
    // The source failed, and no request came after that.
    else if (state.name === "failed") this.#fail(state.error);
  }

  /** Called when values of the stream were sent, or will not be sent. */
  readonly onSent = (isSent: boolean): void => {
    if (!isSent) this.stop(new Error("the response was not sent"));
  };

  /** Removes the stream from the table. Returns false if it was removed before. */
  #remove(): boolean {
    if (!this.#table.delete(this.token)) return false;
    this.#connection.incoming.counter.streams--;
    this.#connection.transport.keeps?.(-STREAM_COST);
    this.#frame?.drop();
    return true;
  }

  /** Continues to read: the connection has a socket again. */
  resumed(): void {
    this.#wake?.();
    if (this.#state.name === "resting") void this.#readAhead();
  }

  get #canRead(): boolean {
    const most = this.#parts === undefined ? MOST_AHEAD : MOST_BYTES_AHEAD;
    return isOpen(this.#state) && this.#length < most && this.#queued.length < MOST_VALUES;
  }

  async #readAhead(): Promise<void> {
    if (this.#state.name === "reading" || !isOpen(this.#state)) return;
    const { flow, config } = this.#connection;
    this.#become({ name: "reading" });
    try {
      while (this.#canRead && !flow.isDown) {
        const part = this.#parts?.next();
        const { done, value } =
          part?.done === false ? part : await (this.#iterator ??= iteratorOf(this.#source)).next();
        // `stop` may have come meanwhile.
        if (!isOpen(this.#state)) return;
        if (done === true) this.#become({ name: "finished" });
        else if (config.bytes && ArrayBuffer.isView(value)) this.#parts = config.bytes.parts(value, MOST_AHEAD);
        else this.#add(value);
      }
    } catch (error) {
      this.#iteratorFailed(error);
    }
    if (isOpen(this.#state)) this.#become({ name: "resting" });
  }

  #add(value: unknown): void {
    const connection = this.#connection;
    try {
      if (ArrayBuffer.isView(value) && !connection.config.bytes) throw notInUse("bytes");
      connection.config.checks?.checkSent("stream", this.call?.method ?? NEXT, value);
      const text = stringify(value) ?? "null";
      // The source may fill the same buffer again.
      if (typeof text !== "string") text.keep();
      if (exceeds(text, connection.incoming.maxReplyBytes - ENVELOPE_BYTES))
        throw new RpcError(ErrorCode.ResponseTooLarge, "Value of a stream is too large");
      this.#queued.push(text);
      this.#count(text.length, 1);
      this.#wake?.();
    } catch (error) {
      this.#fail(error);
      // It did not fail by itself, so it must be closed.
      void this.#close();
    }
  }

  /** Counts values that are queued, or no longer are. */
  #count(characters: number, values: number): void {
    this.#length += characters;
    this.#connection.transport.keeps?.(characters + values * VALUE_COST);
  }

  /** Closes the source. Called last, because `return` may wait for a pending `next`. */
  async #close(): Promise<void> {
    const source = this.#source;
    try {
      if (isNodeStream(source)) source.destroy();
      else await (this.#iterator ??= iteratorOf(source)).return?.();
    } catch (error) {
      this.#iteratorFailed(error);
    }
  }

  /** The iterator of a Node stream also fails if the stream is destroyed. The stream itself emits its errors. */
  #iteratorFailed(error: unknown): void {
    if (isOpen(this.#state) || !isNodeStream(this.#source)) this.#fail(error);
  }

  /** Resolves when values are queued or the source has ended, at the latest after `waitMs`. */
  async ready(waitMs: number): Promise<void> {
    void this.#readAhead();
    while (isOpen(this.#state) && this.#queued.length === 0 && (await this.#arrival(waitMs)));
    // Waits until a quick source yields no more.
    for (let seen = -1; seen !== this.#queued.length && this.#canRead;) {
      seen = this.#queued.length;
      for (let tick = 0; tick < QUIET_TICKS; tick++) await Promise.resolve();
    }
  }

  /** Waits for a value or the end. Resolves to false if neither comes within `waitMs`. */
  #arrival(waitMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const late = { deadline: 0, expire: () => resolve(false) };
      setDeadline(late, waitMs);
      this.#wake = () => {
        clearDeadline(late);
        resolve(true);
      };
    });
  }

  /** Takes the queued values that fit into one reply. After the last value, throws the error of a source that failed. */
  take(): Portion {
    const state = this.#state;
    const queued = this.#queued;
    if (queued.length === 0 && state.name === "failed") {
      // A request that waits behind this one gets no values.
      this.#become({ name: "finished", reason: state.reason });
      this.#remove();
      throw state.error;
    }
    // One value, and more while they fit even if each character took three bytes.
    const most = this.#connection.incoming.maxReplyBytes / 3 - ENVELOPE_BYTES;
    let taken = 0;
    let characters = 0;
    while (taken < queued.length && (taken === 0 || characters + taken + queued[taken]!.length < most))
      characters += queued[taken++]!.length;
    this.#count(-characters, -taken);
    const values = queued.splice(0, taken);
    const isLast = state.name === "finished" && queued.length === 0;
    if (isLast) this.#remove();
    void this.#readAhead();
    return { values, isLast };
  }

  /** Whether values wait until the connection has room for them. */
  get #isFull(): boolean {
    const { flow, config } = this.#connection;
    return this.#queued.length > 0 && (flow.isDown || flow.unsentBytes > config.marks.room);
  }

  /** Returns the JSON of the stream as a whole result, with the queued values if the connection has room for them. */
  toJson(): MessageText {
    const { call, token } = this;
    // If the call was cancelled meanwhile, the end of the source is not its result.
    if (call?.abortCause !== undefined) throw call.abortCause.reason;
    this.isAnnounced = true;
    const { values, isLast } = this.#isFull ? NOTHING : this.take();
    if (values.length === 0 && !isLast) return `{"token":${token}}`;
    return joinTexts(isLast ? '{"values":[' : `{"token":${token},"values":[`, values, "]}");
  }

  /** Answers a request for more values when values are ready and the connection has room for them, or the stream is over. */
  answer(id: Id, slot: Slot): void {
    const { flow, incoming } = this.#connection;
    // Refused without an RpcError, whose stack is expensive: the other side can send many.
    if (this.#asked === MOST_NEXT) return incoming.respond(id, encodeError(id, TOO_MANY_NEXT), slot);
    this.#asked++;
    this.#answered = this.#answered.then(async () => {
      try {
        await this.ready(Infinity);
        // Checked right before sending: if many streams are ready at once, each must count what the streams before it sent.
        for (let ms = ROOM_CHECK_MS; this.#isFull; ms = Math.min(2 * ms, MOST_CHECK_MS))
          await this.#arrival(flow.isDown ? Infinity : ms);
        // Before the reply: its reader may request more at once.
        this.#asked--;
        const { values, isLast } = this.take();
        const text = encodeRawResult(id, joinTexts('{"values":[', values, `],"finished":${isLast}}`));
        incoming.respond(id, text, slot, this.onSent);
      } catch (error) {
        incoming.respond(id, incoming.encodeFailure(id, this.call?.method ?? NEXT, error), slot);
      }
    });
  }
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
function isNodeStream(
  source: object,
): source is AnyIterable & { destroy(): void; on(event: "error", listener: (error: unknown) => void): unknown } {
  return ["pipe", "destroy", "on"].every((name) => typeof (source as Record<string, unknown>)[name] === "function");
}
