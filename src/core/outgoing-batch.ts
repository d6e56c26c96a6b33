/** Batches that this side sends (section 6). */
import { joinTexts, type MessageText } from "./codec.js";
import type { CallOptions } from "./contract.js";
import type { Connection } from "./connection.js";
import type { Sink } from "./flow.js";
import type { OutgoingCall } from "./outgoing-calls.js";
import type { SendHandle } from "./transport.js";

/**
 * The calls of one batch that still wait, and the send handle of its message. The reply is one array, so a call that the
 * array omits is never answered.
 */
export class BatchCalls extends Set<OutgoingCall> implements SendHandle {
  get sent(): boolean {
    return [...this].every((call) => call.sent);
  }

  set sent(value: boolean) {
    for (const call of this) call.sent = value;
  }
}

/** Returns a batch that is being collected. Its functions throw, or reject, once it was sent. */
export function outgoingBatch(connection: Connection): OutgoingBatch {
  const { outgoing } = connection;
  const entries: { text: MessageText; call: OutgoingCall | undefined }[] = [];
  let isSent = false;
  const checkUnsent = (): void => {
    if (isSent) throw new Error("this batch was sent already");
  };
  const sink: Sink = {
    send(text, call) {
      // `around` delayed the message until the batch was sent, so the message is sent by itself.
      if (isSent) return connection.sink.send(text, call);
      if (outgoing.ended !== undefined) return false;
      if (typeof text !== "string") text.keep();
      entries.push({ text, call: call as OutgoingCall | undefined });
      return true;
    },
  };
  return {
    async request(method, params, options) {
      checkUnsent();
      return outgoing.request(method, params, options, sink);
    },
    notify(method, params) {
      checkUnsent();
      return outgoing.notify(method, params, sink);
    },
    send() {
      checkUnsent();
      isSent = true;
      const live = entries.filter(({ call }) => call === undefined || outgoing.get(call.id) !== undefined);
      if (live.length === 0) return;
      const calls = new BatchCalls(live.flatMap(({ call }) => call ?? []));
      if (calls.size > 0) outgoing.openBatch(calls);
      const texts = live.map((entry) => entry.text);
      const text = joinTexts("[", texts, "]");
      if (!connection.sink.send(text, calls)) outgoing.failUnsent(text, calls);
    },
  };
}

/** A batch that is being collected. */
interface OutgoingBatch {
  /** Adds a request. */
  request(method: string, params: unknown, options?: CallOptions): Promise<unknown>;
  /** Adds a notification. */
  notify(method: string, params: unknown): boolean;
  /** Sends what was collected and still waits, in one array. */
  send(): void;
}
