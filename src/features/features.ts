/** Cancelling, progress and streams of one connection, as its dialect spells them. */
import { encodeNotification, encodeRequest } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { CallContext, type AbortCause } from "../core/context.js";
import type { Conventions } from "../core/conventions.js";
import { isExempt, type Dialect, type ProgressToken } from "../core/dialect.js";
import type { Slot } from "../core/batch.js";
import { expected } from "../core/errors.js";
import { isObject, type NotificationMessage, type RequestMessage } from "../core/message.js";
import type { PendingCall } from "../core/pending.js";
import { attempt } from "../core/tell.js";
import type { Ticket } from "../core/transport.js";
import { ABORT, abortError, NEXT, Streams, whenSettled } from "./streams.js";

/** The methods that these features take, in that dialect. */
export function controlsOf({ cancel, progress }: Dialect): ReadonlySet<string> {
  return new Set([cancel.method, progress.method, NEXT, ABORT]);
}

/** A progress token longer than this asks for nothing; in characters. */
const LONGEST_TOKEN = 1024;

/** The ticket of a held cancel that leaves only if the other side understands it. */
class OptionalCancel implements Ticket {
  sent = false;
}

/** What a connection has beyond JSON-RPC 2.0. */
export class Features implements Conventions {
  readonly #connection: Connection;
  readonly #dialect: Dialect;
  /** Calls that asked for reports, by the token they are to come with. */
  #asked: Map<ProgressToken, PendingCall> | undefined;
  /** Held calls that ask for reports when they leave, if the other side understands that. */
  #undecided: Map<unknown, PendingCall> | undefined;
  #streams: Streams | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#dialect = connection.config.dialect;
  }

  cancel(call: PendingCall, reason: unknown): void {
    const { cancel } = this.#dialect;
    const { outgoing, speaksDialect } = this.#connection;
    // Whoever serves a stream must be told that nobody will read it, whatever else it understands.
    const isDue = speaksDialect || this.#streams?.opens(call) === true;
    if (!isDue && (call.sent || !outgoing.isHeld)) return;
    if (isExempt(this.#dialect, call.method)) return;
    try {
      const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
      // A call of a batch that waits to be let go is still to come: the cancel leaves behind it.
      if (call.sent) this.#send(text);
      else outgoing.deliver(text, isDue ? undefined : new OptionalCancel(), undefined);
    } catch (error) {
      this.#connection.report(error);
    }
  }

  askProgress(call: PendingCall, params: unknown): unknown {
    const given = this.#dialect.progress.tokenIn(params);
    const { outgoing, speaksDialect } = this.#connection;
    if (given !== undefined || speaksDialect) return this.#ask(call, params, given);
    if (outgoing.isHeld) {
      const undecided = (this.#undecided ??= new Map<unknown, PendingCall>());
      undecided.set(call.id, call);
      whenSettled(call, () => undecided.delete(call.id));
    }
    return params;
  }

  decide(text: string, ticket: Ticket): string | undefined {
    const undecided = this.#undecided;
    if (!this.#connection.speaksDialect) return ticket instanceof OptionalCancel ? undefined : text;
    // A ticket is a call, or the set of a batch's calls.
    const mayAsk = ticket instanceof Set || undecided?.has((ticket as Partial<PendingCall>).id);
    if (undecided === undefined || mayAsk !== true) return text;
    const parsed = JSON.parse(text) as RequestMessage | RequestMessage[];
    const texts = [parsed].flat().flatMap((message) => {
      const call = undecided.get(message.id);
      return call === undefined ? JSON.stringify(message) : (this.#withToken(call, message.params) ?? []);
    });
    if (texts.length === 0) return undefined;
    return Array.isArray(parsed) ? `[${texts.join(",")}]` : texts[0];
  }

  #withToken(call: PendingCall, params: unknown): string | undefined {
    try {
      return encodeRequest(call.id, call.method, this.#ask(call, params) as object);
    } catch (error) {
      this.#connection.outgoing.pending.fail(call.id, error);
      return undefined;
    }
  }

  /** Returns params that ask for reports of this call, by the token that they hold already or by a new one. */
  #ask(call: PendingCall, params: unknown, given?: ProgressToken): unknown {
    const asked = (this.#asked ??= new Map<ProgressToken, PendingCall>());
    let token = given ?? call.id;
    if (given !== undefined && asked.has(token))
      throw new Error(`a call with the progress token ${JSON.stringify(token)} waits already`);
    // Another call was given a token of its own that equals this id.
    while (asked.has(token)) token = `${token}'`;
    const asking = given === undefined ? this.#dialect.progress.withToken(byName(params), token) : params;
    asked.set(token, call);
    whenSettled(call, () => asked.delete(token));
    return asking;
  }

  reporter(context: CallContext, params: unknown): (value: unknown) => void {
    const { progress } = this.#dialect;
    const token = progress.tokenIn(params);
    // Each report repeats it: a long one would make a short call cost its length many times.
    const isLong = typeof token === "string" && token.length > LONGEST_TOKEN;
    if (token === undefined || isLong || context.id === undefined) return () => {};
    return (value) => {
      if (!CallContext.isAwaited(context)) return;
      this.#send(encodeNotification(progress.method, progress.params(token, value)));
    };
  }

  #send(text: string): void {
    if (!this.#connection.send(text)) this.#connection.outgoing.reportTooLarge(text);
  }

  control(message: RequestMessage | NotificationMessage, slot: Slot | undefined): boolean {
    const { method, params } = message;
    if ("id" in message) {
      if (method !== NEXT) return false;
      void this.streams.next(message.id, params, slot);
    } else if (method === ABORT) this.#streams?.abort(params);
    else if (method === this.#dialect.cancel.method) this.#cancelled(params);
    else return method === this.#dialect.progress.method && this.#reported(params);
    return true;
  }

  get streams(): Streams {
    return (this.#streams ??= new Streams(this.#connection));
  }

  unsent(context: CallContext): void {
    this.#streams?.unsent(context);
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

  /** The caller of a call here no longer waits. A cancel of an unknown id costs one lookup in each table, and stores nothing. */
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
    this.#connection.outgoing.pending.restart(call);
    attempt(
      () => call.wait.onProgress!(report.value),
      (error) => this.#connection.report(error),
    );
    return true;
  }
}

/** Makes its error when a handler or a stream first reads it: an AbortError with its stack costs several microseconds. */
class Cancellation implements AbortCause {
  #reason: Error | undefined;

  get reason(): Error {
    return (this.#reason ??= abortError("the caller cancelled"));
  }
}

/** The token travels among params by name; by position it has no place. */
function byName(params: unknown): object | undefined {
  const given = hasJsonForm(params) ? params.toJSON() : params;
  if (params === undefined || isObject(given)) return given as object | undefined;
  throw expected("params", "an object or absent where `onProgress` is given", params);
}

function hasJsonForm(value: unknown): value is { toJSON(): unknown } {
  return typeof (value as { toJSON?: unknown } | null)?.toJSON === "function";
}
