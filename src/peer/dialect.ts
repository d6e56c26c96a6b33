/**
 * A dialect: the messages for cancelling and progress. JSON-RPC 2.0 has neither, so each protocol built on it defines its own.
 * A dialect is data and a few small functions. `lsp`, `mcp` and `acp` are exported, and an application may write one.
 *
 * Its functions get values from the other side, so they return `undefined` for a value that does not fit, and never throw.
 */
import { isId, member, type Id } from "../message/message.js";

/** Identifies the reports of one call. The caller chooses it. */
export type ProgressToken = string | number;

/** The messages for cancelling and progress. */
export interface Dialect {
  readonly name: string;
  /** The WebSocket subprotocol by which a client asks for this dialect and a server agrees to it. Default: it has none. */
  readonly subprotocol?: string | undefined;
  /** The default of a peer's `timeoutMs`, in milliseconds. Default 60,000. */
  readonly timeoutMs?: number | undefined;
  /** Whether `params: null` in an incoming message is read as absent. Default false: it is malformed (JSON-RPC 2.0, section 4.2). */
  readonly readsNullParams?: boolean | undefined;
  readonly cancel: CancelDialect;
  readonly progress: ProgressDialect;
}

/** The notification by which a caller cancels a call. */
export interface CancelDialect {
  /** The notification's method. */
  readonly method: string;
  /** Returns its params, for the call of that id. */
  params(id: Id, reason: unknown): object;
  /** Returns the id in such params; `undefined` if there is none. */
  idOf(params: unknown): Id | undefined;
  /** Whether a cancelled call gets a response: its result if it has one, else -32800. */
  readonly isAnswered: boolean;
  /** Methods whose calls are never cancelled. */
  readonly exempt?: readonly string[] | undefined;
}

/** The notification of progress reports, and the token by which a caller asks for them. */
export interface ProgressDialect {
  /** The notification's method. */
  readonly method: string;
  /** Returns the token by which a call's params ask for reports; `undefined` if they do not ask. */
  tokenIn(params: unknown): ProgressToken | undefined;
  /** Returns a copy of a call's params that asks for reports by `token`. */
  withToken(params: object | undefined, token: ProgressToken): object;
  /** Returns the params of one report. */
  params(token: ProgressToken, value: unknown): object;
  /** Reads a report. Returns `undefined` for params that are no report. */
  read(params: unknown): { token: ProgressToken; value: unknown } | undefined;
}

/** What the core uses of a dialect. The default dialect has no more: without `progress`, the feature uses that of `lsp`. */
export type CoreDialect = Omit<Dialect, "progress"> & Partial<Pick<Dialect, "progress">>;

/** Cancelling of `lsp`, and of the default dialect. */
export const lspCancel: CancelDialect = {
  method: "$/cancelRequest",
  params: (id) => ({ id }),
  idOf(params) {
    const id = member(params, "id", 0);
    return isId(id) ? id : undefined;
  },
  isAnswered: true,
};

/** Whether calls of `method` are never cancelled. */
export function isExempt({ cancel }: CoreDialect, method: string): boolean {
  return cancel.exempt?.includes(method) === true;
}

/** Maximum length of a received token, in characters. Each report and each request for more of a stream repeats it. */
export const LONGEST_TOKEN = 1024;

/** Whether a received token, which may be any JSON value, is too long to be repeated. */
export function isLongToken(token: unknown): boolean {
  const text = typeof token === "string" ? token : JSON.stringify(token);
  return text !== undefined && text.length > LONGEST_TOKEN;
}

/** Returns `value` if it can be a token. */
export function tokenFrom(value: unknown): ProgressToken | undefined {
  return typeof value === "string" || typeof value === "number" ? value : undefined;
}
