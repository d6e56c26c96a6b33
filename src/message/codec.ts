/**
 * Encodes messages. Stringifies each payload once and concatenates the envelope, because `JSON.stringify` of the whole message
 * would leave out a result that has no JSON form.
 */
import * as ErrorCode from "./codes.js";
import type { TextWithBytes } from "./bytes.js";
import { checkError, expected, notJson } from "./errors.js";
import type { ErrorObject, Id, StructuredParams } from "./message.js";
import { observed } from "../base/promises.js";

/** Node's `Buffer`, if the runtime has it. */
const { Buffer } = globalThis as { Buffer?: { byteLength(text: string): number; prototype: { toJSON: unknown } } };

const OPEN = '{"jsonrpc":"2.0",';

/** JSON text: a message or a part of one. An object if it has bytes. */
export type MessageText = string | TextWithBytes;

/**
 * Encodes a value that may contain bytes. Set by the first `bytes`, so a page that does not import it has no code for bytes. It is of
 * the whole process, because any peer may be given what `bytes` returns, and the `toJSON` of that gets no peer.
 */
let stringifyWithBytes: ((value: unknown) => MessageText | undefined) | undefined;

/** Collects the bytes in messages from now on. */
export function collectBytes(collector: typeof stringify): void {
  stringifyWithBytes = collector;
}

/** Returns the text as a link without binary frames sends it: bytes are base64 strings in it. */
export function plainText(text: MessageText): string {
  return typeof text === "string" ? text : text.text;
}

/** Returns a message in the form in which it is sent: bytes are base64 unless the link `takesBytes`. `encoded`: has that text already. */
export function sentForm(text: MessageText, takesBytes?: boolean, encoded?: { readonly text: string }): MessageText {
  return typeof text === "string" || (takesBytes && text.fitsFrame) ? text : (encoded ?? text).text;
}

/** Returns texts joined with commas between `before` and `after`. */
export function joinTexts(before: string, texts: readonly MessageText[], after: string): MessageText {
  const one = texts.find((text) => typeof text !== "string");
  return one === undefined ? before + (texts as string[]).join(",") + after : one.join(before, texts, after);
}

function enclose(before: string, json: MessageText, after: string): MessageText {
  return typeof json === "string" ? before + json + after : json.withJson(before + json.json + after);
}

/**
 * Returns the text of a request. Throws a `TypeError` if `method` or `params` break section 4, and if `params` or a member of
 * it is a value that JSON cannot carry (a Map, a Set, an Error, a promise, bytes). Also throws what `JSON.stringify` throws.
 */
export function encodeRequest(id: Id, method: string, params?: StructuredParams): MessageText {
  return encodeCall(`${OPEN}"id":${encodeId(id)},`, method, params);
}

/** Returns the text of a notification. Throws as `encodeRequest` does. */
export function encodeNotification(method: string, params?: StructuredParams): MessageText {
  return encodeCall(OPEN, method, params);
}

/**
 * Returns the text of a result. A value without a JSON form (undefined, a function, a symbol, NaN) becomes null. Throws a
 * `TypeError` if the result or a member of it is a value that JSON cannot carry (a Map, a Set, an Error, a promise, bytes). Also throws
 * for a cyclic value, a BigInt and a `toJSON` that throws.
 */
export function encodeResult(id: Id, result: unknown): MessageText {
  return encodeRawResult(id, stringify(result) ?? "null");
}

/** Returns the text of a result that is JSON already. */
export function encodeRawResult(id: Id, json: MessageText): MessageText {
  return enclose(`${OPEN}"id":${encodeId(id)},"result":`, json, "}");
}

/**
 * Returns the text of an error. Leaves out `data` if it is undefined or has no JSON form. Throws as `encodeResult` does, and a
 * `TypeError` if `code` or `message` break section 5.1.
 */
export function encodeError(id: Id, { code, message, data }: ErrorObject): MessageText {
  checkError(code, message);
  const json = stringify(data);
  const head = `${OPEN}"id":${encodeId(id)},"error":{"code":${code},"message":${JSON.stringify(message)}`;
  return json === undefined ? `${head}}}` : enclose(`${head},"data":`, json, "}}");
}

/** Whether `text`, one message that this module encoded, is an error with id null. */
export function isNamelessError(text: MessageText): boolean {
  return plainText(text).startsWith(`${OPEN}"id":null,"error":`);
}

/** Returns the JSON of an id. Most are numbers, for which `String` takes half the time of `JSON.stringify`. */
function encodeId(id: Id): string {
  return typeof id === "number" ? String(id) : JSON.stringify(id);
}

/** The method of the last call, and its JSON. Most calls in a row are of one method, and encoding its name took 0.1 µs of a call. */
let lastMethod: string | undefined;
let lastName: string;

function encodeCall(before: string, method: string, params: unknown): MessageText {
  if (typeof method !== "string") throw expected("method", "a string", method);
  if (method !== lastMethod) {
    lastName = JSON.stringify(method);
    lastMethod = method;
  }
  // A `toJSON` of the params may encode another call.
  const name = lastName;
  if (params === undefined) return `${before}"method":${name}}`;
  const text = stringify(params);
  const json = typeof text === "object" ? text.json : text;
  // A `toJSON` decides the text, so the text is examined. Any other array or plain object is structured; examining its text
  // would copy the text.
  const isPlain =
    typeof params === "object" &&
    params !== null &&
    (Array.isArray(params) || Object.getPrototypeOf(params) === Object.prototype) &&
    !("toJSON" in params);
  if (json !== undefined && (isPlain || json[0] === "[" || json[0] === "{"))
    return enclose(`${before}"method":${name},"params":`, text!, "}");
  // A refused object has a `toJSON`, such as a Date. The error names the value that `toJSON` returned.
  const isObject = typeof params === "object" && params !== null && json !== undefined;
  throw expected("params", "an array or an object", isObject ? JSON.parse(json) : params);
}

