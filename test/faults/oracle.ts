/**
 * The oracle knows all sent messages with their end and session, and checks every settlement and every arrival against
 * them. A session has two ends. An `End` of the client lies between two of its `lost` events, and an `End` of the
 * server is one of its peers. Arriving messages show which two ends belong together.
 */
import { MOVED } from "../support/stores.js";
import type { ConnectionLostError, RpcError, TimeoutError } from "../../src/index.js";

export class Breach extends Error {
  override readonly name = "Breach";
}

export class End {
  readonly side: "client" | "server";
  /** Its place in `ends`. */
  readonly index: number;
  /** The messages that this end sent, in order, and how many of them have arrived. */
  readonly sent: Sent[] = [];
  got = 0;
  /** How many of its broadcasts without a key have not arrived. */
  missing = 0;
  /** The newest message of each key, and the newest that has arrived. */
  readonly newest = new Map<string, Sent>();
  readonly shown = new Map<string, Sent>();
  /** How many messages of each method its peer has dropped, as the server reports it. */
  readonly dropped = new Map<string, number>();
  /** How many of its messages were dropped, as the other end reports it. */
  missed = 0;
  /** The other end of the session, once something arrived there. */
  other: End | undefined;
  /** Why this end may end before its session expires. */
  reason: string | undefined;
  /** Whether the server certainly has the client's hello or `resume`. */
  isProven = false;
  suspendedAt: number | undefined;
  isOver = false;
  closedWith: number | undefined;

  constructor(side: End["side"], index: number) {
    this.side = side;
    this.index = index;
  }
}

interface Sent {
  readonly label: string;
  /** The call, or `undefined` for a notification, which cannot be cancelled. */
  readonly call: Call | undefined;
  readonly isBroadcast?: boolean;
  /** The key of a message of which only the newest must arrive. */
  readonly key?: string | undefined;
  readonly isVolatile?: boolean;
}

/** The methods of broadcasts: without a key, and with one. */
export const TOLD = "told";
export const SHOWN = "shown";

/** The allowed outcomes of a call besides its result. */
export interface Expectation {
  /** The call is aborted, or has a short timeout. */
  mayGiveUp?: boolean;
  fails?: boolean;
  /** The call is over the other side's limit. */
  isTooLong?: boolean;
  /** It is made again on the next connection if it was not sent. */
  isRetried?: boolean;
  /** Its handler reports progress this many times, as whole numbers from 0, before it returns. */
  reports?: number;
}

export class Call {
  readonly label: string;
  readonly from: End;
  readonly expects: Expectation;
  ran = 0;
  ranAt: End | undefined;
  reports = 0;
  /** Whether the call was rejected because its session was lost. */
  isLost = false;
  outcome: "result" | "error" | "not-sent" | "unknown" | "given-up" | undefined;

  constructor(label: string, from: End, expects: Expectation) {
    this.label = label;
    this.from = from;
    this.expects = expects;
  }
}

const NO_OUTCOMES = {
  calls: 0,
  notifications: 0,
  broadcasts: 0,
  /** Messages of which only the newest must arrive, and those of them that a newer one has replaced. */
  latest: 0,
  replaced: 0,
  /** Volatile messages, and those of them that have arrived. */
  volatile: 0,
  volatileArrived: 0,
  /** Reports of dropped messages, and the sum of their counts. */
  reportsOfMissed: 0,
  missed: 0,
  result: 0,
  error: 0,
  "not-sent": 0,
  unknown: 0,
  "given-up": 0,
  lost: 0,
  suspends: 0,
  reports: 0,
  bytes: 0,
  /** Streams whose reader got the loss of a session. */
  interrupted: 0,
  /** Calls that were made again on the next connection, and have run there. */
  retried: 0,
  /** Calls of `reauthenticate` that resolved, those of them that resolved after a lost socket, and those that rejected. */
  renewed: 0,
  renewedLater: 0,
  renewalsLost: 0,
  /** New results of `authenticate` for a peer that is open. */
  refreshes: 0,
  /** Connections that ended because the `auth` of the client had expired. */
  expiries: 0,
};

export type Tally = typeof NO_OUTCOMES;

/** Checks the events in one world against the allowed events. */
export class Oracle {
  readonly tally: Tally = { ...NO_OUTCOMES };
  readonly ends: End[] = [];
  /** The ended ends, with the reasons. */
  readonly losses: string[] = [];
  readonly #calls = new Map<string, Call>();
  readonly #ttlMs: number;
  breach: Breach | undefined;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  readonly fail = (what: string): void => {
    this.breach ??= new Breach(what);
  };

