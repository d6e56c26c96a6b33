/** Progress reports of one connection, as its dialect spells them. */
import { encodeNotification, encodeRequest } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import type { ProgressDialect, ProgressToken } from "../core/dialect.js";
import { expected } from "../core/errors.js";
import type { IncomingCall } from "../core/incoming-call.js";
import { isObject, type RequestMessage } from "../core/message.js";
import type { OutgoingCall } from "../core/outgoing-calls.js";
import { attempt } from "../core/tell.js";
import type { SendHandle } from "../core/transport.js";

/** A longer progress token asks for no reports; in characters. */
const LONGEST_TOKEN = 1024;

/** The calls that asked for progress reports, and the reports of handlers. */
export class Progress {
  readonly #connection: Connection;
  readonly #dialect: ProgressDialect;
  /** Calls that asked for progress reports, by token. */
  #asked: Map<ProgressToken, OutgoingCall> | undefined;
  /** Queued calls that ask for reports when they leave, if the other side understands that. */
  #undecided: Map<unknown, OutgoingCall> | undefined;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#dialect = connection.config.dialect.progress;
  }

  /** How many calls asked for reports. */
  get size(): number {
    return this.#asked?.size ?? 0;
  }

  /** As `Extensions.askProgress`. */
  ask(call: OutgoingCall, params: unknown): unknown {
    const given = this.#dialect.tokenIn(params);
    const { outgoing, speaksDialect } = this.#connection;
    if (given !== undefined || speaksDialect) return this.#register(call, params, given);
    if (outgoing.isHeld) {
      const undecided = (this.#undecided ??= new Map<unknown, OutgoingCall>());
      undecided.set(call.id, call);
      call.whenSettled(() => undecided.delete(call.id));
    }
    return params;
  }

  /** Returns the text of a queued message as it leaves: with tokens, if it holds calls that ask for reports. */
  rewrite(text: string, handle: SendHandle): string | undefined {
    const undecided = this.#undecided;
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
      return encodeRequest(call.id, call.method, this.#register(call, params) as object);
    } catch (error) {
      this.#connection.outgoing.fail(call.id, error);
      return undefined;
    }
  }

  /** Returns params that ask for reports of this call, by the token that they hold already or by a new one. */
  #register(call: OutgoingCall, params: unknown, given?: ProgressToken): unknown {
    const asked = (this.#asked ??= new Map<ProgressToken, OutgoingCall>());
    let token = given ?? call.id;
    if (given !== undefined && asked.has(token))
      throw new Error(`a call with the progress token ${JSON.stringify(token)} waits already`);
    // The application may have given another call a token that equals this id.
    while (asked.has(token)) token = `${token}'`;
    const asking = given === undefined ? this.#dialect.withToken(byName(params), token) : params;
    asked.set(token, call);
    call.whenSettled(() => asked.delete(token));
    return asking;
  }

  /** As `Extensions.progressOf`. `send` sends a report. */
  reporterOf(call: IncomingCall, send: (text: string) => void): (value: unknown) => void {
    const progress = this.#dialect;
    const token = progress.tokenIn(call.params);
    // Each report repeats the token: a long one would make a short call cost its length many times.
    const isLong = typeof token === "string" && token.length > LONGEST_TOKEN;
    if (token === undefined || isLong || call.id === undefined) return () => {};
    return (value) => {
      if (call.isAwaited) send(encodeNotification(progress.method, progress.params(token, value)));
    };
  }

  /** Takes a report. Returns false if no call waits for it. */
  receive(params: unknown): boolean {
    const report = this.#dialect.read(params);
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

/** Returns params as an object: the token is a member of params by name, and has no place in params by position. */
function byName(params: unknown): object | undefined {
  const given = hasJsonForm(params) ? params.toJSON() : params;
  if (params === undefined || isObject(given)) return given as object | undefined;
  throw expected("params", "an object or absent where `onProgress` is given", params);
}

function hasJsonForm(value: unknown): value is { toJSON(): unknown } {
  return typeof (value as { toJSON?: unknown } | null)?.toJSON === "function";
}
