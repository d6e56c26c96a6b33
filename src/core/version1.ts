/** JSON-RPC 1.0, understood where the application asks for it: messages have no `jsonrpc`, and a notification's id is null. */
import type { Slot } from "./incoming-call.js";
import { plainText, type MessageText } from "./codec.js";
import * as ErrorCode from "./codes.js";
import { isErrorObject, isObject } from "./message.js";

/** How a message says that it is of version 1.0: by its `jsonrpc`, or by having none. */
export type Version1 = "named" | "assumed";

/**
 * Rewrites a message of version 1.0 in place as what version 2.0 says for the same. Returns `undefined` for one that is of
 * another version. Version 1.0 sends `result` and `error` together, one of them null, and an error may be anything.
 */
export function fromVersion1(value: unknown): Version1 | undefined {
  if (!isObject(value)) return undefined;
  const { jsonrpc, id, method, result, error } = value;
  if (jsonrpc !== undefined && jsonrpc !== "1.0") return undefined;
  value.jsonrpc = "2.0";
  if (method !== undefined) {
    if (id === null) delete value.id;
  } else if (error !== undefined && error !== null) {
    if (result === null) delete value.result;
    if (!isErrorObject(error)) value.error = errorObject(error);
  }
  return jsonrpc === undefined ? "assumed" : "named";
}

/** Returns the error of version 2.0 for an error without a code, which becomes its `data`. */
function errorObject(data: unknown): object {
  return { code: ErrorCode.InternalError, message: typeof data === "string" ? data : "Error", data };
}

/** Returns a slot that writes responses as version 1.0 does, and gives them to `slot`. */
export function inVersion1(slot: Slot, version: Version1): Slot {
  return {
    reserveBytes: (text) => slot.reserveBytes(toVersion1(text, version)),
    put: (text, onSent) => slot.put(toVersion1(text, version), onSent),
    leaveOut: () => slot.leaveOut(),
  };
}

/**
 * The same reply as version 1.0 writes it. The text is not parsed for it: a result that was encoded once may be too deep to
 * be encoded again. Behind `jsonrpc` comes the id, in which no comma is followed by a name, and then `result` or `error`.
 *
 * An error has a null result only where version 1.0 was named. Programs that speak version 2.0 without `jsonrpc` take such a
 * reply for a result of null.
 */
function toVersion1(text: MessageText, version: Version1): string {
  const reply = plainText(text);
  const [, member] = /,"(result|error)":/.exec(reply)!;
  const other = member === "result" ? ',"error":null' : version === "named" ? ',"result":null' : "";
  return `{${reply.slice(VERSION_2.length, -1)}${other}}`;
}

/** How every reply of version 2.0 begins here. */
const VERSION_2 = '{"jsonrpc":"2.0",';
