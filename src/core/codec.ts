/**
 * Messages to text. Each is stringified once; the envelope is put around it by hand, because `JSON.stringify` of the
 * whole message would leave out a result that has no JSON form.
 */
import * as ErrorCode from "./codes.js";
import { expected } from "./errors.js";
import type { ErrorObject, Id, StructuredParams } from "./message.js";

/** Node's, where it is there. */
const { Buffer } = globalThis as { Buffer?: { byteLength(text: string): number; prototype: { toJSON: unknown } } };

const OPEN = '{"jsonrpc":"2.0",';

/** A request's text. Throws a `TypeError` when `method` or `params` break section 4, for what JSON cannot carry (a Map, a Set, a promise, bytes) as `params` or as a member, and what `JSON.stringify` throws. */
export function encodeRequest(id: Id, method: string, params?: StructuredParams): string {
  return `${OPEN}"id":${typeof id === "number" ? id : JSON.stringify(id)},${encodeCall(method, params)}`;
}

/** A notification's text. Throws as `encodeRequest` does. */
export function encodeNotification(method: string, params?: StructuredParams): string {
  return OPEN + encodeCall(method, params);
}

/** A result's text. What has no JSON form (undefined, a function, a symbol, NaN) is sent as null. Throws a `TypeError` for what JSON cannot carry (a Map, a Set, a promise, bytes) as the result or as a member; and for a cyclic value, a BigInt, a `toJSON` that throws. */
export function encodeResult(id: Id, result: unknown): string {
  return `${OPEN}"id":${typeof id === "number" ? id : JSON.stringify(id)},"result":${stringify(result) ?? "null"}}`;
}

/** The text of a result that is JSON already. */
export function encodeRawResult(id: Id, json: string): string {
  return `${OPEN}"id":${encodeId(id)},"result":${json}}`;
}

/** An error's text. `data` is left out when it is undefined or has no JSON form. Throws as `encodeResult` does, and a `TypeError` when `code` or `message` break section 5.1. */
export function encodeError(id: Id, { code, message, data }: ErrorObject): string {
  if (!Number.isInteger(code)) throw expected("code", "an integer", code);
  if (typeof message !== "string") throw expected("message", "a string", message);
  const json = stringify(data);
  const tail = json === undefined ? "}}" : `,"data":${json}}}`;
  return `${OPEN}"id":${encodeId(id)},"error":{"code":${code},"message":${JSON.stringify(message)}${tail}`;
}

const NAMELESS_ERROR = '{"jsonrpc":"2.0","id":null,"error":';

/** Whether `text`, of one message that was encoded here, is an error with id null. */
export function isNamelessError(text: string): boolean {
  return text.startsWith(NAMELESS_ERROR);
}

function encodeId(id: Id): string {
  return typeof id === "number" ? String(id) : JSON.stringify(id);
}

function encodeCall(method: string, params: unknown): string {
  if (typeof method !== "string") throw expected("method", "a string", method);
  const name = JSON.stringify(method);
  if (params === undefined) return `"method":${name}}`;
  const json = stringify(params);
  // A `toJSON` decides what crosses the wire. Any other array and plain object is structured: looking into its text copies it.
  const isPlain =
    typeof params === "object" &&
    params !== null &&
    (Array.isArray(params) || Object.getPrototypeOf(params) === Object.prototype) &&
    !("toJSON" in params);
  if (json !== undefined && (isPlain || json[0] === "[" || json[0] === "{"))
    return `"method":${name},"params":${json}}`;
  // An object that is refused is one with a `toJSON`, such as a Date: what it turned into says why.
  const isObject = typeof params === "object" && params !== null && json !== undefined;
  throw expected("params", "an array or an object", isObject ? JSON.parse(json) : params);
}

/**
 * The JSON text of `value`; `undefined` for what has none, such as a function. Throws a `TypeError` where `value` or a member
 * of it is a Map, a Set, a promise, a Blob, an ArrayBuffer or a view of one, of which JSON would make `{}` or a list of indices.
 * Looks at 100 entries of an array, and at no members of members: they become what `JSON.stringify` makes of them.
 */
export function stringify(value: unknown): string | undefined {
  if (typeof value === "object" && value !== null) {
    if (Array.isArray(value)) {
      const length = Math.min(value.length, MOST_ENTRIES);
      for (let i = 0; i < length; i++) if (typeof value[i] === "object") checkForm(value[i], i, value);
    } else {
      checkForm(value);
      for (const key in value) if (typeof value[key as never] === "object") checkForm(value[key as never], key, value);
    }
  }
  return JSON.stringify(value);
}

/** To look at all of 100,000 numbers would take a tenth of the time that encoding them takes. */
const MOST_ENTRIES = 100;

function checkForm(value: unknown, key?: string | number, owner?: object): void {
  if (typeof value !== "object" || value === null) return;
  const proto: unknown = Object.getPrototypeOf(value);
  if (proto === Object.prototype || proto === Array.prototype || !(Symbol.toStringTag in value)) return;
  const { toJSON, [Symbol.toStringTag]: tag } = value as { toJSON?: unknown; [Symbol.toStringTag]: unknown };
  // A Buffer's own form is as long as that of indices.
  if (toJSON !== undefined && toJSON !== Buffer?.prototype.toJSON) return;
  // By tag, for it may be of another realm.
  if (!ArrayBuffer.isView(value) && !/^(Map|Set|Promise|Blob|File|(Shared)?ArrayBuffer)$/.test(String(tag))) return;
  // Inherited members are not sent, nor the members of an object that has a form of its own.
  if (owner !== undefined && ("toJSON" in owner || !Object.hasOwn(owner, key!))) return;
  const name = key === undefined ? "" : ` \`${key}\``;
  const instead = tag === "Promise" ? "await it" : "send `[...it]`, or its bytes as base64";
  throw new TypeError(`JSON cannot carry the ${String(tag)}${name}: ${instead}`);
}

/** The text of the reply that says the handler failed and nothing more. */
export function encodeInternalError(id: Id): string {
  return encodeError(id, { code: ErrorCode.InternalError, message: "Internal error" });
}

/** The text of the error in place of a response or a reply that is too long. */
export function encodeTooLarge(id: Id, maxReplyBytes: number): string {
  return encodeError(id, {
    code: ErrorCode.ResponseTooLarge,
    message: "Response is too large",
    data: { maxReplyBytes },
  });
}

/** Whether `text` is longer than `maxBytes` in UTF-8. Counts only when the cheap bounds leave a doubt. */
export function exceeds(text: string, maxBytes: number): boolean {
  return text.length > maxBytes || (text.length * 3 > maxBytes && utf8Bytes(text) > maxBytes);
}

/** The length of `text` in UTF-8. A lone surrogate counts three bytes, as the replacement character does. */
export function utf8Bytes(text: string): number {
  // Node's own makes no bytes for it.
  return Buffer === undefined ? encodedBytes(text) : Buffer.byteLength(text);
}

/** The same, where there is no `Buffer`. */
export function encodedBytes(text: string): number {
  return new TextEncoder().encode(text).length;
}