  begin(side: End["side"]): End {
    const end = new End(side, this.ends.length);
    this.ends.push(end);
    return end;
  }

  /** Records that an end is about to send a notification. A broadcast must not end a session: `over` accepts no such reason. */
  says(end: End, label: string, kind: Omit<Sent, "label" | "call"> = {}): void {
    const { key, isBroadcast, isVolatile } = kind;
    const message = { label, call: undefined, ...kind };
    end.sent.push(message);
    if (key !== undefined) end.newest.set(key, message);
    else if (isBroadcast === true) end.missing++;
    const ordinary = isVolatile === true ? "volatile" : isBroadcast === true ? "broadcasts" : "notifications";
    this.tally[key === undefined ? ordinary : "latest"]++;
  }

  /** Records that the server reports a dropped message of an end of its own. */
  drops(end: End, method: string): void {
    if (![TOLD, SHOWN, MOVED].includes(method)) this.fail(`a message of ${method} was dropped`);
    end.dropped.set(method, (end.dropped.get(method) ?? 0) + 1);
  }

  /** Records that the client got a report of dropped messages. No report counts a message twice, nor before it is dropped. */
  misses(at: End, count: number): void {
    const { other } = at;
    if (at.isOver || other === undefined) return this.fail("a report of dropped messages belongs to no session");
    this.tally.reportsOfMissed++;
    this.tally.missed += count;
    other.missed += count;
    if (count < 1 || other.missed > dropsOf(other))
      this.fail(`${other.missed} messages were reported as missed, of ${dropsOf(other)}`);
  }

  refused(end: End, label: string): void {
    const last = end.sent.pop();
    if (last?.label !== label) this.fail(`${label} was refused, and something was sent since`);
    // Only a connection that has ended refuses such a message.
    if (last?.key !== undefined) end.newest.delete(last.key);
  }

  calls(from: End, label: string, expects: Expectation, isOrdered = true): Call {
    this.tally.calls++;
    const call = new Call(label, from, expects);
    this.#calls.set(label, call);
    if (isOrdered) from.sent.push({ label, call });
    return call;
  }

  /** Records that bytes have arrived with the message of that label. They are base64 until both sides have a hello. */
  carries(label: string, data: unknown, expected: Uint8Array): void {
    this.tally.bytes++;
    const got = typeof data === "string" ? Buffer.from(data, "base64") : data;
    const isRight = got instanceof Uint8Array && Buffer.compare(got, expected) === 0;
    if (!isRight) this.fail(`the bytes of ${label} arrived changed`);
  }

  /** Records that a message of `from` has arrived at `at`, in order with all others. */
  arrives(from: number, at: End, label: string): void {
    const sender = this.#sender(from, at);
    if (sender === undefined) return;
    if (at.isOver) this.fail(`${label} arrived after its session was over`);
    for (let due = sender.sent[sender.got]; due?.label !== label; due = sender.sent[++sender.got]) {
      if (!mayBeMissing(due, sender)) return this.fail(`${label} arrived where ${due?.label ?? "nothing"} was due`);
      if (due?.key !== undefined) this.tally.replaced++;
    }
    const message = sender.sent[sender.got]!;
    if (message.key !== undefined) sender.shown.set(message.key, message);
    else if (message.isBroadcast === true) sender.missing--;
    if (message.isVolatile === true) this.tally.volatileArrived++;
    sender.got++;
  }

  /** Records that a topic's message has arrived, which does not name its sender. */
  arrivesFromTopic(at: End, label: string): void {
    if (at.other === undefined) return this.fail(`${label} arrived before the first message of its session`);
    this.arrives(at.other.index, at, label);
  }

  runs(label: string, at: End): void {
    const call = this.#calls.get(label);
    if (call === undefined) return this.fail(`${label} ran, and was never called`);
    call.ranAt = at;
    if (++call.ran > 1) this.fail(`${label} ran ${call.ran} times`);
    if (call.outcome === "not-sent") this.fail(`${label} is reported as not sent, and ran`);
  }

