/**
 * The streams of one connection, in both directions. They are the enumerables of StreamJsonRpc: `{ token, values }` stands for a
 * stream, `$/enumerator/next` requests more values, and `$/enumerator/abort` stops the stream. Source: StreamJsonRpc,
 * "Asynchronous enumerables".
 */
import { encodeError, encodeRequest, encodeResult, type MessageText } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { Connection } from "../peer/connection.js";
import type { CallOptions } from "../contract/contract.js";
import { isExempt } from "../peer/dialect.js";
import { expected, mistake, RpcError } from "../message/errors.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { Sink } from "../peer/flow.js";
import { onReply, type AbortCause, type IncomingCall, type Slot } from "../peer/incoming-call.js";
import { member, type Id, type NotificationMessage, type RequestMessage } from "../message/message.js";
import { isSignal } from "../message/options.js";
import { OutgoingCall } from "../peer/outgoing-call.js";
import type { AnyIterable } from "../base/promises.js";
import { ABORT, iterateOnce, NEXT, NO_LONGER_READ, StreamReader, tokenOf, type Source } from "./reader.js";
import { ServedStream } from "./served.js";

/** If the first value of a stream takes longer, the call is answered without a value, so that it does not time out. */
const FIRST_VALUE_WAIT_MS = 100;

const NO_SUCH_STREAM = { code: ErrorCode.NoSuchStream, message: "No such stream" };
/** Made with the first: a `new Error` at the top of a module would stay in a page that does not use it. */
let noResponse: AbortCause | undefined;

/** The streams of one connection. */
export class Streams implements OwnPart {
  declare readonly connection: Connection;
  /** The streams that the other side reads, and that have not ended, by token. */
  readonly #served = new Map<unknown, ServedStream>();
  #lastToken = 0;
  /** Whether a stream was offered: then every message is encoded here. */
  #isOffering = false;
  /** The call whose message is being encoded. */
  #encoding: IncomingCall | OutgoingCall | undefined;

  constructor(connection: Connection) {
    this.connection = connection;
  }

  receive(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const id = "id" in message ? message.id : undefined;
    if (message.method !== (id === undefined ? ABORT : NEXT)) return false;
    const named = this.#served.get(member(message.params, "token", 0));
    const stream = named?.isAnnounced ? named : undefined;
    if (id === undefined) stream?.stop(new DOMException(NO_LONGER_READ, "AbortError"), true);
    else if (stream !== undefined) stream.answer(id, slot);
    // Refused without an RpcError, whose stack is expensive: the other side can send any token.
    else this.connection.incoming.respond(id, encodeError(id, NO_SUCH_STREAM), slot);
    return true;
  }

  /**
   * Stops the streams in the responses to the calls with that id, which may have crossed their cancel. Finding these among 256, the
   * default of `maxStreams`, takes about 2 µs.
   */
  cancelled(id: Id, cause: AbortCause): void {
    for (const stream of this.#served.values()) {
      const { call } = stream;
      if (call?.id === id && !isExempt(this.connection.config.dialect, call.method)) stream.stop(cause.reason);
    }
  }

  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown> {
    const { outgoing, flow } = this.connection;
    const given: unknown = options?.signal;
    const signal = isSignal(given) ? given : undefined;
    return this.read({
      method,
      signal,
      // If the given value is no signal, the options are passed on unchanged, so that `request` rejects them.
      open: (opening, sink) => {
        const send: Sink["send"] = (text, call) => {
          // A side that serves a stream must learn that it is no longer read.
          (call as OutgoingCall).mustCancel = true;
          return (sink ?? flow.sink).send(text, call);
        };
        // The stream of a call that is made again would belong to another connection than its reader.
        const once = given === signal ? ({ ...options, signal: opening, retry: false } as const) : options;
        return outgoing.request(method, params, once, { send });
      },
    });
  }

  iterate(stream: unknown): AsyncIterable<unknown> {
    if (typeof stream !== "object" || stream === null) throw expected("stream", "a stream out of a message", stream);
    iterateOnce(stream);
    return this.read({ method: NEXT, open: async () => stream, token: tokenOf(stream) });
  }

  /** Reads a stream on the other side. */
  read(source: Source): AsyncIterable<unknown> {
    return new StreamReader(this.connection, source);
  }

