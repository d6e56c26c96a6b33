/**
 * Incoming batches (section 6). The reply is one array, in request order, sent when every request of the batch is answered.
 */
import { encodeTooLarge, joinTexts, utf8Bytes, type MessageText } from "./codec.js";
import * as ErrorCode from "./codes.js";
import type { Connection } from "./connection.js";
import { classify, type Kind, type Unchecked } from "./message.js";
import type { BatchCalls } from "./outgoing-batch.js";
import { VALUE_COST } from "./transport.js";

/** Where one response goes: to the connection, to its place in the reply to a batch, or to an HTTP response. */
export interface Slot {
  /** Reserves the bytes of a response, which must then be put. Returns false if they do not fit. */
  reserveBytes(text: MessageText): boolean;
  /**
   * Takes the response. Returns false if it will not be sent. `onSent` is called once: with true when what holds the response was
   * sent, with false if that will not be sent or the connection has ended. A peer whose connection has ended may have another.
   */
  put(text: MessageText, onSent?: (isWhole: boolean) => void): boolean;
  /** Notes that no response will come. */
  leaveOut(): void;
}

/** Processes the members of a batch, in as many ticks as the budget of the connection needs. The reply goes into `slot`. */
export function receiveBatch(connection: Connection, members: unknown[], slot: Slot): void {
  if (members.length === 0) return connection.refuse(null, ErrorCode.InvalidRequest, "Invalid Request", slot);
  const { outgoing, config } = connection;
  const { maxBatchEntries } = config.limits;
  const versions = members.map((member) => config.normalize?.(member));
  const kinds = members.map((member) => {
    const kind = classify(member);
    return kind === "broken" ? connection.kindOfBroken(member as Unchecked) : kind;
  });
  // Responses never count against a limit: the calls that they settle are this side's own.
  const isTooLarge = kinds.filter((kind) => !isResponse(kind)).length > maxBatchEntries;
  const reply = isTooLarge ? undefined : gatherReply(connection, slot);
  const answered = new Set<BatchCalls>();
  const take = (i: number): void => {
    const kind = kinds[i]!;
    if (isResponse(kind)) {
      const batch = outgoing.settle(kind, members[i] as Unchecked, true);
      if (batch !== undefined) answered.add(batch);
    } else if (reply !== undefined) {
      const to = kind === "notification" ? connection : reply.reserve();
      connection.incoming.receive(kind, members[i], versions[i], to);
    }
  };
  inTicks(connection, members.length, take, () => {
    reply?.countDown();
    for (const batch of answered) outgoing.endBatch(batch, members);
    if (reply !== undefined) return;
    const error = { code: ErrorCode.BatchTooLarge, message: "Batch is too large", data: { maxBatchEntries } };
    connection.putError(null, error, slot);
  });
}

/** Whether a message answers a call, or was meant to. */
function isResponse(kind: Kind): boolean {
  return kind === "response" || kind === "broken";
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
  const { transport } = connection;
  let bytesLeft = connection.maxReplyBytes - 1;
  // Responses that are still to come, and one for the batch, all of whose places must be reserved first.
  let waiting = 1;
  // The comma behind a response counts too.
  const reserveBytes = (text: MessageText): boolean => {
    const bytes = utf8Bytes(text) + 1;
    if (bytes > bytesLeft) return false;
    bytesLeft -= bytes;
    return true;
  };
  // Counts one response, or that all places are reserved. Sends the reply after the last.
  const countDown = (): void => {
    if (--waiting > 0) return;
    const reply = responses.filter((response) => response !== undefined);
    for (const { length } of reply) transport.keeps?.(-length - VALUE_COST);
    if (reply.length === 0) return slot.leaveOut();
    const isTaken = slot.put(joinTexts("[", reply, "]"));
    if (!isTaken) {
      // Errors do not count against the bound, so the reply can be longer than the other side takes. It is refused whole.
      connection.namelessErrors++;
      slot.put(encodeTooLarge(null, connection.maxReplyBytes));
    }
    for (const listener of listeners) listener(isTaken && connection.ended === undefined);
  };
  const reserve = (): Slot => {
    const place = responses.push(undefined) - 1;
    waiting++;
    return {
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
