/** What comes in, told apart by its shape: requests and notifications to the dispatcher, answers to the pending calls, garbage refused. */
import { BatchReply, soleSlot, type Slot } from "./batch.js";
import { encodeError } from "./codec.js";
import { tooLarge, type Dispatcher } from "./dispatch.js";
import * as ErrorCode from "./codes.js";
import { RpcError } from "./errors.js";
import {
  classify,
  isForeign,
  isId,
  isLoneId,
  isObject,
  type ErrorMessage,
  type ErrorObject,
  type Id,
  type Kind,
  type NotificationMessage,
  type RequestMessage,
  type Unchecked,
} from "./message.js";
import type { Outgoing } from "./outgoing.js";
import type { BatchCalls } from "./pending.js";
import { Rate } from "./rate.js";
import type { AnyHandler, Config } from "./config.js";
import type { Counts } from "./stats.js";
import { attempt } from "./tell.js";
import type { TickBudget } from "./transport.js";
import { fromVersion1, inVersion1, type Version1 } from "./version1.js";

/** What the router needs of its peer. */
export interface Gate {
  /** What `onForeignMessage` is given. */
  readonly peer: unknown;
  readonly counts: Counts;
  /** Why the connection ended; `undefined` while it is open. Nothing is routed after that. */
  readonly ended: Error | undefined;
  /** Errors with id null that were sent and not yet answered by one. */
  namelessErrors: number;
  /** Longest answer to one message or batch, in bytes of UTF-8. */
  readonly maxReplyBytes: number;
  /** How long a batch is processed in one tick, where that is bounded. */
  readonly budget: TickBudget | undefined;
  /** Hands a text to the connection; false when it will not be sent. */
  send(text: string): boolean;
  report(error: unknown): void;
  /** Reports an error that the other side can cause with each of its messages. `make` runs only if there is a listener. */
  reportIfHeard(make: () => unknown): void;
  /** Counts what is kept for the other side. */
  keep(by: number): void;
  /** Ends the connection. */
  end(code: number, reason: string): void;
}

const MINUTE_MS = 60_000;

/** The incoming side of one peer. */
export class Router {
  readonly #gate: Gate;
  readonly #in: Dispatcher;
  readonly #out: Outgoing;
  readonly #config: Config;
  /** Malformed messages in this minute. */
  #malformed = 0;
  #malformedSince = 0;
  readonly #rate: Rate | undefined;

  constructor(gate: Gate, dispatcher: Dispatcher, outgoing: Outgoing, config: Config) {
    this.#gate = gate;
    this.#in = dispatcher;
    this.#out = outgoing;
    this.#config = config;
    const { maxMessagesPerSecond } = config.limits;
    this.#rate = maxMessagesPerSecond === Infinity ? undefined : new Rate(maxMessagesPerSecond);
  }

  /** Takes one text. What is answered goes into `slot`, where there is one, which is told also when nothing is. */
  receive(text: string, slot?: Slot): void {
    if (this.#gate.ended !== undefined) return;
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      // What was wrong with the text is the sender's to find: it is answered, and counted.
      return this.#refuse(null, ErrorCode.ParseError, "Parse error", slot);
    }
    this.route(value, slot);
  }

  /** Takes one parsed message or batch, as `receive` does. */
  route(value: unknown, slot?: Slot): void {
    if (this.#gate.ended !== undefined) return;
    if (Array.isArray(value)) return this.#routeBatch(value, slot);
    const { onForeignMessage } = this.#config;
    if (onForeignMessage !== undefined && isForeign(value)) return this.#passOn(onForeignMessage, value, slot);
    const version1 = this.#concede(value);
    const kind = this.#kindOf(value);
    if (isAnswer(kind)) this.#settle(kind, value as Unchecked);
    else this.#routeCall(kind, value, version1 === undefined ? slot : this.#inKind(slot, version1));
    if (isAnswer(kind) || kind === "notification") slot?.leaveOut();
  }

  /** Gives a message of another protocol to the application. It gets no reply. */
  #passOn(onForeignMessage: AnyHandler, message: object, slot: Slot | undefined): void {
    if (this.#rate !== undefined && !this.#rate.take()) this.#gate.counts.refusedRate++;
    else
      attempt(
        () => onForeignMessage(message, this.#gate.peer),
        (error) => this.#gate.report(error),
      );
    slot?.leaveOut();
  }

  /**
   * Returns what a value is to this side. An id alone that no call waits under is a request without its method, whose sender
   * would wait for ever.
   */
  #kindOf(value: unknown): Kind {
    const kind = classify(value);
    if (kind !== "broken" || !isLoneId(value as Unchecked)) return kind;
    return this.#out.pending.get((value as Unchecked).id) === undefined ? "invalid" : kind;
  }

  /** Rewrites what the config makes allowance for. Returns how a message says that it is of version 1.0, if it is. */
  #concede(value: unknown): Version1 | undefined {
    const { dialect, choseDialect, readsVersion1 } = this.#config;
    if (choseDialect && dialect.readsNullParams === true) dropNullParams(value);
    return readsVersion1 ? fromVersion1(value) : undefined;
  }

