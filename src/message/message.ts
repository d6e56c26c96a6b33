/**
 * JSON-RPC 2.0 messages: their types, and the function that classifies them by shape.
 */
import * as ErrorCode from "./codes.js";
import { ProtocolError, RpcError } from "./errors.js";

/** The value of `jsonrpc` in every message (section 4). */
export const JSONRPC_VERSION = "2.0";

/** The `id` of a request (section 4). A number is finite and, if it is an integer, safe. */
export type Id = string | number | null;

/** By position or by name (section 4.2). */
export type StructuredParams = readonly unknown[] | object;

/** A call that must get a response (section 4). */
export interface RequestMessage {
  jsonrpc: "2.0";
  id: Id;
  method: string;
  params?: StructuredParams;
}

/** A call without a response (section 4.1). */
export interface NotificationMessage {
  jsonrpc: "2.0";
  method: string;
  params?: StructuredParams;
}

/** The `error` member of a response (section 5.1). */
export interface ErrorObject {
  code: number;
  message: string;
  data?: unknown;
}

/** A response with a result (section 5). */
export interface ResultMessage {
  jsonrpc: "2.0";
  id: Id;
  result: unknown;
}

/** A response with an error (section 5). `id` is null if the request's id could not be read. */
export interface ErrorMessage {
  jsonrpc: "2.0";
  id: Id;
  error: ErrorObject;
}

/** A response (section 5). */
export type ResponseMessage = ResultMessage | ErrorMessage;

/** Any one message. */
export type Message = RequestMessage | NotificationMessage | ResponseMessage;

/**
 * The kind of a parsed value.
 * - `request`, `notification`, `response`: well formed.
 * - `invalid`: none of the three, also a batch. Unless a feature takes the batch, it must be answered with -32600.
 * - `broken`: looks like a response but breaks a rule of section 5. Its receiver does not answer it, because two peers would loop. One
 *   exception: if it has only an id, and no call of its receiver has that id, it is a request without a method.
 */
export type Kind = "request" | "notification" | "response" | "invalid" | "broken";

/** A parsed object whose members are not checked. */
export interface Unchecked {
  jsonrpc?: unknown;
  id?: unknown;
  method?: unknown;
  params?: unknown;
  result?: unknown;
  error?: unknown;
}

/** Returns the kind of a parsed value by its shape. Never throws for a result of `JSON.parse`. */
export function classify(value: unknown): Kind {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return "invalid";
  const { jsonrpc, id, method, params, result, error } = value as Unchecked;
  if (method === undefined) {
    // Most responses are results.
    if (result !== undefined && error === undefined && jsonrpc === JSONRPC_VERSION && isId(id)) return "response";
    const hasResponseShape = result !== undefined || error !== undefined || (id !== undefined && params === undefined);
    if (hasResponseShape) return brokenRule(value) === undefined ? "response" : "broken";
  }
  if (jsonrpc !== JSONRPC_VERSION || typeof method !== "string") return "invalid";
  if (params !== undefined && (typeof params !== "object" || params === null)) return "invalid";
  if (id === undefined) return "notification";
  return isId(id) ? "request" : "invalid";
}

/** Whether `id` can be echoed exactly. JSON's integers beyond 2^53 arrive rounded, and a rounded id names another call. */
export function isId(id: unknown): id is Id {
  if (typeof id === "number") return Number.isInteger(id) ? Number.isSafeInteger(id) : Number.isFinite(id);
  return typeof id === "string" || id === null;
}

/** Whether `value` is what JSON calls an object. */
export function isObject(value: unknown): value is Unchecked {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a member of any value: by name, or of an array by its place; `undefined` if there is none. */
export function member(value: unknown, name: string, place = -1): unknown {
  if (Array.isArray(value)) return (value as unknown[])[place];
  return isObject(value) && Object.hasOwn(value, name) ? value[name as keyof Unchecked] : undefined;
}

/**
 * Whether a message has an id and nothing that says what it is: a response without its result, or a request without its
 * method. Returns false for id null. Otherwise two peers could answer each other's errors without end.
 */
export function isLoneId({ id, method, params, result, error }: Unchecked): boolean {
  return id !== undefined && id !== null && [method, params, result, error].every((one) => one === undefined);
}

/** Returns the id of a message. One that cannot be echoed exactly is null. */
export function idOf(value: unknown): Id {
  const id = isObject(value) ? value.id : undefined;
  return isId(id) ? id : null;
}

/** Whether `error` has the form of an error (section 5.1). */
export function isErrorObject(error: unknown): error is ErrorObject {
  if (!isObject(error)) return false;
  const { code, message } = error as { code?: unknown; message?: unknown };
  return Number.isInteger(code) && typeof message === "string";
}

/** Whether `value` is a well-formed request, which must get a response. */
export function isRequest(value: unknown): value is RequestMessage {
  return classify(value) === "request";
}

/** Whether `value` is a well-formed notification: a request without `id`, never answered. */
export function isNotification(value: unknown): value is NotificationMessage {
  return classify(value) === "notification";
}

/** Whether `value` is a well-formed response: exactly one of `result` and `error`, and a usable `id`. */
export function isResponse(value: unknown): value is ResponseMessage {
  return classify(value) === "response";
}

/** Whether `method` is reserved for the protocol itself: it begins with `rpc.` (section 8). */
export function isInternalMethod(method: string): boolean {
  return method.startsWith("rpc.");
}

/**
 * Parses one text: a message, or a batch of them (section 6). A member of a batch that is not a message becomes the error for
 * its sender.
 *
 * Throws an `RpcError`: -32700 for text that is not JSON, -32600 for JSON that is not a message and for an empty batch.
 * Throws a `ProtocolError` for a malformed response.
 */
export function parseMessage(text: string): Message | (Message | RpcError | ProtocolError)[] {
  const value = parseJson(text);
  if (!Array.isArray(value)) {
    const message = read(value);
    if (message instanceof Error) throw message;
    return message;
  }
  if (value.length === 0) throw invalidRequest();
  return value.map(read);
}

/** Returns the value of JSON text; `undefined` for any other text. */
export function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Parses JSON. Throws an `RpcError` of code -32700 for any other text. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new RpcError(ErrorCode.ParseError, "Parse error", undefined, { cause });
  }
}

/** Returns the error for a value that is not a message. */
function invalidRequest(): RpcError {
  return new RpcError(ErrorCode.InvalidRequest, "Invalid Request");
}

function read(value: unknown): Message | RpcError | ProtocolError {
  const kind = classify(value);
  if (kind === "invalid") return invalidRequest();
  return kind === "broken" ? brokenResponse(value as Unchecked) : (value as Message);
}

/** Returns an error that names the rule of section 5 that a response breaks. */
export function brokenResponse(raw: Unchecked): ProtocolError {
  return new ProtocolError(`malformed response: ${brokenRule(raw)}`, raw);
}

/** Returns the rule that a response breaks. `error: null` beside a result counts as absent, as in JSON-RPC 1.0. */
function brokenRule({ jsonrpc, id, result, error }: Unchecked): string | undefined {
  if (jsonrpc !== JSONRPC_VERSION) return '`jsonrpc` is not "2.0"';
  if (!isId(id)) return "`id` is invalid";
  if (error === undefined || error === null) {
    return result === undefined ? "no `result` or `error`" : undefined;
  }
  if (result !== undefined) return "both `result` and `error`";
  return isErrorObject(error) ? undefined : "`error` needs integer `code` and string `message`";
}
