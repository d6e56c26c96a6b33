/**
 * The oracle: it knows what was sent, by whom and in which session, and holds every settlement and every arrival against that.
 *
 * A session has two ends here. An `End` of the client's is what lies between two of its events `lost`; one of the server's is
 * one of its peers. Which two belong together shows in what arrives.
 */
import type { ConnectionLostError, RpcError, TimeoutError } from "../../src/core/errors.js";

/** A rule that was broken. */
export class Breach extends Error {
  override readonly name = "Breach";
}

/**
 * A session that goes unattended for so much less than its time is given up in time. The session notes the loss before its
 * event `suspend` is heard here, and on a machine under load the process may stand still in between.
 */
const GRAIN_MS = 100;

/** One end of a session. */
export interface End {
  readonly side: "client" | "server";
  /** Unique in its world. */
  readonly index: number;
  /** What it sent, in order, and how much of that has arrived. */
  readonly sent: Sent[];
  got: number;
  /** How many of its broadcasts have not arrived. */
  missing: number;
  /** The other end of the session, once something arrived there. */
  other: End | undefined;
  /** Why it may be over before its time. */
  reason: string | undefined;
  /** Whether the server is known to have the client's hello, or its `resume`. */
  isProven: boolean;
  suspendedAt: number | undefined;
  isOver: boolean;
}

interface Sent {
  readonly label: string;
  /** The call that it is; `undefined` for a notification, which cannot be taken back. */
  readonly call: Call | undefined;
  /** Whether it goes to many, and may be dropped for one of them. */
  readonly isBroadcast?: boolean;
}

/** What a call may end with besides its result. */
export interface Expectation {
  /** It is aborted, or its time is short. */
  mayGiveUp?: boolean;
  /** Its handler throws. */
  fails?: boolean;
  /** It is longer than the other side takes. */
  isTooLong?: boolean;
  /** Its handler reports progress so many times, by whole numbers from 0, before it returns. */
  reports?: number;
}

/** One call. */
export interface Call {
  readonly label: string;
  readonly from: End;
  readonly expects: Expectation;
  ran: number;
  /** Reports that its caller was given. */
  reports: number;
  /** Whether it was rejected for the loss of its session. */
  isLost: boolean;
  outcome: "result" | "error" | "not-sent" | "unknown" | "given-up" | undefined;
}

/** How calls and notifications went. */
export interface Tally {
  calls: number;
  notifications: number;
  broadcasts: number;
  results: number;
  errors: number;
  notSent: number;
  unknown: number;
  givenUp: number;
  lost: number;
  suspends: number;
  /** Reports of progress. */
  reports: number;
  /** Streams whose reader was told of the loss of a session. */
  interrupted: number;
}

/** Holds what happens in one world against what may. */
export class Oracle {
  readonly tally: Tally = {
    calls: 0,
    notifications: 0,
    broadcasts: 0,
    results: 0,
    errors: 0,
    notSent: 0,
    unknown: 0,
    givenUp: 0,
    lost: 0,
    suspends: 0,
    reports: 0,
    interrupted: 0,
  };
  readonly ends: End[] = [];
  /** The ends that are over, and why. */
  readonly losses: string[] = [];
  readonly #calls = new Map<string, Call>();
  readonly #ttlMs: number;
  /** What was found first. */
  breach: Breach | undefined;

  constructor(ttlMs: number) {
    this.#ttlMs = ttlMs;
  }

  /** Notes a breach; the first is what matters. */
  readonly fail = (what: string): void => {
    this.breach ??= new Breach(what);
  };

  /** Begins an end. */
  begin(side: End["side"]): End {
    const end: End = {
      side,
      index: this.ends.length,
      sent: [],
      got: 0,
      missing: 0,
      other: undefined,
      reason: undefined,
      isProven: false,
      suspendedAt: undefined,
      isOver: false,
    };
    this.ends.push(end);
    return end;
  }

  /** An end is about to send a notification. */
  notifies(end: End, label: string): void {
    this.tally.notifications++;
    end.sent.push({ label, call: undefined });
  }

  /** An end is about to send a broadcast, which may be dropped. It ends no session: `over` accepts it as no reason. */
  broadcasts(end: End, label: string): void {
    this.tally.broadcasts++;
    end.missing++;
    end.sent.push({ label, call: undefined, isBroadcast: true });
  }

