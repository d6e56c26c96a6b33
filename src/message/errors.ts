/**
 * Every error a user of the package can meet. Each has a stable `code`, and only `RpcError` crosses the wire.
 * Fields that the constructor sets are only declared: a bundle then holds each name once less.
 */

export * as ErrorCode from "./codes.js";

/**
 * Whether `error` only reports that something was aborted with `reason`: it is `reason`, the `AbortError` of a timer or of
 * `fetch`, or a `ConnectionLostError` with `reason` as its cause. Never throws, whatever was thrown.
 */
export function isAbort(error: unknown, reason: unknown): boolean {
  try {
    if (error === reason || (error instanceof Error && error.name === "AbortError")) return true;
    return error instanceof ConnectionLostError && error.cause === reason;
  } catch {
    return false;
  }
}

/** The errors that this library made of an argument or a response. */
const made = new WeakSet<object>();

/** Returns the error for a wrong argument. */
export function mistake(message: string): TypeError {
  const error = new TypeError(message);
  made.add(error);
  return error;
}

/** Returns the error for a wrong value: ``Expected `timeoutMs` to be a positive number, got `-1` (number)``. */
export function expected(name: string, rule: string, value: unknown): TypeError {
  return mistake(`Expected \`${name}\` to be ${rule}, got ${show(value)}`);
}

/** Returns what an error says of a wrong value. */
export function show(value: unknown): string {
  if (typeof value === "function") return "a function";
  if (typeof value === "object" && value !== null) return Array.isArray(value) ? "an array" : "an object";
  const text = `\`${String(value)}\``;
  return value === null || value === undefined ? text : `${text} (${typeof value})`;
}

/**
 * Returns the error for a value that JSON cannot carry. `remedy` says what to write instead. `key`: the name of the value in its object
 * or array. Not set, or empty as `JSON.stringify` passes it, if the value is in none.
 */