  /** Records that a call is fulfilled. `isRight`: with the result of its handler. */
  fulfilled(call: Call, isRight: boolean): void {
    this.#settles(call, "result");
    if (!isRight) this.fail(`${call.label} was answered with the answer to something else`);
    if (call.ran !== 1) this.fail(`${call.label} has a result, and ran ${call.ran} times`);
    if (call.expects.fails === true) this.fail(`${call.label} has a result, and its handler failed`);
    if (call.expects.isRetried === true && call.from.isOver && call.ranAt !== call.from.other) this.tally.retried++;
    const { reports = 0 } = call.expects;
    if (call.reports !== reports) this.fail(`${call.label} was answered after ${call.reports} of ${reports} reports`);
  }

  reported(call: Call, value: unknown): void {
    this.tally.reports++;
    if (call.outcome !== undefined) this.fail(`${call.label} got report ${String(value)} after it was settled`);
    if (value !== call.reports++) this.fail(`${call.label} got report ${String(value)} as its number ${call.reports}`);
  }

  /** Records that reading a stream of a call of `method` rejects, after this many values. */
  unread(call: Call, method: string, values: number, error: unknown): void {
    const lost = error as ConnectionLostError;
    if (lost.code === "CONNECTION_LOST") {
      this.tally.interrupted++;
      if (lost.method !== method) this.fail(`${call.label} was rejected in the name of ${lost.method}`);
      const hasRun = call.ran > 0 || values > 0;
      if (lost.outcome === "not-sent" && hasRun) this.fail(`${call.label} was not sent, says its stream, and ran`);
    }
    this.rejected(call, error);
  }

  /** Records that reading a stream from the params of a call rejects: so the call was sent. */
  unreadParams(label: string, error: unknown): void {
    const { code, outcome } = error as ConnectionLostError;
    if (code !== "CONNECTION_LOST") return;
    this.tally.interrupted++;
    if (outcome !== "unknown") this.fail(`a stream in the params of ${label} was ${outcome}, says its reader`);
  }

  rejected(call: Call, error: unknown): void {
    const { label, expects } = call;
    const { code } = error as { code?: unknown };
    if (code === "TIMEOUT" || code === "CONNECTION_LOST") return this.#unanswered(call, error as TimeoutError);
    this.#settles(call, code === "TOO_LARGE" ? "not-sent" : code === ABORTED ? "given-up" : "error");
    if (code === "TOO_LARGE") {
      if (expects.isTooLong !== true) this.fail(`${label} was too long for the other side, and is not`);
      if (call.ran > 0) this.fail(`${label} was too long to be sent, and ran`);
    } else if (code === ABORTED) {
      if (expects.mayGiveUp !== true) this.fail(`${label} was given up, and no rule allows that`);
    } else {
      const isRight = code === FAILURE && expects.fails === true && (error as RpcError).data === label;
      if (!isRight) this.fail(`${label} was rejected with ${String(error)}`);
      if (call.ran !== 1) this.fail(`${label} has an error, and ran ${call.ran} times`);
    }
  }

  /** Records that the client or a server's peer reported a lost socket. */
  suspended(end: End): void {
    if (end.suspendedAt !== undefined) this.fail(`the ${end.side}'s end was suspended twice`);
    if (end.isOver) this.fail(`the ${end.side}'s end was suspended after its end`);
    end.suspendedAt = performance.now();
    this.tally.suspends++;
  }

  resumed(end: End): void {
    if (end.suspendedAt === undefined) this.fail(`the ${end.side}'s end was resumed and not suspended`);
    end.suspendedAt = undefined;
    if (end.side === "server") end.isProven = true;
  }

  closed(end: End, { code, reason }: { code: number; reason: string }): void {
    end.closedWith = code;
    this.over(end, `closed with ${code} ${reason}`);
  }

