/** Batches that this side sends (section 6). */
import type { CallOptions } from "./contract.js";
import type { OutgoingCall, OutgoingCalls, Sink } from "./outgoing-calls.js";
import type { SendHandle } from "./transport.js";

/**
 * The calls of one batch that still wait, and the send handle of its message. The reply is one array, so a call that the
 * array leaves out is never answered.
 */
export class BatchCalls extends Set<OutgoingCall> implements SendHandle {
  get sent(): boolean {
    return [...this].every((call) => call.sent);
  }

  set sent(value: boolean) {
    for (const call of this) call.sent = value;
  }
}

/** A batch that is being collected. */
export class OutgoingBatch implements Sink {
  readonly #entries: { text: string; call: OutgoingCall | undefined }[] = [];
  readonly #outgoing: OutgoingCalls;
  #isSent = false;

  constructor(outgoing: OutgoingCalls) {
    this.#outgoing = outgoing;
  }

  /** Adds a request. */
  async request(method: string, params: unknown, options?: CallOptions): Promise<unknown> {
    this.#checkUnsent();
    return this.#outgoing.request(method, params, options, this);
  }

  /** Adds a notification. */
  notify(method: string, params: unknown): boolean {
    this.#checkUnsent();
    return this.#outgoing.notify(method, params, this);
  }

  /** Sends what was collected and still waits, in one array. */
  send(): void {
    this.#checkUnsent();
    this.#isSent = true;
    const outgoing = this.#outgoing;
    const live = this.#entries.filter(({ call }) => call === undefined || outgoing.get(call.id) !== undefined);
    if (live.length === 0) return;
    const calls = new BatchCalls(live.flatMap(({ call }) => call ?? []));
    if (calls.size > 0) outgoing.openBatch(calls);
    const text = `[${live.map((entry) => entry.text).join(",")}]`;
    if (!outgoing.deliver(text, calls, undefined)) outgoing.failUnsent(calls, text);
  }

  /** Takes an encoded message. If `around` delayed it until the batch had left, it follows alone. */
  add(text: string, call: SendHandle | undefined): boolean {
    if (this.#isSent) return this.#outgoing.deliver(text, call, undefined);
    if (this.#outgoing.ended !== undefined) return false;
    this.#entries.push({ text, call: call as OutgoingCall | undefined });
    return true;
  }

  #checkUnsent(): void {
    if (this.#isSent) throw new Error("this batch was sent already");
  }
}