export function notJson(what: string, remedy: string, key: string | number = ""): TypeError {
  return mistake(`JSON cannot carry the ${what}${key === "" ? "" : ` \`${key}\``}: ${remedy}`);
}

/**
 * An error that crosses the wire (JSON-RPC 2.0, section 5.1). If a handler throws one, it is the response. If the response is
 * an error, the call rejects with one. The `cause` that a handler gives one is reported on its side, and never sent. If a handler
 * throws one that was received, the response is -32603, and the peer emits
 * `error`. To forward such an error, throw a new one with its code, message and data.
 *
 * Throws a `TypeError` when `code` is not an integer or `message` not a string.
 */
export class RpcError extends Error {
  override readonly name: string = "RpcError";
  /** An integer; -32768 to -32000 are reserved by the specification. */
  declare readonly code: number;
  /** Anything with a JSON form; `undefined` is left out. */
  declare readonly data: unknown;
  /** The method whose answer this is, for an error that was received; never sent. */
  declare method?: string;

  constructor(code: number, message: string, data?: unknown, options?: { cause?: unknown }) {
    checkError(code, message);
    super(message, options);
    this.code = code;
    this.data = data;
  }
}

/** Throws a `TypeError` unless `code` and `message` follow section 5.1. */
export function checkError(code: unknown, message: unknown): void {
  if (!Number.isInteger(code)) throw expected("code", "an integer", code);
  if (typeof message !== "string") throw expected("message", "a string", message);
}

/** Returns true if the handler of a call has thrown `error`: an `RpcError` with a code of its own, outside -32768 to -32000. */
export function isApplicationError(error: unknown): error is RpcError {
  return error instanceof RpcError && (error.code < -32768 || error.code > -32000);
}

/** Makes the error of `method` that the other side answered with. A handler that lets it through does not answer with it. */
export function receivedError(method: string, code: number, message: string, data: unknown): RpcError {
  const error = Object.assign(new RpcError(code, message, data), { method });
  made.add(error);
  return error;
}

/** Returns true if `error` came from the other side of a connection. Never throws, whatever was thrown. */
export function isReceived(error: unknown): boolean {
  return made.has(error as object) && error instanceof RpcError;
}

/**
 * Rejects with the error of a call to `method`, whose stack shows that method and the code that awaits the call.
 *
 * An error is made when a response arrives, so its own stack has only frames of this library. V8 adds the functions that await a
 * promise to a stack that is captured when it rejects. So the promise of the call is resolved with this one, which takes the place
 * of the error two microtasks later, and a call without an error records no stack. To capture a stack with each call takes 3 to 11 µs.
 */
export async function failed(reason: unknown, method: string): Promise<never> {
  await Promise.resolve();
  await Promise.resolve();
  throw shownAt(reason, method, failed);
}

/** Resolves with `value` as late as `failed` rejects: what ends calls resolves after they have rejected. */
export async function afterFailed<T>(value: T): Promise<T> {
  await Promise.resolve();
  await Promise.resolve();
  return value;
}

/**
 * Replaces the stack of an error of a call to `method`: its first line names the method, and its frames are those below the function
 * `below`. `message` stays as the other side sent it. Returns the error. Does nothing for an error of the application, such as the
 * reason of a signal.
 */
export function shownAt(error: unknown, method: unknown, below: (...args: never) => unknown): unknown {
  const { captureStackTrace } = Error as { captureStackTrace?: (holder: object, below: unknown) => void };
  const shown = Object(error) as Error & { method?: unknown };
  if (captureStackTrace && (made.has(shown) || shown.method === method || shown instanceof ProtocolError)) {
    const { name, message } = shown;
    const quoted = `"${String(method)}"`;
    const holder = { name, message: message.includes(quoted) ? message : `${quoted}: ${message}`, stack: "" };
    captureStackTrace(holder, below);
    shown.stack = holder.stack;
  }
  return error;
}

/** Whether a call without an answer can have run: `"not-sent"` only when no byte of it can have been processed. */
export type Outcome = "not-sent" | "unknown";

/** No response came in time. `outcome` says whether the call may have run. */
export class TimeoutError extends Error {
  override readonly name: string = "TimeoutError";
  readonly code = "TIMEOUT";
  /** The method that was called. */
  declare readonly method: string;
  /** How long the call waited, in milliseconds. */
  declare readonly timeoutMs: number;
  /** `"not-sent"`: the message was cancelled before it was sent, so the call is safe to make again. `"unknown"`: it may run, or have run. */
  declare readonly outcome: Outcome;

  constructor(method: string, timeoutMs: number, outcome: Outcome = "unknown") {
    super(`"${method}" was not ${outcome === "unknown" ? "answered" : "sent"} within ${timeoutMs} ms`);
    this.method = method;
    this.timeoutMs = timeoutMs;
    this.outcome = outcome;
  }
}

/** The connection ended before the response came. `outcome` says whether the call may have run, `cause` why the connection ended. */
export class ConnectionLostError extends Error {
  override readonly name: string = "ConnectionLostError";
  readonly code = "CONNECTION_LOST";
  /** `"not-sent"`: safe to call again. `"unknown"`: it may have run. */
  declare readonly outcome: Outcome;
  /** The method that was called. */
  declare readonly method: string;

  constructor(method: string, outcome: Outcome, cause: unknown) {
    super(
      outcome === "not-sent"
        ? `"${method}" was not sent: no connection`
        : `"${method}" may have run: the connection was lost`,
      { cause },
    );
    this.outcome = outcome;
    this.method = method;
  }
}

/**
 * A message is longer than the other side takes, so nothing of it was sent. The limit is known in a session of `reciproc.v1`,
 * from its first round trip on. If it is not known, the message is sent, and the other side closes with 1009: pending calls
 * then reject with `ConnectionLostError` of outcome `"unknown"`.
 */
export class TooLargeError extends RangeError {
  override readonly name: string = "TooLargeError";
  readonly code = "TOO_LARGE";
  /** The method that was called or notified. */
  declare readonly method: string;
  /** Size of the message in bytes of UTF-8; of the whole batch, if it was in one. */
  declare readonly bytes: number;
  /** `limits.maxMessageBytes` of the other side. */
  declare readonly maxMessageBytes: number;

  constructor(method: string, bytes: number, maxMessageBytes: number) {
    super(`The message with "${method}" has ${bytes} bytes; the other side accepts ${maxMessageBytes}`);
    this.method = method;
    this.bytes = bytes;
    this.maxMessageBytes = maxMessageBytes;
  }
}

/** The other side broke JSON-RPC 2.0 in its answer to a call, or the contract that this side checks. `raw` is what it sent. */
export class ProtocolError extends Error {
  override readonly name: string = "ProtocolError";
  readonly code = "PROTOCOL";
  /** The response as it was parsed; only the value, if that does not fit the contract. */
  declare readonly raw: unknown;

  constructor(message: string, raw: unknown, options?: { cause?: unknown }) {
    super(message, options);
    this.raw = raw;
  }
}

/** The connection could not be opened. `cause` is the runtime's error, `status` the HTTP status if it is known (never in a browser). */
export class ConnectError extends Error {
  override readonly name: string = "ConnectError";
  readonly code = "CONNECT_FAILED";
  /** The URL, without user name, password and query, which may hold secrets. Empty if the function `url` did not return one. */
  declare readonly url: string;
  /** The HTTP status that refused the upgrade. */
  declare readonly status: number | undefined;

  constructor(url: string, reason: string, options: { cause?: unknown } & { status?: number | undefined } = {}) {
    super(`could not connect to ${url || "the server"}: ${reason}`, options);
    this.url = url;
    this.status = options.status;
  }
}
