/**
 * Incoming batches (section 6). The reply is one array, in request order, sent when every request of the batch is answered.
 */
import { encodeTooLarge, utf8Bytes } from "./codec.js";
import * as ErrorCode from "./codes.js";
import type { Connection } from "./connection.js";
import { classify, idOf, type Kind, type Unchecked } from "./message.js";
import type { BatchCalls } from "./outgoing-batch.js";
import { VALUE_COST } from "./transport.js";
import type { Version1 } from "./version1.js";

/** Where one response goes: to the connection, to its place in the reply to a batch, or to an HTTP response. */
export interface Slot {
  /** Whether a response fits. What fits must be put. */
  fits(text: string): boolean;
  /**
   * Takes the response. Returns false if it will not be sent. `onSent` is called once what holds the response has been sent, with
   * whether the connection has not ended: a peer whose connection has ended may have another.
   */
  put(text: string, onSent?: (isWhole: boolean) => void): boolean;
  /** Notes that no response will come. */
  leaveOut(): void;
}

/** Routes the members of a batch, in as many ticks as the budget of the connection needs. The reply goes into `slot`. */
export function receiveBatch(connection: Connection, members: unknown[], slot: Slot): void {
  if (members.length === 0) return connection.refuse(null, ErrorCode.InvalidRequest, "Invalid Request", slot);
  const { outgoing } = connection;
  const { maxBatchEntries } = connection.config.limits;
  const versions = members.map((member) => connection.config.normalize?.(member));
  const kinds = members.map((member) => {
    const kind = classify(member);
    return kind === "broken" ? connection.kindOfBroken(member as Unchecked) : kind;
  });
  // Responses never count against a limit: the calls that they settle are this side's own.
  const isTooLarge = kinds.filter((kind) => !isResponse(kind)).length > maxBatchEntries;
  const reply = new BatchReply(connection, slot);
  const answered = new Set<BatchCalls>();
  const nameless: number[] = [];
  const settle = (i: number): BatchCalls | undefined => outgoing.settle(kinds[i]!, members[i] as Unchecked);
  const take = (i: number): void => {
    const kind = kinds[i]!;
    if (!isResponse(kind)) {
      if (!isTooLarge) routeMember(connection, kind, members[i], versions[i], reply);
    } else if (idOf(members[i]) === null) nameless.push(i);
    else {
      const batch = settle(i);
      if (batch !== undefined) answered.add(batch);
    }
  };
  const end = (): void => {
    if (!isTooLarge) return;
    const error = { code: ErrorCode.BatchTooLarge, message: "Batch is too large", data: { maxBatchEntries } };
    connection.putError(null, error, slot);
  };
  inTicks(connection, members.length, take, () => {
    if (!isTooLarge) reply.countDown();
    for (const batch of answered) outgoing.endBatch(batch, members);
    // Last: an error that names no call may refuse a batch whole, and must not reject what the same reply answers by name.
    inTicks(connection, nameless.length, (n) => settle(nameless[n]!), end);
  });
}

/** Whether a message answers a call, or was meant to. */
function isResponse(kind: Kind): boolean {
  return kind === "response" || kind === "broken";
}

function routeMember(
  connection: Connection,
  kind: Kind,
  member: unknown,
  version1: Version1 | undefined,
  reply: BatchReply,
): void {
  connection.route(kind, member, version1, kind === "notification" ? connection : reply.reserve());
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

/** Gathers the responses to one batch. */
class BatchReply {
  readonly #connection: Connection;
  readonly #slot: Slot;
  readonly #responses: (string | undefined)[] = [];
  #onSent: ((isWhole: boolean) => void)[] | undefined;
  /** What the gathered responses are counted for. */
  #keptLength = 0;
  #bytesLeft: number;
  /** Responses that are still to come, and one for the batch, all of whose places must be reserved first. */
  #waiting = 1;

  constructor(connection: Connection, slot: Slot) {
    this.#connection = connection;
    this.#slot = slot;
    this.#bytesLeft = connection.maxReplyBytes - 1;
  }

  /** Reserves the next place. */
  reserve(): Slot {
    this.#waiting++;
    const index = this.#responses.push(undefined) - 1;
    return {
      fits: (text) => this.#fits(text),
      put: (text, onSent) => {
        this.#responses[index] = text;
        this.#keep(text.length + VALUE_COST);
        if (onSent !== undefined) (this.#onSent ??= []).push(onSent);
        this.countDown();
        return true;
      },
      leaveOut: () => this.countDown(),
    };
  }

  /** Counts one response, or that all places are reserved. Sends the reply after the last. */
  countDown(): void {
    if (--this.#waiting > 0) return;
    this.#keep(-this.#keptLength);
    const responses = this.#responses.filter((response) => response !== undefined);
    if (responses.length === 0) this.#slot.leaveOut();
    else if (!this.#slot.put(`[${responses.join(",")}]`)) {
      // Errors do not count against the bound, so the reply can be longer than the other side takes. It is refused whole.
      this.#connection.namelessErrors++;
      this.#slot.put(encodeTooLarge(null, this.#connection.maxReplyBytes));
    }
    for (const onSent of this.#onSent ?? []) onSent(this.#connection.ended === undefined);
  }

  /** Whether a response fits. If so, takes its bytes and its comma from what is left. */
  #fits(text: string): boolean {
    const bytes = utf8Bytes(text) + 1;
    if (bytes > this.#bytesLeft) return false;
    this.#bytesLeft -= bytes;
    return true;
  }

  #keep(length: number): void {
    this.#keptLength += length;
    this.#connection.transport.keeps?.(length);
  }
}
