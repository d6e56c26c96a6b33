/** JSON-RPC 1.0, understood where the application asks for it: messages have no `jsonrpc`, and a notification's id is null. */
import type { Slot } from "./batch.js";
import * as ErrorCode from "./codes.js";
import { isErrorObject, isObject } from "./message.js";

/**
 * Rewrites a message of version 1.0 in place as what version 2.0 says for the same; false when it is none. Version 1.0
 * sends `result` and `error` together, one of them null, and an error may be anything. Some name it in `jsonrpc`.
 */
export function fromVersion1(value: unknown): boolean {
  if (!isObject(value)) return false;
  const { jsonrpc = "1.0", id, method, result, error } = value;
  if (jsonrpc !== "1.0") return false;
  value.jsonrpc = "2.0";
  if (method !== undefined) {
    if (id === null) delete value.id;
  } else if (error !== undefined && error !== null) {
    if (result === null) delete value.result;
    if (!isErrorObject(error)) value.error = errorObject(error);
  }
  return true;
}

/** What version 2.0 makes of an error that has no code: it is kept as `data`. */
function errorObject(data: unknown): object {
  return { code: ErrorCode.InternalError, message: typeof data === "string" ? data : "Error", data };
}

/** Answers in kind, where `slot` takes the answer. */
export function inVersion1(slot: Slot): Slot {
  return {
    fits: (text) => slot.fits(toVersion1(text)),
    put: (text, onSent) => slot.put(toVersion1(text), onSent),
    leaveOut: () => slot.leaveOut(),
  };
}

/**
 * The same reply as version 1.0 writes it. The text is not parsed for it: a result that was encoded once may be too deep to
 * be encoded again. Behind `jsonrpc` stands the id, in which no comma is followed by a name, and then what it is a reply of.
 */
function toVersion1(reply: string): string {
  const [, member] = /,"(result|error)":/.exec(reply)!;
  return `{${reply.slice(VERSION_2.length, -1)},"${member === "result" ? "error" : "result"}":null}`;
}

/** How every reply of version 2.0 begins here. */
const VERSION_2 = '{"jsonrpc":"2.0",';
