/** Progress reports of one connection, as its dialect spells them. */
import {
  checkForms,
  encodeNotification,
  encodeRequest,
  joinTexts,
  stringify,
  type MessageText,
} from "../message/codec.js";
import type { Connection } from "../peer/connection.js";
import { setDeadline } from "../base/deadlines.js";
import { isLongToken, type CoreDialect, type ProgressDialect } from "../peer/dialect.js";
import { expected } from "../message/errors.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import { isAwaited, type IncomingCall } from "../peer/incoming-call.js";
import { isObject, type NotificationMessage, type RequestMessage } from "../message/message.js";
import { callsOf, type OutgoingCall } from "../peer/outgoing-call.js";
import { runReporting } from "../base/tell.js";
import type { SendHandle } from "../message/transport.js";
import { lsp } from "./dialects/lsp.js";

/** The calls that asked for progress reports, and the reports of handlers. */
class Progress implements OwnPart {
  readonly #connection: Connection;
  readonly #dialect: ProgressDialect;
  /** The calls that asked for reports, by token. */
  readonly #asked: Map<unknown, OutgoingCall>;
  /** The token before the first, and the last token, of this side. */
  readonly #start: number;
  #lastToken: number;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#asked = new Map();
    // Random, so that a token between the two is one of this side: an application may pass on params that hold the token of another
    // program, which often counts from 1. The tokens of LSP have 32 bits.
    this.#start = this.#lastToken = Math.floor(Math.random() * 2 ** 30);
    this.#dialect = progressOf(connection.config.dialect);
  }

  receive(message: RequestMessage | NotificationMessage): boolean {
    return !("id" in message) && message.method === this.#dialect.method && this.#receiveReport(message.params);
  }

  ask(call: OutgoingCall, params: unknown): unknown {
    const asked = this.#asked;
    const given = this.#dialect.tokenIn(params);
    if (given === undefined && !this.#connection.speaksDialect) return params;
    const holder = asked.get(given);
    // It has asked already, before it was queued.
    if (holder === call) return params;
    if (holder !== undefined) throw new Error(`a call with the progress token ${JSON.stringify(given)} waits already`);
    const token = given ?? this.#nextToken();
    const asking = given === undefined ? this.#dialect.withToken(byName(params), token) : params;
    asked.set(token, call);
    call.whenSettled(() => asked.delete(token));
    return asking;
  }

  #nextToken(): number {
    // The application may have given another call this token.
    do this.#lastToken++;
    while (this.#asked.has(this.#lastToken));
    return this.#lastToken;
  }

  /** Calls that were queued before it was known what the other side understands ask now. */
  rewriteQueued(text: MessageText, handle: SendHandle): MessageText | undefined {
    const { outgoing, flow } = this.#connection;
    if (callsOf(handle).every(({ settings }) => settings.onProgress === undefined)) return undefined;
    const parsed = JSON.parse(typeof text === "string" ? text : text.json) as RequestMessage | RequestMessage[];
    const texts = [parsed].flat().flatMap((message) => {
      const call = outgoing.get(message.id);
      if (call?.settings.onProgress === undefined) return JSON.stringify(message);
      try {
        return encodeRequest(call.id, call.method, this.ask(call, message.params) as object);
      } catch (error) {
        outgoing.fail(call.id, error);
        return [];
      }
    });
    if (texts.length === 0) return void flow.cancel(handle);
    // No message contains bytes of its own here: their placeholders are strings.
    const rewritten = (Array.isArray(parsed) ? joinTexts("[", texts, "]") : texts[0]) as string;
    return typeof text === "string" ? rewritten : text.rewritten(rewritten);
  }

  reporterOf(call: IncomingCall): (value: unknown) => void {
    const dialect = this.#dialect;
    const token = dialect.tokenIn(call.params);
    if (token === undefined || isLongToken(token) || call.id === undefined) return () => {};
    const connection = this.#connection;
    return (value) => {
      if (!isAwaited(call)) return;
      connection.config.checks?.checkSent("progress", call.method, value);
      // The value is a member of the params, whose own members are not checked.
      checkForms(value);
      const text = encodeNotification(dialect.method, dialect.params(token, value));
      if (!connection.flow.send(text)) connection.outgoing.refused(text);
    };
  }

  /** Takes a report. Returns false if its token is none of this side. */
  #receiveReport(params: unknown): boolean {
    const report = this.#dialect.read(params);
    if (report === undefined) return false;
    const { token, value } = report;
    const call = this.#asked.get(token);
    if (call === undefined) {
      // Late: the call is settled.
      const isOwn = typeof token === "number" && token > this.#start && token <= this.#lastToken;
      if (isOwn) this.#connection.counts.unmatched++;
      return isOwn;
    }
    const { resetTimeoutOnProgress, timeoutMs, onProgress } = call.settings;
    if (resetTimeoutOnProgress) setDeadline(call, timeoutMs);
    runReporting(
      () => {
        this.#connection.config.checks?.checkReceived("progress", call.method, value);
        return onProgress!(value);
      },
      (error) => this.#connection.report(error, { method: call.method, id: call.id }),
    );
    return true;
  }
}

function progressOf({ progress: own = lsp.progress }: CoreDialect): ProgressDialect {
  return own;
}

/** Returns params as an object: the token is a member of params by name, and has no place in params by position. */
function byName(params: unknown): object | undefined {
  const { toJSON } = Object(params) as { toJSON?: unknown };
  const given: unknown = typeof toJSON === "function" ? toJSON.call(params) : params;
  if (params === undefined || isObject(given)) return given as object | undefined;
  // The error of an object of this library says what to write.
  stringify(params);
  throw expected("params", "an object or absent with `onProgress`", params);
}

/**
 * The feature of progress reports: the option `onProgress` of a call, and `context.progress` of a handler. On a page:
 * `connect(url, { use: [progress] })`. `reciproc/node` and `reciproc/testing` use it by default. Reports stop when the call is settled,
 * and with the connection.
 */
export const progress: Feature<Progress> = {
  name: "progress",
  methods: (dialect) => [progressOf(dialect).method],
  create: (connection) => new Progress(connection as Connection),
};