  /** One that was not taken. */
  refused(end: End, label: string): void {
    const last = end.sent.pop();
    if (last?.label !== label) this.fail(`${label} was refused, and something was sent since`);
  }

  /** An end is about to call. `isOrdered`: at once, behind what it sent before. */
  calls(from: End, label: string, expects: Expectation, isOrdered = true): Call {
    this.tally.calls++;
    const call: Call = { label, from, expects, ran: 0, reports: 0, isLost: false, outcome: undefined };
    this.#calls.set(label, call);
    if (isOrdered) from.sent.push({ label, call });
    return call;
  }

  /** What `from` sent has arrived at `at`, in order with everything else. */
  arrives(from: number, at: End, label: string): void {
    const sender = this.#sender(from, at);
    if (sender === undefined) return;
    if (at.isOver) this.fail(`${label} arrived after its session was over`);
    for (let due = sender.sent[sender.got]; due?.label !== label; due = sender.sent[++sender.got]) {
      if (!mayBeMissing(due)) return this.fail(`${label} arrived where ${due?.label ?? "nothing"} was due`);
    }
    if (sender.sent[sender.got]!.isBroadcast === true) sender.missing--;
    sender.got++;
  }

  /** A topic's message has arrived: it does not say from whom. */
  arrivesFromTopic(at: End, label: string): void {
    if (at.other === undefined) return this.fail(`${label} arrived before the first message of its session`);
    this.arrives(at.other.index, at, label);
  }

  /** A handler runs. */
  runs(label: string): void {
    const call = this.#calls.get(label);
    if (call === undefined) return this.fail(`${label} ran, and was never called`);
    if (++call.ran > 1) this.fail(`${label} ran ${call.ran} times`);
    if (call.outcome === "not-sent") this.fail(`${label} was not sent, its caller was told, and ran`);
  }

  /** A call is fulfilled. `isRight`: with what its handler answered. */
  fulfilled(call: Call, isRight: boolean): void {
    this.#settles(call, "result");
    this.tally.results++;
    if (!isRight) this.fail(`${call.label} was answered with the answer to something else`);
    if (call.ran !== 1) this.fail(`${call.label} has a result, and ran ${call.ran} times`);
    if (call.expects.fails === true) this.fail(`${call.label} has a result, and its handler failed`);
    const { reports = 0 } = call.expects;
    if (call.reports !== reports) this.fail(`${call.label} was answered after ${call.reports} of ${reports} reports`);
  }

  /** The caller of a call is given a report of its progress. */
  reported(call: Call, value: unknown): void {
    this.tally.reports++;
    if (call.outcome !== undefined) this.fail(`${call.label} got report ${String(value)} after it was settled`);
    if (value !== call.reports++) this.fail(`${call.label} got report ${String(value)} as its number ${call.reports}`);
  }

  /** Reading a stream rejects, which the call of `method` opened, after so many values. */
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

  /** Reading a stream rejects that came in the params of a call: it has been sent, or nobody could read it. */
  unreadParams(label: string, error: unknown): void {
    const { code, outcome } = error as ConnectionLostError;
    if (code !== "CONNECTION_LOST") return;
    this.tally.interrupted++;
    if (outcome !== "unknown") this.fail(`a stream in the params of ${label} was ${outcome}, says its reader`);
  }

  /** A call is rejected. */
  rejected(call: Call, error: unknown): void {
    const { code } = error as { code?: unknown };
    if (code === "TIMEOUT" || code === "CONNECTION_LOST") this.#unanswered(call, error as TimeoutError);
    else if (code === "TOO_LARGE") this.#tooLong(call);
    else if (code === ABORTED) this.#aborted(call);
    else if (code === FAILURE) this.#failed(call, error as RpcError);
    else {
      this.#settles(call, "error");
      this.fail(`${call.label} was rejected with ${String(error)}`);
    }
  }

  /** The client or a server's peer was told that its socket is lost. */
  suspended(end: End): void {
    if (end.suspendedAt !== undefined) this.fail(`the ${end.side}'s end was suspended twice`);
    if (end.isOver) this.fail(`the ${end.side}'s end was suspended after its end`);
    end.suspendedAt = performance.now();
    this.tally.suspends++;
  }

  resumed(end: End): void {
    if (end.suspendedAt === undefined) this.fail(`the ${end.side}'s end was resumed and not suspended`);
    end.suspendedAt = undefined;
    if (end.side === "server") prove(end);
  }

