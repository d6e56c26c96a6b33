/** Cancelling and progress of one connection, as its dialect spells them; and its streams. */
import type { Slot } from "../core/batch.js";
import { encodeNotification, encodeRequest } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import type { CallOptions } from "../core/contract.js";
import { isExempt, type Dialect, type ProgressToken } from "../core/dialect.js";
import { expected } from "../core/errors.js";
import type { Extensions, ExtensionsFactory } from "../core/extensions.js";
import type { AbortCause, IncomingCall } from "../core/incoming-call.js";
import { isObject, type NotificationMessage, type RequestMessage } from "../core/message.js";
import type { OutgoingCall } from "../core/outgoing-calls.js";
import { attempt } from "../core/tell.js";
import type { Frame, SendHandle } from "../core/transport.js";
import { lsp } from "./dialects/lsp.js";
import { ABORT, abortError, NEXT, Streams } from "./streams.js";

/** A longer progress token asks for no reports; in characters. */
const LONGEST_TOKEN = 1024;

/** The send handle of a queued cancel that leaves only if the other side understands it. */
class OptionalCancel implements SendHandle {
  sent = false;
}

/** The extensions of a connection. */
class StandardExtensions implements Extensions {
  readonly #connection: Connection;
  readonly #dialect: Dialect;
  /** Calls that asked for progress reports, by token. */
  #asked: Map<ProgressToken, OutgoingCall> | undefined;
  /** Queued calls that ask for reports when they leave, if the other side understands that. */
  #undecided: Map<unknown, OutgoingCall> | undefined;
  #streams: Streams | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#dialect = connection.config.dialect;
  }

  cancel(call: OutgoingCall, reason: unknown): void {
    const { cancel } = this.#dialect;
    const { outgoing, speaksDialect } = this.#connection;
    // A side that serves a stream must learn that the stream is no longer read, whatever else it understands.
    const isDue = speaksDialect || this.#streams?.opens(call) === true;
    if (!isDue && (call.sent || !outgoing.isHeld)) return;
    if (isExempt(this.#dialect, call.method)) return;
    try {
      const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
      // A call of a batch is still queued: the cancel leaves behind it.
      if (call.sent) this.#send(text);
      else outgoing.deliver(text, isDue ? undefined : new OptionalCancel(), undefined);
    } catch (error) {
      this.#connection.report(error);
    }
  }

  askProgress(call: OutgoingCall, params: unknown): unknown {
    const given = this.#dialect.progress.tokenIn(params);
    const { outgoing, speaksDialect } = this.#connection;
    if (given !== undefined || speaksDialect) return this.#ask(call, params, given);
    if (outgoing.isHeld) {
      const undecided = (this.#undecided ??= new Map<unknown, OutgoingCall>());
      undecided.set(call.id, call);
      call.whenSettled(() => undecided.delete(call.id));
    }
    return params;
  }

  rewriteQueued(text: string, handle: SendHandle): string | undefined {
    const undecided = this.#undecided;
    if (!this.#connection.speaksDialect) return handle instanceof OptionalCancel ? undefined : text;
    // A handle is a call, or the set of the calls of a batch.
    const mayAsk = handle instanceof Set || undecided?.has((handle as Partial<OutgoingCall>).id);
    if (undecided === undefined || mayAsk !== true) return text;
    const parsed = JSON.parse(text) as RequestMessage | RequestMessage[];
    const texts = [parsed].flat().flatMap((message) => {
      const call = undecided.get(message.id);
      return call === undefined ? JSON.stringify(message) : (this.#withToken(call, message.params) ?? []);
    });
    if (texts.length === 0) return undefined;
    return Array.isArray(parsed) ? `[${texts.join(",")}]` : texts[0];
  }

  #withToken(call: OutgoingCall, params: unknown): string | undefined {
    try {
      return encodeRequest(call.id, call.method, this.#ask(call, params) as object);
    } catch (error) {
      this.#connection.outgoing.fail(call.id, error);
      return undefined;
    }
  }

  /** Returns params that ask for reports of this call, by the token that they hold already or by a new one. */
  #ask(call: OutgoingCall, params: unknown, given?: ProgressToken): unknown {
    const asked = (this.#asked ??= new Map<ProgressToken, OutgoingCall>());
    let token = given ?? call.id;
    if (given !== undefined && asked.has(token))
      throw new Error(`a call with the progress token ${JSON.stringify(token)} waits already`);
    // The application may have given another call a token that equals this id.
    while (asked.has(token)) token = `${token}'`;
    const asking = given === undefined ? this.#dialect.progress.withToken(byName(params), token) : params;
    asked.set(token, call);
    call.whenSettled(() => asked.delete(token));
    return asking;
  }

  progressOf(call: IncomingCall): (value: unknown) => void {
    const { progress } = this.#dialect;
    const token = progress.tokenIn(call.params);
    // Each report repeats the token: a long one would make a short call cost its length many times.
    const isLong = typeof token === "string" && token.length > LONGEST_TOKEN;
    if (token === undefined || isLong || call.id === undefined) return () => {};
    return (value) => {
      if (call.isAwaited) this.#send(encodeNotification(progress.method, progress.params(token, value)));
    };
  }

  #send(text: string): void {
    if (!this.#connection.send(text)) this.#connection.outgoing.reportTooLarge(text);
  }

  control(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { method, params } = message;
    if ("id" in message) {
      if (method !== NEXT) return false;
      void this.#getStreams().next(message.id, params, slot);
    } else if (method === ABORT) this.#streams?.abort(params);
    else if (method === this.#dialect.cancel.method) this.#cancelled(params);
    else return method === this.#dialect.progress.method && this.#reported(params);
    return true;
  }

  #getStreams(): Streams {
    return (this.#streams ??= new Streams(this.#connection));
  }

  get isOffering(): boolean {
    return this.#streams?.isOffering === true;
  }

  get isReading(): boolean {
    return this.#streams?.isReading === true;
  }

  encodeRequest(call: OutgoingCall, params: unknown): string {
    return this.#getStreams().encodeRequest(call, params);
  }

  encodeResult(call: IncomingCall, result: unknown): string {
    return this.#getStreams().encodeResult(call, result);
  }

  serve(source: AsyncIterable<unknown>, call: IncomingCall): Promise<() => string> {
    return this.#getStreams().serve(source, call);
  }

  note(message: unknown, frame: Frame | undefined): void {
    this.#getStreams().note(message, frame);
  }

  stream(method: string, params: unknown, options: CallOptions | undefined): AsyncIterable<unknown> {
    return this.#getStreams().call(method, params, options);
  }

  iterate(stream: unknown): AsyncIterable<unknown> {
    return this.#getStreams().iterate(stream);
  }

  offer(source: unknown): object {
    return this.#getStreams().offer(source);
  }

  responseNotSent(call: IncomingCall): void {
    this.#streams?.responseNotSent(call);
  }

  resumed(): void {
    this.#streams?.resumed();
  }

  end(reason: unknown): void {
    this.#streams?.end(reason);
  }

  counts(): { streams: number; progress: number } {
    return { streams: this.#streams?.size ?? 0, progress: this.#asked?.size ?? 0 };
  }

  /** The other side cancelled a call. For an unknown id, looks into each table once, and stores nothing. */
  #cancelled(params: unknown): void {
    const id = this.#dialect.cancel.idOf(params);
    if (id === undefined) return;
    const cause = new Cancellation();
    this.#connection.incoming.cancel(id, cause);
    this.#streams?.cancel(id, cause);
  }

  #reported(params: unknown): boolean {
    const report = this.#dialect.progress.read(params);
    if (report === undefined) return false;
    const call = this.#asked?.get(report.token);
    if (call === undefined) return false;
    this.#connection.outgoing.restart(call);
    attempt(
      () => call.wait.onProgress!(report.value),
      (error) => this.#connection.report(error),
    );
    return true;
  }
}

/** Makes its error when a handler or a stream first reads it: an AbortError records its stack, which takes several microseconds. */
class Cancellation implements AbortCause {
  #reason: Error | undefined;

  get reason(): Error {
    return (this.#reason ??= abortError("the caller cancelled"));
  }
}

/** Returns params as an object: the token is a member of params by name, and has no place in params by position. */
function byName(params: unknown): object | undefined {
  const given = hasJsonForm(params) ? params.toJSON() : params;
  if (params === undefined || isObject(given)) return given as object | undefined;
  throw expected("params", "an object or absent where `onProgress` is given", params);
}

function hasJsonForm(value: unknown): value is { toJSON(): unknown } {
  return typeof (value as { toJSON?: unknown } | null)?.toJSON === "function";
}

/** Makes the extensions of a connection. */
export const standardExtensions: ExtensionsFactory = {
  defaultDialect: lsp,
  controlMethodsOf: ({ cancel, progress }) => new Set([cancel.method, progress.method, NEXT, ABORT]),
  create: (connection) => new StandardExtensions(connection),
};
