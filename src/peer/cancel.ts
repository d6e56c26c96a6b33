/** Cancelling, in the messages of a connection's dialect. */
import { encodeNotification } from "../message/codec.js";
import type { Connection } from "./connection.js";
import { isExempt } from "./dialect.js";
import type { AbortCause } from "./incoming-call.js";
import type { OutgoingCall } from "./outgoing-calls.js";
import type { SendHandle } from "../message/transport.js";

/** The send handle of a cancel that is sent only if the other side understands it. */
export class OptionalCancel implements SendHandle {
  sent = false;
}

/** Cancels the calls of the other side that a cancel names. */
export function receiveCancel({ config, incoming, madeParts }: Connection, params: unknown): void {
  const id = config.dialect.cancel.idOf(params);
  if (id === undefined) return;
  let error: Error | undefined;
  const cause: AbortCause = {
    // Made when a handler or a stream first reads it: an AbortError records its stack, which takes several microseconds.
    get reason() {
      return (error ??= new DOMException("the caller cancelled", "AbortError"));
    },
  };
  incoming.cancel(id, cause);
  madeParts?.each("cancelled", id, cause);
}

/** Cancels a call that was sent, or is in a batch. */
export function sendCancel(connection: Connection, call: OutgoingCall, reason: unknown): void {
  const { outgoing, flow, config, speaksDialect, madeParts } = connection;
  const { cancel } = config.dialect;
  const isDue = speaksDialect || madeParts?.first("mustCancel", call) === true;
  if (!isDue && (call.sent || flow.opening === undefined)) return;
  if (isExempt(config.dialect, call.method)) return;
  try {
    const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
    const handle = isDue ? { sent: false } : new OptionalCancel();
    // If the call is in a batch that is still queued, the cancel is queued behind it.
    if (!(call.sent ? flow : flow.sink).send(text, handle)) outgoing.refused(text);
  } catch (error) {
    connection.report(error, { method: call.method, id: call.id });
  }
}
