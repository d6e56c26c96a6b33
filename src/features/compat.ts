/**
 * Messages besides those of JSON-RPC 2.0, where the application asks for them: those of version 1.0, which have no `jsonrpc` and whose
 * notifications have the id null, and foreign messages, which are of another protocol.
 */
import { plainText, type MessageText } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { Connection } from "../peer/connection.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { Slot } from "../peer/incoming-call.js";
import { isErrorObject, isObject } from "../message/message.js";
import { runReporting } from "../base/tell.js";

/** Reads such messages on one connection. */
class Compat implements OwnPart {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  receiveUnknown(value: unknown, slot: Slot): boolean {
    const connection = this.#connection;
    const { compat, onForeignMessage } = connection.config;
    if (onForeignMessage !== undefined && !slot.isInBatch && isForeign(value)) {
      if (connection.incoming.counter.takeRate?.() === false) connection.counts.refusedRate++;
      else
        runReporting(
          () => onForeignMessage(value, connection.peer),
          (error) => connection.report(error),
        );
      slot.leaveOut();
      return true;
    }
    const version = compat === undefined ? undefined : fromVersion1(value);
    if (version !== undefined) connection.dispatch(value, inVersion1(slot, version));
    return version !== undefined;
  }
}

/** Whether a value is a message of another protocol: an object with neither `jsonrpc` nor `method` nor an outcome under an id. */
function isForeign(value: unknown): value is object {
  if (!isObject(value) || value.jsonrpc !== undefined || value.method !== undefined) return false;
  return value.id === undefined || (value.result === undefined && value.error === undefined);
}

/** How a message says that it is of version 1.0: by its `jsonrpc`, or by having none. */
type Version1 = "named" | "assumed";

/**
 * Rewrites a message of version 1.0 in place as what version 2.0 says for the same. Returns `undefined` for one that is of
 * another version. Version 1.0 sends `result` and `error` together, one of them null, and an error may be anything.
 */
function fromVersion1(value: unknown): Version1 | undefined {
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
function inVersion1(slot: Slot, version: Version1): Slot {
  return {
    isInBatch: slot.isInBatch === true,
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

/**
 * The feature of messages besides those of JSON-RPC 2.0: the options `compat` and `onForeignMessage`. On a page:
 * `connect(url, { use: [compat], compat: "1.0" })`. `reciproc/node` and `reciproc/testing` use it by default.
 */
export const compat: Feature = {
  name: "compat",
  methods: () => [],
  create: (connection): OwnPart => new Compat(connection as Connection),
};