  /** An end is over: `lost` at the client, `close` at the server, or a close that was asked for. */
  over(end: End, why: string): void {
    if (end.isOver) return this.fail(`the end of the ${end.side}'s end was told twice`);
    end.isOver = true;
    this.tally.lost++;
    const { suspendedAt, other } = end;
    if (suspendedAt !== undefined && performance.now() - suspendedAt >= this.#ttlMs - GRAIN_MS)
      excuse(end, "its time was up");
    if (!end.isProven && other?.isProven !== true) excuse(end, "the client's hello has perhaps never come");
    if (end.reason === undefined && other?.reason === undefined)
      this.fail(`the ${end.side} gave a session up for no reason: ${why}`);
    this.losses.push(`end ${end.index} of the ${end.side}: ${why}, for ${end.reason ?? other?.reason}`);
    excuse(end, `the ${end.side}'s end is over`);
  }

  /** Everything is over: nothing may be left. */
  finish(): void {
    for (const call of this.#calls.values()) {
      const { label, outcome, from } = call;
      if (outcome === undefined) this.fail(`${label} never settled`);
      if (outcome === "not-sent" && call.ran > 0) this.fail(`${label} was not sent, its caller was told, and ran`);
      if (call.isLost && !from.isOver) this.fail(`${label} is said to be lost, and its session is not`);
    }
  }

  /**
   * Whether all that an end sent has arrived: nothing is due but what its caller gave up, and as many broadcasts are missing as
   * its peer counts as `dropped`.
   */
  isComplete({ sent, got, missing }: End, dropped: number): boolean {
    return missing === dropped && sent.slice(got).every(mayBeMissing);
  }

  /** For whoever reads that something is missing. */
  due(end: End): string {
    const waiting = [...this.#calls.values()].filter(({ outcome }) => outcome === undefined);
    const calls = waiting
      .slice(0, 3)
      .map(({ label, ran, from }) => `${label} (ran ${ran}, of end ${from.index}${from.isOver ? ", over" : ""})`);
    const due = [end, end.other].map(
      (one) => `${one?.sent[one.got]?.label} due from the ${one?.side}, ${one?.missing} broadcasts missing`,
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
  }

  #unanswered(call: Call, { outcome, code }: TimeoutError | ConnectionLostError): void {
    this.#settles(call, outcome);
    this.tally[outcome === "unknown" ? "unknown" : "notSent"]++;
    if (outcome === "not-sent" && call.ran > 0) this.fail(`${call.label} was not sent, its caller is told, and ran`);
    call.isLost = code === "CONNECTION_LOST";
    if (code === "TIMEOUT" && call.expects.mayGiveUp !== true) this.fail(`${call.label} timed out`);
  }

  #tooLong(call: Call): void {
    this.#settles(call, "not-sent");
    this.tally.notSent++;
    if (call.expects.isTooLong !== true) this.fail(`${call.label} was too long for the other side, and is not`);
    if (call.ran > 0) this.fail(`${call.label} was too long to be sent, and ran`);
  }

  #aborted(call: Call): void {
    this.#settles(call, "given-up");
    this.tally.givenUp++;
    if (call.expects.mayGiveUp !== true) this.fail(`${call.label} was given up by nobody`);
  }

  #failed(call: Call, error: RpcError): void {
    this.#settles(call, "error");
    this.tally.errors++;
    if (call.expects.fails !== true || error.data !== call.label)
      this.fail(`${call.label} was rejected with ${error.message}`);
    if (call.ran !== 1) this.fail(`${call.label} has an error, and ran ${call.ran} times`);
  }
}

/** Whether a message that was sent need not arrive: its caller gave it up, or it is a broadcast. */
function mayBeMissing(due: Sent | undefined): boolean {
  const { call, isBroadcast } = due ?? {};
  return isBroadcast === true || call?.outcome === "not-sent" || call?.outcome === "given-up";
}

/** What a handler throws, and what an aborted call rejects with, by their `code`. */
export const FAILURE = 4711;
export const ABORTED = "GIVEN_UP";

/** Gives an end, and the one at its other side, a reason to be over. */
export function excuse(end: End | undefined, reason: string): void {
  if (end !== undefined) end.reason ??= reason;
}

/** The server has the client's hello, or its `resume`. */
export function prove(end: End): void {
  end.isProven = true;
}
