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
import { expected, mistake } from "../message/errors.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { AbortCause, IncomingCall, Slot } from "../peer/incoming-call.js";
import { member, type Id, type NotificationMessage, type RequestMessage } from "../message/message.js";
import { isSignal } from "../message/options.js";
import { OutgoingCall } from "../peer/outgoing-call.js";
import type { AnyIterable } from "../base/promises.js";
import { ABORT, iterateOnce, NEXT, NO_LONGER_READ, opensStream, StreamReader, tokenOf, type Source } from "./reader.js";
import { serveStream, type ServedStream } from "./served.js";

/** If the first value of a stream takes longer, the call is answered without a value, so that it does not time out. */
const FIRST_VALUE_WAIT_MS = 100;

const NO_SUCH_STREAM = { code: ErrorCode.NoSuchStream, message: "No such stream" };

/** The streams of one connection. */
export class Streams implements OwnPart {
  declare readonly connection: Connection;
  /** The streams that the other side reads, and that have not ended, by token. */
  declare readonly streams: Map<unknown, ServedStream>;
  declare lastToken: number;
  /** Whether a stream was offered: then every message is encoded here. */
  #isOffering = false;
  /** The call whose message is being encoded. */
  #encoding: IncomingCall | OutgoingCall | undefined;

  constructor(connection: Connection) {
    this.connection = connection;
    this.streams = new Map();
    this.lastToken = 0;
  }

  get size(): number {
    return this.streams.size;
  }

  receive(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const id = "id" in message ? message.id : undefined;
    if (message.method !== (id === undefined ? ABORT : NEXT)) return false;
    const named = this.streams.get(member(message.params, "token", 0));
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
    for (const stream of this.streams.values()) {
      const { call } = stream;
      if (call?.id === id && !isExempt(this.connection.config.dialect, call.method)) stream.stop(cause.reason);
    }
  }

  /** A side that serves a stream must learn that it is no longer read. */
  mustCancel(call: OutgoingCall): boolean {
    return opensStream(call);
  }

  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown> {
    const { outgoing } = this.connection;
    const given: unknown = options?.signal;
    const signal = isSignal(given) ? given : undefined;
    return this.read({
      method,
      signal,
      // If the given value is no signal, the options are passed on unchanged, so that `request` rejects them.
      open: (opening, sink) => {
        // The stream of a call that is made again would belong to another connection than its reader.
        const once = given === signal ? ({ ...options, signal: opening, retry: false } as const) : options;
        return outgoing.request(method, params, once, sink);
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
      const stream = serveStream(this, source, isParam ? undefined : call, false);
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

  async serve(source: AnyIterable, call: IncomingCall): Promise<() => MessageText> {
    const stream = serveStream(this, source, call, true);
    await stream.ready(FIRST_VALUE_WAIT_MS);
    return () => stream.toJson();
  }

  resumed(): void {
    for (const stream of this.streams.values()) stream.resumed();
  }

  end(reason: unknown): void {
    for (const stream of this.streams.values()) stream.stop(reason);
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
