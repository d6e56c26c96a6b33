/** The batches of one connection (section 6), in both directions. */
import { encodeTooLarge, joinTexts, utf8Bytes, type MessageText } from "../message/codec.js";
import * as ErrorCode from "../message/codes.js";
import type { Connection } from "../peer/connection.js";
import { ProtocolError, receivedError } from "../message/errors.js";
import type { Feature, NamedParts, OwnPart } from "../peer/feature.js";
import type { Sink } from "../peer/flow.js";
import type { Slot } from "../peer/incoming-call.js";
import { classify, isLoneId, type ErrorMessage, type Unchecked } from "../message/message.js";
import type { OutgoingCall, SharedHandle } from "../peer/outgoing-call.js";
import { VALUE_COST } from "../message/transport.js";

/**
 * The calls of one batch that still wait, and the send handle of its message. The reply is one array, so a call that the
 * array omits is never answered.
 */
class BatchCalls implements SharedHandle {
  readonly calls: Set<OutgoingCall>;

  constructor(calls: Iterable<OutgoingCall>) {
    this.calls = new Set(calls);
  }

  get sent(): boolean {
    return [...this.calls].every((call) => call.sent);
  }

  set sent(value: boolean) {
    for (const call of this.calls) call.sent = value;
  }
}

/** The batches that wait for their reply, and those that the other side sends. */
class Batches implements OwnPart {
  readonly #connection: Connection;
  /** The batches that wait for their reply. */
  readonly #open: Set<BatchCalls>;

  constructor(connection: Connection) {
    this.#connection = connection;
    this.#open = new Set();
  }

  receiveUnknown(value: unknown, slot: Slot): boolean {
    if (slot.isInBatch) return false;
    if (!Array.isArray(value)) return this.#receiveRefusal(value);
    // An empty batch is malformed.
    if (value.length > 0) this.#receiveBatch(value, slot);
    return value.length > 0;
  }

  /**
   * Rejects the pending batch, if there is one only. An error with id null that is no member of an array means that the other side could not
   * read the batch. It cannot mean a single call, because every id of this side is valid.
   */
  #receiveRefusal(value: unknown): boolean {
    const [batch, ...others] = this.#open;
    if (batch === undefined || others.length > 0 || classify(value) !== "response") return false;
    const { code, message, data } = (value as ErrorMessage).error;
    this.#fail(batch, (method) => receivedError(method, code, message, data));
    return true;
  }

  #fail({ calls }: BatchCalls, make: (method: string) => Error): void {
    for (const { id, method } of calls) this.#connection.outgoing.fail(id, make(method));
  }

  /**
   * Processes an array: a batch of the other side, or the reply to a batch of this side, whose responses settle calls. Takes as many ticks as
   * the budget of the connection needs. The reply is one array, in request order. It goes into `slot` when every request is answered.
   */
  #receiveBatch(members: unknown[], slot: Slot): void {
    const connection = this.#connection;
    const { maxBatchEntries } = connection.config.limits;
    const areResponses = members.map((member) => isResponse(connection, member));
    // Responses never count against a limit: the calls that they settle are this side's own.
    const isTooLarge = areResponses.filter((is) => !is).length > maxBatchEntries;
    const reply = gatherReply(connection, slot);
    const answered = new Set<BatchCalls>();
    const take = (i: number): void => {
      if (areResponses[i]) {
        const handle = connection.outgoing.get((members[i] as Unchecked).id)?.handle;
        if (handle instanceof BatchCalls) answered.add(handle);
      } else if (isTooLarge) return;
      const place = reply.reserve();
      // This member was a broken response when the array arrived. An earlier one may have settled its call since: it is not classified again.
      if (!areResponses[i] || !isLoneId(members[i] as Unchecked)) return connection.dispatch(members[i], place);
      connection.outgoing.settle("broken", members[i] as Unchecked, place);
      place.leaveOut();
    };
    inTicks(connection, members.length, take, () => {
      if (!isTooLarge) reply.countDown();
      // They will not be answered.
      for (const batch of answered)
        this.#fail(batch, (method) => new ProtocolError(`the batch's reply has no response to "${method}"`, members));
      if (!isTooLarge) return;
      const error = { code: ErrorCode.BatchTooLarge, message: "Batch is too large", data: { maxBatchEntries } };
      connection.incoming.putError(null, error, slot);
    });
  }

  /** Starts a batch that this side sends. */
  batch(): ReturnType<NamedParts["batches"]["batch"]> {
    const connection = this.#connection;
    const { outgoing } = connection;
    const entries: { text: MessageText; call: OutgoingCall | undefined }[] = [];
    let isSent = false;
    const checkUnsent = (): void => {
      if (isSent) throw new Error("this batch was sent already");
    };
    const sink: Sink = {
      send(text, call) {
        // `around` delayed the message until the batch was sent, so the message is sent by itself.
        if (isSent) return connection.flow.sink.send(text, call);
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
      send: () => {
        checkUnsent();
        isSent = true;
        const live = entries.filter(({ call }) => call === undefined || outgoing.get(call.id) !== undefined);
        if (live.length === 0) return;
        const calls = this.#opened(live.flatMap(({ call }) => call ?? []));
        const texts = live.map((entry) => entry.text);
        const text = joinTexts("[", texts, "]");
        if (!connection.flow.sink.send(text, calls)) outgoing.refused(text, calls);
      },
    };
  }

  /** Returns the handle of a batch with these calls, which waits until all of them are settled. */
  #opened(calls: readonly OutgoingCall[]): BatchCalls {
    const batch = new BatchCalls(calls);
    if (calls.length > 0) this.#open.add(batch);
    for (const call of calls) {
      call.handle = batch;
      call.whenSettled(() => {
        batch.calls.delete(call);
        if (batch.calls.size === 0) this.#open.delete(batch);
      });
    }
    return batch;
  }
}

