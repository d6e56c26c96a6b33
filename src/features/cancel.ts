/** Cancelling, in the messages of a connection's dialect. */
import { encodeNotification } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { isExempt } from "../core/dialect.js";
import type { AbortCause } from "../core/incoming-call.js";
import type { Id } from "../core/message.js";
import type { OutgoingCall } from "../core/outgoing-calls.js";
import type { SendHandle } from "../core/transport.js";

/** The send handle of a cancel that is sent only if the other side understands it. */
export class OptionalCancel implements SendHandle {
  sent = false;
}

/** Cancels the calls of the other side that have that id. Returns the cause. */
export function receiveCancel({ incoming }: Connection, id: Id): AbortCause {
  let error: Error | undefined;
  const cause: AbortCause = {
    // Made when a handler or a stream first reads it: an AbortError records its stack, which takes several microseconds.
    get reason() {
      return (error ??= new DOMException("the caller cancelled", "AbortError"));
    },
  };
  incoming.cancel(id, cause);
  return cause;
}

/** Cancels a call that was sent, or is in a batch. `isDue`: also if the other side may not understand it. */
export function sendCancel(connection: Connection, call: OutgoingCall, reason: unknown, isDue: boolean): void {
  const { outgoing, opening, flow, sink, config } = connection;
  const { cancel } = config.dialect;
  if (!isDue && (call.sent || opening === undefined)) return;
  if (isExempt(config.dialect, call.method)) return;
  try {
    const text = encodeNotification(cancel.method, cancel.params(call.id, reason));
    const handle = isDue ? { sent: false } : new OptionalCancel();
    // If the call is in a batch that is still queued, the cancel is queued behind it.
    if (!(call.sent ? flow : sink).send(text, handle)) outgoing.failUnsent(text);
  } catch (error) {
    connection.report(error, { method: call.method, id: call.id });
  }
}