  #inKind(slot: Slot | undefined, version: Version1): Slot {
    const sole = slot ?? soleSlot(this.#gate.maxReplyBytes, (text) => text === undefined || this.#gate.send(text));
    return inVersion1(sole, version);
  }

  #routeBatch(members: unknown[], slot: Slot | undefined): void {
    if (members.length === 0) return this.#refuse(null, ErrorCode.InvalidRequest, "Invalid Request", slot);
    const { maxBatchEntries } = this.#config.limits;
    const versions = members.map((member) => this.#concede(member));
    const kinds = members.map((member) => this.#kindOf(member));
    // Answers never count against a limit: the calls they settle are this side's own.
    const tooMany = kinds.filter((kind) => !isAnswer(kind)).length > maxBatchEntries;
    const reply = this.#replyTo(slot);
    const answered = new Set<BatchCalls>();
    const nameless: number[] = [];
    const take = (i: number): void => {
      const kind = kinds[i]!;
      if (isAnswer(kind) && idOf(members[i]) === null) nameless.push(i);
      else if (isAnswer(kind)) {
        const batch = this.#settle(kind, members[i] as Unchecked);
        if (batch !== undefined) answered.add(batch);
      } else if (!tooMany) this.#routeMember(kind, members[i], versions[i], reply);
    };
    const end = (): void => {
      if (!tooMany) return;
      const error = { code: ErrorCode.BatchTooLarge, message: "Batch is too large", data: { maxBatchEntries } };
      this.#replyError(null, error, slot);
    };
    this.#inTicks(members.length, take, () => {
      if (!tooMany) reply.complete();
      for (const batch of answered) this.#out.pending.endBatch(batch, members);
      // Last: an error that names no call may refuse a batch whole, and must not reject what the same reply answers by name.
      const takeNameless = (n: number): void => {
        const i = nameless[n]!;
        this.#settle(kinds[i]!, members[i] as Unchecked);
      };
      this.#inTicks(nameless.length, takeNameless, end);
    });
  }

  /** Calls `take` with each index below `count`, in as many ticks as the budget needs, and then `end`; unless the connection ends. */
  #inTicks(count: number, take: (i: number) => void, end: () => void, from = 0): void {
    const { budget } = this.#gate;
    for (let i = from; i < count; i++) {
      if (this.#gate.ended !== undefined) return;
      if (i > from && budget?.isSpent()) return budget.defer(() => this.#inTicks(count, take, end, i));
      take(i);
    }
    end();
  }

  #replyError(id: Id, error: ErrorObject, slot: Slot | undefined): void {
    if (id === null) this.#gate.namelessErrors++;
    this.#reply(encodeError(id, error), slot);
  }

  /** Returns a reply for one batch. Made apart from the batch: it lives until the last answer, and holds what is in its scope. */
  #replyTo(slot: Slot | undefined): BatchReply {
    return new BatchReply(
      this.#gate.maxReplyBytes,
      (text) => this.#replyWhole(text, slot),
      (by) => this.#gate.keep(by),
    );
  }

  #reply(text: string | undefined, slot: Slot | undefined): void {
    if (text === undefined) slot?.leaveOut();
    else if (slot === undefined) this.#gate.send(text);
    else slot.put(text);
  }

  /** Errors in a batch's reply do not count against its bound, and can make it longer than the other side takes: it is refused whole. */
  #replyWhole(text: string | undefined, slot: Slot | undefined): void {
    if (text === undefined || slot !== undefined) this.#reply(text, slot);
    else if (!this.#gate.send(text)) {
      this.#gate.namelessErrors++;
      this.#gate.send(tooLarge(null, this.#gate.maxReplyBytes));
    }
  }

  #routeMember(kind: Kind, member: unknown, version1: Version1 | undefined, reply: BatchReply): void {
    const slot = kind === "notification" ? undefined : reply.slot();
    this.#routeCall(kind, member, slot !== undefined && version1 !== undefined ? this.#inKind(slot, version1) : slot);
  }

  #routeCall(kind: Kind, message: unknown, slot: Slot | undefined): void {
    const { counts } = this.#gate;
    if (kind === "invalid") return this.#refuse(refusalId(message), ErrorCode.InvalidRequest, "Invalid Request", slot);
    if (kind === "request") counts.requestsReceived++;
    else counts.notificationsReceived++;
    if (this.#rate !== undefined && !this.#rate.take()) return this.#tooFast(kind, message as RequestMessage, slot);
    if (kind === "request") this.#in.request(message as RequestMessage, slot);
    else this.#in.notification(message as NotificationMessage);
  }

  /** A notification gets no answer, whatever happens. */
  #tooFast(kind: Kind, { id }: RequestMessage, slot: Slot | undefined): void {
    this.#gate.counts.refusedRate++;
    if (kind !== "request") return;
    const { maxMessagesPerSecond } = this.#config.limits;
    const error = { code: ErrorCode.Busy, message: "Too many messages", data: { maxMessagesPerSecond } };
    this.#in.reply(id, encodeError(id, error), slot);
  }

  /** Answers what is no message. */
  #refuse(id: Id, code: number, message: string, slot?: Slot): void {
    if (!this.#toleratesMalformed()) return;
    this.#replyError(id, { code, message }, slot);
  }

  /** Settles what a response answers; answers the batch that call left in. A response is never answered: two peers would loop. */
  #settle(kind: Kind, response: Unchecked): BatchCalls | undefined {
    const call = this.#out.pending.answer(kind, response);
    if (call !== undefined) return call.batch;
    // Sloppy servers answer notifications too. Ignoring an answer costs nothing, so it is no reason to close.
    this.#gate.counts.unmatched++;
    if (kind === "response" && response.id === null && response.result === undefined)
      this.#refused(response as ErrorMessage);
    return undefined;
  }

  /**
   * Takes an error with id null (section 5): something sent from here could not be read. Unless it may answer an error with id
   * null of this side's own, it refuses the batch that waits, if only one does.
   */
  #refused(response: ErrorMessage): void {
    if (this.#gate.namelessErrors > 0) this.#gate.namelessErrors--;
    else if (this.#out.pending.refuseBatch(response)) return;
    const { code, message, data } = response.error;
    this.#gate.reportIfHeard(() => new RpcError(code, message, data));
  }

  /** Counts a malformed message; false when it was one too many and the connection is closed for it. */
  #toleratesMalformed(): boolean {
    this.#gate.counts.malformed++;
    const now = performance.now();
    if (this.#malformed === 0 || now - this.#malformedSince > MINUTE_MS) {
      this.#malformedSince = now;
      this.#malformed = 0;
    }
    const { maxMalformedPerMinute } = this.#config.limits;
    if (++this.#malformed <= maxMalformedPerMinute) return true;
    this.#gate.end(1008, `more than ${maxMalformedPerMinute} malformed messages in a minute`);
    return false;
  }
}

function isAnswer(kind: Kind): boolean {
  return kind === "response" || kind === "broken";
}

/** As vscode-jsonrpc does. */
function dropNullParams(value: unknown): void {
  if (isObject(value) && value.params === null) delete value.params;
}

/** Returns the id to refuse a malformed request with: null for one that may be a response, whose id could settle a call. */
function refusalId(value: unknown): Id {
  return isObject(value) && isLoneId(value) ? null : idOf(value);
}

/** The id of a message. One that cannot be echoed exactly is null. */
function idOf(value: unknown): Id {
  const id = isObject(value) ? value.id : undefined;
  return isId(id) ? id : null;
}
