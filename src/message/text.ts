/** Encodes messages as text, for applications with a transport of their own. Bytes are base64 strings in it. */
import * as codec from "./codec.js";
import type { ErrorObject, Id, StructuredParams } from "./message.js";

/**
 * Returns the text of a request. Throws a `TypeError` if `method` or `params` break section 4, and if `params` or a member of
 * it is a value that JSON cannot carry (a Map, a Set, a promise, bytes that are not marked). Also throws what `JSON.stringify` throws.
 */
export function encodeRequest(id: Id, method: string, params?: StructuredParams): string {
  return codec.plainText(codec.encodeRequest(id, method, params));
}

/** Returns the text of a notification. Throws as `encodeRequest` does. */
export function encodeNotification(method: string, params?: StructuredParams): string {
  return codec.plainText(codec.encodeNotification(method, params));
}

/**
 * Returns the text of a result. A value without a JSON form (undefined, a function, a symbol, NaN) becomes null. Throws a
 * `TypeError` if the result or a member of it is a value that JSON cannot carry, as `encodeRequest` does. Also throws for a cyclic
 * value, a BigInt and a `toJSON` that throws.
 */
export function encodeResult(id: Id, result: unknown): string {
  return codec.plainText(codec.encodeResult(id, result));
}

/**
 * Returns the text of an error. Leaves out `data` if it is undefined or has no JSON form. Throws as `encodeResult` does, and a
 * `TypeError` if `code` or `message` break section 5.1.
 */
export function encodeError(id: Id, error: ErrorObject): string {
  return codec.plainText(codec.encodeError(id, error));
}