/** Whether a member of a batch answers a call, or was meant to. */
function isResponse(connection: Connection, member: unknown): boolean {
  const kind = classify(member);
  return kind === "response" || (kind === "broken" && connection.outgoing.isMeantAsResponse(member as Unchecked));
}

/**
 * Calls `take` with each index below `count`, and then `end`. Once the budget of a tick is spent, defers the rest to the next
 * tick. Stops if the connection ends.
 */
function inTicks(connection: Connection, count: number, take: (i: number) => void, end: () => void, from = 0): void {
  const { budget } = connection.transport;
  for (let i = from; i < count; i++) {
    if (connection.ended !== undefined) return;
    if (i > from && budget?.isSpent()) return budget.defer(() => inTicks(connection, count, take, end, i));
    take(i);
  }
  end();
}

/** Gathers the responses to one batch. The reply goes into `slot`. */
function gatherReply(connection: Connection, slot: Slot): { reserve(): Slot; countDown(): void } {
  const responses: (MessageText | undefined)[] = [];
  const listeners: ((isWhole: boolean) => void)[] = [];
  const { incoming, transport } = connection;
  let bytesLeft = incoming.maxReplyBytes - 1;
  // Members that are not answered yet, and one for the batch, all of whose places must be reserved first.
  let waiting = 1;
  // The comma after a response counts too.
  const reserveBytes = (text: MessageText): boolean => {
    const bytes = utf8Bytes(text) + 1;
    if (bytes > bytesLeft) return false;
    bytesLeft -= bytes;
    return true;
  };
  // Counts one member, or that all places are reserved. Sends the reply after the last.
  const countDown = (): void => {
    if (--waiting > 0) return;
    const reply = responses.filter((response) => response !== undefined);
    for (const { length } of reply) transport.keeps?.(-length - VALUE_COST);
    if (reply.length === 0) return slot.leaveOut();
    const isTaken = slot.put(joinTexts("[", reply, "]"));
    if (!isTaken) {
      // Errors do not count against the bound, so the reply can be longer than the other side takes. It is refused whole.
      incoming.namelessErrors++;
      slot.put(encodeTooLarge(null, incoming.maxReplyBytes));
    }
    for (const listener of listeners) listener(isTaken && connection.ended === undefined);
  };
  const reserve = (): Slot => {
    const place = responses.push(undefined) - 1;
    waiting++;
    return {
      isInBatch: true,
      reserveBytes,
      put(text, onSent) {
        if (typeof text !== "string") text.keep();
        responses[place] = text;
        transport.keeps?.(text.length + VALUE_COST);
        if (onSent !== undefined) listeners.push(onSent);
        countDown();
        return true;
      },
      leaveOut: countDown,
    };
  };
  return { reserve, countDown };
}

/**
 * The feature of batches: `peer.batch()`, and batches of the other side. On a page: `connect(url, { use: [batches] })`. `reciproc/node`
 * and `reciproc/testing` use it by default. A peer without it takes an array for one malformed message, and answers -32600.
 */
export const batches: Feature = {
  name: "batches",
  methods: () => [],
  create: (connection): OwnPart => new Batches(connection as Connection),
};
