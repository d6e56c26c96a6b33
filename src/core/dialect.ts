/**
 * A dialect: how cancelling and progress are spelled. JSON-RPC 2.0 has neither, so each protocol built on it spells them
 * its own way. A dialect is data and a few small functions. `lsp`, `mcp` and `acp` are exported, and an application may write one.
 *
 * Its functions get what the other side sent, so they return `undefined` for a value that does not fit, and never throw.
 */
import type { Id } from "./message.js";

/** Names the reports of one call. The caller chooses it. */
export type ProgressToken = string | number;

/** How cancelling and progress are spelled. */
export interface Dialect {
  readonly name: string;
  /** The WebSocket subprotocol by which a client asks for this dialect and a server agrees to it. Default: it has none. */
  readonly subprotocol?: string | undefined;
  /** How long a call waits unless it or its peer says otherwise, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number | undefined;
  /** Whether `params: null` in an incoming message is read as absent. Default false: it is malformed (JSON-RPC 2.0, section 4.2). */
  readonly readsNullParams?: boolean | undefined;
  readonly cancel: CancelDialect;
  readonly progress: ProgressDialect;
}

/** How a caller says that it no longer waits. */
export interface CancelDialect {
  /** The notification's method. */
  readonly method: string;
  /** Its params, for the call of that id. */
  params(id: Id, reason: unknown): object;
  /** The id that such params name; `undefined` for none. */
  idOf(params: unknown): Id | undefined;
  /** Whether a cancelled call is answered all the same: with its result if it has one, else with -32800. */
  readonly isAnswered: boolean;
  /** Methods whose calls are never cancelled. */
  readonly exempt?: readonly string[] | undefined;
}

/** How a caller asks for progress reports, and how it gets them. */
export interface ProgressDialect {
  /** The notification's method. */
  readonly method: string;
  /** The token by which such params ask for reports; `undefined` when they do not ask. */
  tokenIn(params: unknown): ProgressToken | undefined;
  /** Params that ask for reports by `token`, and are else like these, an object or undefined. */
  withToken(params: object | undefined, token: ProgressToken): object;
  /** The params of one report. */
  params(token: ProgressToken, value: unknown): object;
  /** Reads a report. Returns `undefined` for params that are no report. */
  read(params: unknown): { token: ProgressToken; value: unknown } | undefined;
}

/** Whether calls of `method` are never cancelled. */
export function isExempt({ cancel }: Dialect, method: string): boolean {
  return cancel.exempt?.includes(method) === true;
}

/** `value`, when it can be a token. */
export function tokenFrom(value: unknown): ProgressToken | undefined {
  return typeof value === "string" || typeof value === "number" ? value : undefined;
}
