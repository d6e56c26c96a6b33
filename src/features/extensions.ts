/**
 * The extensions of one connection: cancelling and progress, in the messages of its dialect, and streams.
 *
 * Streams are the enumerables of StreamJsonRpc: `{ token, values }` stands for a stream, `$/enumerator/next` asks for more
 * values, `$/enumerator/abort` stops the stream. Source: StreamJsonRpc, "Asynchronous enumerables".
 */
import type { Slot } from "../core/batch.js";
import { encodeError, encodeNotification, encodeRequest, encodeResult, type MessageText } from "../core/codec.js";
import * as ErrorCode from "../core/codes.js";
import type { Connection } from "../core/connection.js";
import type { CallOptions } from "../core/contract.js";
import { isExempt } from "../core/dialect.js";
import { expected, mistake } from "../core/errors.js";
import type { Extensions, ExtensionsFactory } from "../core/extensions.js";
import type { AbortCause, IncomingCall } from "../core/incoming-call.js";
import { member, type NotificationMessage, type RequestMessage } from "../core/message.js";
import { isSignal } from "../core/options.js";
import { OutgoingCall } from "../core/outgoing-calls.js";
import type { AnyIterable } from "../core/promises.js";
import type { SendHandle } from "../core/transport.js";
import { lsp } from "./dialects/lsp.js";
import { Progress } from "./progress.js";
import { ABORT, iterateOnce, NEXT, NO_LONGER_READ, opensStream, readStream, tokenOf, type Source } from "./reader.js";
import { serveStream, type ServedStream, type ServedStreams } from "./served.js";

/** If the first value of a stream takes longer, the call is answered without a value, so that it does not time out. */
const FIRST_VALUE_WAIT_MS = 100;

/** The send handle of a cancel. */
interface CancelHandle extends SendHandle {
  /** Whether the cancel is sent only if the other side understands it. */
  readonly isOptional: boolean;
}

/** The extensions of one connection. */
export class StandardExtensions implements Extensions, ServedStreams {
  declare readonly connection: Connection;
  declare readonly progress: Progress;
  /** The streams that the other side reads, by token. */
  declare readonly streams: Map<unknown, ServedStream>;
  declare isOffering: boolean;
  declare lastToken: number;
  /** The call whose message is being encoded. */
  #encoding: IncomingCall | OutgoingCall | undefined;

  constructor(connection: Connection) {
    this.connection = connection;
    this.progress = new Progress(connection);
    this.streams = new Map();
    this.isOffering = false;
    this.lastToken = 0;
  }

  control(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { method, params } = message;
    const { config, incoming } = this.connection;
    const { cancel, progress } = config.dialect;
    if ("id" in message) {
      if (method !== NEXT) return false;
      const { id } = message;
      const stream = this.#announced(params);
      // Refused without an RpcError, whose stack is expensive: the other side can send any token.
      if (stream === undefined) incoming.reply(id, encodeError(id, NO_SUCH_STREAM), slot);
      else stream.answer(id, slot);
    } else if (method === ABORT) this.#announced(params)?.stop(abortError(NO_LONGER_READ), true);
    else if (method === cancel.method) this.#cancelled(params);
    else return method === progress.method && this.progress.receive(params);
    return true;
  }