  /** Records that an end has ended: by `lost` at the client, `close` at the server, or a requested close. */
  over(end: End, why: string): void {
    if (end.isOver) return this.fail(`the end of the ${end.side}'s end was told twice`);
    end.isOver = true;
    this.tally.lost++;
    const { suspendedAt, other } = end;
    if (suspendedAt !== undefined && performance.now() - suspendedAt >= this.#ttlMs) end.reason ??= EXPIRED;
    if (!end.isProven && other?.isProven !== true) end.reason ??= "the client's hello has perhaps never come";
    if (end.reason === undefined && other?.reason === undefined)
      this.fail(`the ${end.side} gave a session up for no reason: ${why}`);
    this.losses.push(`end ${end.index} of the ${end.side}: ${why}, for ${end.reason ?? other?.reason}`);
    end.reason ??= `the ${end.side}'s end is over`;
  }

  /** Checks that nothing is left after the world has ended. */
  finish(): void {
    for (const call of this.#calls.values()) {
      const { label, outcome, from } = call;
      if (outcome === undefined) this.fail(`${label} never settled`);
      if (outcome === "not-sent" && call.ran > 0) this.fail(`${label} is reported as not sent, and ran`);
      if (call.isLost && !from.isOver) this.fail(`${label} is said to be lost, and its session is not`);
    }
  }

  /**
   * Returns whether all messages of an end have arrived, and every dropped one was reported once to both sides. Exceptions are
   * calls that their caller gave up, volatile messages, those that a newer one has replaced, and as many broadcasts as its
   * peer counts as `dropped`. The last arrived message of a key is the newest, unless that is among the dropped ones.
   */
  isComplete(end: End, dropped: number): boolean {
    const stale = [...end.newest].filter(([key, message]) => end.shown.get(key) !== message);
    return (
      end.missing === (end.dropped.get(TOLD) ?? 0) &&
      stale.length <= (end.dropped.get(SHOWN) ?? 0) &&
      dropsOf(end) === dropped &&
      end.missed === dropped &&
      end.sent.slice(end.got).every((due) => mayBeMissing(due, end))
    );
  }

  /** Describes the missing messages for a failure report. */
  due(end: End): string {
    const waiting = [...this.#calls.values()].filter(({ outcome }) => outcome === undefined);
    const calls = waiting
      .slice(0, 3)
      .map(({ label, ran, from }) => `${label} (ran ${ran}, of end ${from.index}${from.isOver ? ", over" : ""})`);
    const due = [end, end.other].map(
      (one) =>
        `${one?.sent[one.got]?.label} due from the ${one?.side}, ${one?.missing} broadcasts missing, dropped: ${JSON.stringify([...(one?.dropped ?? [])])}, ${one?.missed} reported as missed`,
    );
    return `${waiting.length} calls wait: ${calls.join(", ")}; ${due.join(", ")}`;
  }

  #sender(from: number, at: End): End | undefined {
    const sender = this.ends[from];
    if (sender === undefined || sender.side === at.side) {
      this.fail(`a message came from nowhere: ${from}`);
      return undefined;
    }
    if ((at.other ?? sender) !== sender || (sender.other ?? at) !== at) {
      this.fail(`what was sent in session ${from} arrived in another`);
      return undefined;
    }
    at.other = sender;
    sender.other = at;
    return sender;
  }

  #settles(call: Call, outcome: NonNullable<Call["outcome"]>): void {
    if (call.outcome !== undefined) this.fail(`${call.label} settled twice`);
    call.outcome = outcome;
    this.tally[outcome]++;
  }

  #unanswered(call: Call, { outcome, code }: TimeoutError | ConnectionLostError): void {
    this.#settles(call, outcome);
    if (outcome === "not-sent" && call.ran > 0) this.fail(`${call.label} is reported as not sent, and ran`);
    call.isLost = code === "CONNECTION_LOST";
    if (call.isLost && outcome === "not-sent" && call.expects.isRetried === true && this.#hasNext(call.from))
      this.fail(`${call.label} was not sent, and is not made again on the next connection`);
    // A client whose token was stolen begins a new session. The server's end of the old one waits for it in vain.
    const isInVain = call.from.other?.isOver === true;
    if (code === "TIMEOUT" && call.expects.mayGiveUp !== true && !isInVain) this.fail(`${call.label} timed out`);
  }

  /** Returns whether a connection follows that of an end of the client, and is not about to end. */
  #hasNext({ side, index }: End): boolean {
    const last = this.ends.filter((end) => end.side === side).at(-1)!;
    return side === "client" && last.index > index && last.reason === undefined;
  }
}

/** Returns whether a sent message need not arrive: its caller gave it up, it may be dropped, or a newer one has replaced it. */
function mayBeMissing(due: Sent | undefined, { newest }: End): boolean {
  const { call, isBroadcast, isVolatile, key } = due ?? {};
  if (isBroadcast === true || isVolatile === true) return true;
  if (key !== undefined) return newest.get(key) !== due;
  return call?.outcome === "not-sent" || call?.outcome === "given-up";
}

/** Returns how many messages of an end were dropped, as the server reports it. */
function dropsOf({ dropped }: End): number {
  return [...dropped.values()].reduce((sum, count) => sum + count, 0);
}

/** The reason of an end whose session had no socket for too long. */
export const EXPIRED = "its time was up";

/** The `code` of an error that a handler throws, and of an aborted call's reason. */
export const FAILURE = 4711;
export const ABORTED = "GIVEN_UP";