/**
 * Returns the JSON text of `value`; `undefined` if it has none, such as a function. Throws as `checkForms` does.
 */
export function stringify(value: unknown): MessageText | undefined {
  if (typeof value === "number" && Number.isFinite(value)) return String(value);
  checkForms(value);
  return (stringifyWithBytes ?? messageJson)(value);
}

/** Whether `JSON.stringify` encodes a part of a message, and not a line of a log or what a test prints. */
let isForMessage = false;

/** `JSON.stringify` for a part of a message: objects of this library throw. A `toJSON` of the application may call this again. */
export function messageJson(value: unknown, replacer?: (key: string, value: unknown) => unknown): string | undefined {
  const outer = isForMessage;
  isForMessage = true;
  try {
    return JSON.stringify(value, replacer);
  } finally {
    isForMessage = outer;
  }
}

/**
 * What the `toJSON` of an object of this library returns: `shown`, for a log. Throws a `TypeError` with `remedy` if the object would be
 * sent. The type is `never`, so that the types of a contract refuse the object too.
 */
export function shownAs(shown: string, what: string, remedy: string, key?: string): never {
  if (isForMessage) throw notJson(what, remedy, key);
  return shown as never;
}

/**
 * Throws a `TypeError` if `value` or a member of it is a Map, a Set, an Error, a promise, a Blob, an ArrayBuffer or a view of one:
 * `JSON.stringify` would write `{}` or a list of indices. Checks the first 100 entries of an array, and no members of members.
 */
export function checkForms(value: unknown): void {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    const length = Math.min(value.length, MOST_ENTRIES);
    for (let i = 0; i < length; i++) if (typeof value[i] === "object") checkForm(value[i], i, value);
  } else {
    checkForm(value);
    for (const key in value) if (typeof value[key as never] === "object") checkForm(value[key as never], key, value);
  }
}

/** Checking all of 100,000 numbers would take a tenth of the time of encoding them. */
const MOST_ENTRIES = 100;

function checkForm(value: unknown, key?: string | number, parent?: object): void {
  if (typeof value !== "object" || value === null) return;
  const proto: unknown = Object.getPrototypeOf(value);
  if (proto === Object.prototype || proto === Array.prototype) return;
  const { toJSON, [Symbol.toStringTag]: tag = "promise" } = value as {
    toJSON?: unknown;
    [Symbol.toStringTag]?: unknown;
  };
  const remedy = remedyFor(value, String(tag));
  if (remedy === undefined) return;
  // A Buffer's `toJSON` is as long as a list of indices.
  if (toJSON !== undefined && toJSON !== Buffer?.prototype.toJSON) return;
  // `JSON.stringify` writes neither inherited members nor the members of an object with `toJSON`.
  if (parent !== undefined && ("toJSON" in parent || !Object.hasOwn(parent, key!))) return;
  // No other code handles the rejections of promises that are refused with this value. A query that only its `then` starts is no promise.
  for (const one of [value, ...Object.values(parent ?? [])]) if (one instanceof Promise) void observed(one);
  throw notJson(value instanceof Error ? value.name : String(tag), remedy, key);
}

/** Returns what to write in place of a value that JSON cannot carry; `undefined` for any other value. */
function remedyFor(value: object, tag: string): string | undefined {
  // By tag, because the value may be of another realm.
  if (ArrayBuffer.isView(value) || tag.endsWith("ArrayBuffer")) return "write `bytes(it)`";
  if (tag === "Map" || tag === "Set") return "write `[...it]`";
  if (tag === "Blob" || tag === "File") return "write `peer.offer(it.stream())`";
  if (value instanceof Error) return "throw it, or write `it.message`";
  return typeof (value as { then?: unknown }).then === "function" ? "await it" : undefined;
}

/** Returns the text of the error that replaces a response or a reply that is too long. */
export function encodeTooLarge(id: Id, maxReplyBytes: number): MessageText {
  return encodeError(id, {
    code: ErrorCode.ResponseTooLarge,
    message: "Response is too large",
    data: { maxReplyBytes },
  });
}

/**
 * Whether `text` is longer than `maxBytes` in UTF-8, or as a binary frame if it has bytes. Counts only if the bounds by `length` do
 * not decide.
 */
export function exceeds(text: MessageText, maxBytes: number): boolean {
  return text.length > maxBytes || (text.length * 3 > maxBytes && utf8Bytes(text) > maxBytes);
}

/**
 * Returns the length of `text` in UTF-8, or as a binary frame if it has bytes. A lone surrogate counts three bytes, as the
 * replacement character does.
 */
export function utf8Bytes(text: MessageText): number {
  if (typeof text !== "string") return text.frame.length;
  // Node's `byteLength` allocates no bytes.
  return Buffer === undefined ? encodedBytes(text) : Buffer.byteLength(text);
}

/** Returns the same in a runtime without `Buffer`. */
export function encodedBytes(text: string): number {
  return new TextEncoder().encode(text).length;
}