  /** Returns the stream whose token is in the params of a control message, if the token was sent. */
  #announced(params: unknown): ServedStream | undefined {
    const stream = this.streams.get(member(params, "token", 0));
    return stream?.isAnnounced ? stream : undefined;
  }

  /**
   * Cancels the calls of the other side that have the id in `params`. Also stops the streams in their responses, which may have
   * crossed the cancel: finding these among 256, the default of `maxStreams`, takes about 2 µs. Stores nothing of an unknown id.
   */
  #cancelled(params: unknown): void {
    const { config, incoming } = this.connection;
    const id = config.dialect.cancel.idOf(params);
    if (id === undefined) return;
    const cause = cancellation();
    incoming.cancel(id, cause);
    for (const { call, stop } of this.streams.values()) {
      if (call?.id === id && !isExempt(config.dialect, call.method)) stop(cause.reason);
    }
  }

  cancel(call: OutgoingCall, reason: unknown): void {
    const { outgoing, opening, flow, sink, speaksDialect, config } = this.connection;
    const { cancel } = config.dialect;
    // A side that serves a stream must learn that the stream is no longer read, whatever else it understands.
    const isDue = speaksDialect || opensStream(call);
    if (!isDue && (call.sent || opening === undefined)) return;
    if (isExempt(config.dialect, call.method)) return;
    try {
      const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
      const handle: CancelHandle = { sent: false, isOptional: !isDue };
      // If the call is in a batch that is still queued, the cancel is queued behind it.
      if (!(call.sent ? flow : sink).send(text, handle)) outgoing.failUnsent(text);
    } catch (error) {
      this.connection.report(error, { method: call.method, id: call.id });
    }
  }

  rewriteQueued(text: MessageText, handle: SendHandle): MessageText | undefined {
    if (this.connection.speaksDialect) return this.progress.rewrite(text, handle);
    return (handle as Partial<CancelHandle>).isOptional === true ? undefined : text;
  }

  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown> {
    const { outgoing } = this.connection;
    const given: unknown = options?.signal;
    const signal = isSignal(given) ? given : undefined;
    return this.read({
      method,
      signal,
      // A value that is no signal is refused as any bad option: when the call is made.
      open: (opening) => {
        // The stream of a call that is made again would belong to another connection than its reader.
        const once = given === signal ? ({ ...options, signal: opening, retry: false } as const) : options;
        return outgoing.request(method, params, once);
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
    return readStream(this.connection, source);
  }

  offer(source: unknown): object {
    if (!isIterable(source)) throw expected("source", "an iterable or web stream", source);
    this.isOffering = true;
    let isSent = false;
    const toJSON = (): object => {
      const call = this.#encoding;
      if (call === undefined) throw mistake("a stream can be sent only in a request or a result");
      if (isSent) throw mistake("a stream can be sent once");
      isSent = true;
      const isParam = call instanceof OutgoingCall;
      const { token, stop } = serveStream(this, source, isParam ? undefined : call, false);
      if (isParam) call.whenSettled(() => stop(new Error("the call has ended")));
      return { token };
    };
    return { toJSON };
  }

  encode(call: IncomingCall | OutgoingCall, content: unknown): MessageText {
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
    return stream.toJson;
  }

  resumed(): void {
    for (const stream of this.streams.values()) stream.resumed();
  }

  end(reason: unknown): void {
    for (const stream of this.streams.values()) stream.stop(reason);
  }
}

const NO_SUCH_STREAM = { code: ErrorCode.NoSuchStream, message: "No such stream" };

/**
 * Returns the cause of a cancel. Makes its error when a handler or a stream first reads it: an AbortError records its stack,
 * which takes several microseconds.
 */
function cancellation(): AbortCause {
  let error: Error | undefined;
  return {
    get reason() {
      return (error ??= abortError("the caller cancelled"));
    },
  };
}

/** Returns the error that the signal of a handler aborts with when the caller cancelled. */
function abortError(message: string): Error {
  return new DOMException(message, "AbortError");
}

function isIterable(value: unknown): value is AnyIterable {
  return (
    typeof value === "object" &&
    value !== null &&
    // Not every browser has the async iterator of a web stream.
    (Symbol.asyncIterator in value || Symbol.iterator in value || "getReader" in value)
  );
}

/** Makes the extensions of a connection. */
export const standardExtensions: ExtensionsFactory = {
  defaultDialect: lsp,
  controlMethodsOf: ({ cancel, progress }) => new Set([cancel.method, progress.method, NEXT, ABORT]),
  create: (connection) => new StandardExtensions(connection),
};