  offer(source: unknown): object {
    if (!isIterable(source)) throw expected("source", "an iterable or web stream", source);
    this.#isOffering = true;
    let isSent = false;
    const toJSON = (): object => {
      const call = this.#encoding;
      if (call === undefined) throw mistake("a stream can be sent only in a request or a result");
      if (isSent) throw mistake("a stream can be sent once");
      isSent = true;
      const isParam = call instanceof OutgoingCall;
      const stream = this.serveStream(source, isParam ? undefined : call, false);
      if (isParam) call.whenSettled(() => stream.stop(new Error("the call has ended")));
      return { token: stream.token };
    };
    return { toJSON };
  }

  encode(call: IncomingCall | OutgoingCall, content: unknown): MessageText | undefined {
    if (!this.#isOffering) return undefined;
    const outer = this.#encoding;
    this.#encoding = call;
    try {
      if (call instanceof OutgoingCall) return encodeRequest(call.id, call.method, content as object);
      return encodeResult(call.id ?? null, content);
    } finally {
      this.#encoding = outer;
    }
  }

  /**
   * Serves an iterable, which is read when its values are first waited for. `call`: the call whose result the stream is or stands
   * in; `undefined` for a stream in params. `isWhole`: the stream is the whole result, so the signal of the call lives as long as
   * the stream. If the caller no longer waits or too many streams are open, closes the source and throws.
   */
  protected serveStream(source: AnyIterable, call: IncomingCall | undefined, isWhole: boolean): ServedStream {
    const refusal = this.#whyRefused(call);
    const token = refusal === undefined ? this.#newToken() : 0;
    const stream = new ServedStream(this.connection, this.#served, token, source, isWhole, call);
    if (refusal !== undefined) {
      stream.stop(refusal.reason);
      throw refusal.reason;
    }
    if (call !== undefined) onReply(call, stream.onSent);
    return stream;
  }

  /**
   * A reciproc peer may still hold the token of a stream of an earlier connection: it must name no stream of this one. While
   * messages are queued, it is not known whether the other side is a reciproc peer.
   */
  #newToken(): number {
    const { transport, flow } = this.connection;
    if (this.#lastToken === 0 && (transport.isReciproc === true || flow.openingQueue !== undefined))
      this.#lastToken = Math.floor(Math.random() * 2 ** 32);
    return ++this.#lastToken;
  }

  /** Returns why a stream cannot be served: its caller no longer waits, or too many streams are open. */
  #whyRefused(call: IncomingCall | undefined): AbortCause | undefined {
    if (call?.abortCause !== undefined) return call.abortCause;
    if (call !== undefined && call.id === undefined)
      return (noResponse ??= { reason: new Error("a notification has no response") });
    const { config, incoming } = this.connection;
    const { maxStreams } = config.limits;
    if (incoming.counter.streams < maxStreams) return undefined;
    if (call !== undefined) return { reason: new RpcError(ErrorCode.Busy, "Too many streams are open") };
    return { reason: new RangeError(`\`limits.maxStreams\`, ${maxStreams}, is reached`) };
  }

  async serve(source: AnyIterable, call: IncomingCall): Promise<() => MessageText> {
    const stream = this.serveStream(source, call, true);
    await stream.ready(FIRST_VALUE_WAIT_MS);
    return () => stream.toJson();
  }

  resumed(): void {
    for (const stream of this.#served.values()) stream.resumed();
  }

  end(reason: unknown): void {
    for (const stream of this.#served.values()) stream.stop(reason);
  }
}

function isIterable(value: unknown): value is AnyIterable {
  return (
    typeof value === "object" &&
    value !== null &&
    // Not every browser has the async iterator of a web stream.
    (Symbol.asyncIterator in value || Symbol.iterator in value || "getReader" in value)
  );
}

/**
 * The feature of streams: `peer.stream`, `peer.iterate`, `peer.offer`, and results that are iterables. On a page:
 * `connect(url, { use: [streams] })`. `reciproc/node` and `reciproc/testing` use it by default. When the connection is lost or
 * closes, reading rejects, and sources are closed. Source: StreamJsonRpc, "Asynchronous enumerables".
 */
export const streams: Feature<Streams> = {
  name: "streams",
  methods: () => [NEXT, ABORT],
  create: (connection) => new Streams(connection as Connection),
};
