/**
 * The oracle: records what nodes and clients did, and judges it by the rules. They follow from the documents, as `promises.json` quotes them
 * for each rule, and not from the source. What they do not allow has no excuse.
 * N1: no notification arrives twice. N2: the notifications of each node arrive in order. N3: a notification is lost only while its
 * sender or its receiver had no connection, and reports that. N4: a node reports each connection that it loses, and nothing else.
 * L1: each acknowledged publication arrives once at each member, or the member was told of a gap that covers it. L2: all have one
 * order. L3: `"complete"` is never wrong. L4: a `"not-sent"` publication never appears. L5: a key appears once in an epoch, and all
 * publications with it get one position. L6: a gap has a reason.
 * C1: each call settles in time. C2: a `"not-sent"` call never ran. C3: a call with a result ran once, and the result is its own.
 * P1: soon after the last fault, each node lists each member once, with its last `as`, and its watchers know the same. The first list of
 * a node lacks none. P2: joined and left alternate for each member, but for a joined with another `as`. P3: a member that is connected
 * leaves on another node only if its node could not be heard for as long as a lease, and not because the broker was away.
 * S1 to S4: those of the stores, in `support/stores.ts`.
 * W: after the last fault, all nodes and clients are connected again. Until then, no other rule says what they must have.
 */
import type { StoreRule } from "../support/stores.js";

/** The lease of the nodes, in milliseconds. */
export const LEASE_MS = 2_000;
/** How long calls and publications may take, in milliseconds. */
export const TIMEOUT_MS = 4_000;

export interface Welcome {
  readonly run: number;
  readonly id: string;
  readonly outcome: "complete" | "gap" | undefined;
  readonly at: string | undefined;
}

type WorldRule =
  "N1" | "N2" | "N3" | "N4" | "L1" | "L2" | "L3" | "L4" | "L5" | "L6" | "C1" | "C2" | "C3" | "P1" | "P2" | "P3" | "W";
export type Rule = WorldRule | StoreRule;

export class Breach extends Error {
  override readonly name = "Breach";
}

/** How often a node sends a beat (P3). */
export const BEAT_MS = LEASE_MS / 3;
/** How long after a fault a log is read on (L1), or has a gap (L6): two pages are not answered, and a second follows each. */
const READ_ON_MS = 2 * (3_000 + 1_000);
/** How long a first list waits for the other nodes (P1). */
const ANSWERS_MS = 200;
/** No document says how long a message may be on its way, or how exact a timer is: a bound of the brokers and machines of the runs. */
export const LATE_MS = 1_000;
const MOST_BREACHES = 20;

/** One node or its connection, a process that was not scheduled, the broker of all, besides its logs, or besides messages without a report. */
export type Cause = "node" | "machine" | "broker" | "logs" | "slots";

/** A time in which something was wrong; `to` is infinite while it lasts. */
export interface Trouble {
  readonly from: number;
  to: number;
  readonly cause: Cause;
}

/** An event of a member, and its `as`. */
export interface MemberEvent {
  readonly event: "joined" | "left";
  readonly as: unknown;
}

/** One server, from its start to its end. */
export interface Run {
  readonly run: number;
  /** When something was wrong that concerns it. */
  readonly troubles: Trouble[];
  readonly states: { readonly state: "up" | "down"; readonly text: string; readonly time: number }[];
  /** When a fault ended a connection that worked. */
  readonly losses: number[];
  readonly members: Map<string, MemberEvent>;
  /** When which member left. */
  readonly left: { readonly id: string; readonly time: number }[];
  endedAt: number;
}

/** When something happened on a server. */
export interface Moment {
  readonly run: Run;
  readonly time: number;
}

/** What arrived at a client: a publication, the notice that some were missed, and the answer to its join. */
export type Arrival =
  | { readonly kind: "said"; readonly at: string; readonly n: number; readonly time: number }
  | { readonly kind: "missed"; readonly time: number }
  | { readonly kind: "joined" };

/** One session of a client. */
export interface Stay {
  readonly client: number;
  /** The position with which the client came. */
  readonly since: string | undefined;
  readonly told: { readonly run: number; readonly n: number; readonly sentAt: number; readonly time: number }[];
  readonly events: Arrival[];
  welcome: Welcome | undefined;
  joinedAt: number;
  endedAt: number;
  /** How much later than due a notification came, at most (N3, L1): so late may be what has not come before the end. */
  lateMs: number;
}

/** One order to publish. */
export interface Publication {
  readonly n: number;
  readonly run: number;
  readonly key: string | undefined;
  state: "pending" | "acked" | "not-sent" | "unknown";
  at: string | undefined;
  /** When it was ordered, and when its node reported how it settled. */
  readonly orderedAt: number;
  time: number;
}

export interface Call {
  readonly n: number;
  readonly run: number;
  timedOutAt: number;
  settledAt: number;
  result: unknown;
  state: "pending" | "result" | "not-sent" | "unknown";
}

export type Figures = Record<string, number>;

function parse(at: string): { epoch: string; offset: number } {
  const [epoch, offset] = at.split(".");
  return { epoch: epoch!, offset: Number(offset) };
}

/** Returns true if a position is in the same epoch as another one, and not before it. */
export function covers(at: string | undefined, other: string): boolean {
  if (at === undefined) return false;
  const [a, b] = [parse(at), parse(other)];
  return a.epoch === b.epoch && a.offset >= b.offset;
}

export class Oracle {
  readonly runs = new Map<number, Run>();
  readonly stays: Stay[] = [];
  readonly sent: { readonly run: number; readonly n: number; readonly time: number }[] = [];
  /** The first list of members of each node: when it was asked for, and when it came. */
  readonly lists: { readonly run: number; readonly from: number; readonly to: number; readonly ids: string[] }[] = [];
  readonly publications: Publication[] = [];
  readonly calls: Call[] = [];
  readonly ran = new Map<number, number>();
  /** How long after a fault a log is read on (L1). */
  readOnMs = READ_ON_MS;
  /** How late a call may settle (C1). A busy machine runs processes later, also without a pause that is noted. */
  lateCallMs = LATE_MS;
  readonly #breaches: string[] = [];
  #count = 0;
  /** Whether all nodes and clients were connected again (W). */
  #isSettled = true;

  /** Records that a rule is broken, or that a part of the world failed. */
  breach(rule: Rule | "crash", text: string): void {
    this.#count++;
    if (rule === "W") this.#isSettled = false;
    // A rule that is broken often must not hide the others.
    const isRare = this.#breaches.filter((one) => one.startsWith(rule)).length < 3;
    if (isRare && this.#breaches.length < MOST_BREACHES) this.#breaches.push(`${rule}: ${text}`);
  }

  /**
   * Returns true if no log can have ended between two moments. A server that had a trouble then may have done something before, and said that
   * later.
   */
  hasOneLife(...moments: readonly Moment[]): boolean {
    const begins = ({ run: { troubles }, time }: Moment): number[] =>
      troubles.filter(({ from, to }) => from <= time && time <= to).map(({ from }) => from);
    const times = moments.flatMap((moment) => [moment.time, ...begins(moment)]);
    const troubles = [...this.runs.values()].flatMap((run) => run.troubles);
    const ends = troubles.filter(({ cause }) => cause === "logs" || cause === "slots");
    return !ends.some(({ from, to }) => from <= Math.max(...times) && Math.min(...times) <= to);
  }

  /** Begins to record a server. */
  started(run: number): Run {
    const record: Run = { run, troubles: [], states: [], losses: [], members: new Map(), left: [], endedAt: Infinity };
    this.runs.set(run, record);
    return record;
  }

  /** P2. A watcher is not notified of members that were there before it. So the first event of a member may be either. */
  member(run: Run, event: "joined" | "left", id: string, as: unknown): void {
    const before = run.members.get(id);
    if (before?.event === event && (event === "left" || before.as === as))
      this.breach("P2", `node ${run.run} reported ${event} twice in a row for ${id}`);
    run.members.set(id, { event, as });
    if (event === "left") run.left.push({ id, time: performance.now() });
  }

  /** Judges everything, after the end. If W is broken, judges nothing else. Throws a `Breach` with the broken rules. */
  judge(): Figures {
    const figures = this.#isSettled ? this.#judgeAll() : {};
    if (this.#count > 0) throw new Breach(`${this.#count} breaches\n${this.#breaches.join("\n")}`);
    return figures;
  }

  #judgeAll(): Figures {
    this.#judgeLists();
    return {
      servers: this.runs.size,
      sessions: this.stays.length,
      ...this.#judgeNotifications(),
      ...this.#judgeLogs(),
      ...this.#judgeCalls(),
      ...this.#judgeReports(),
      ...this.#judgeLeaves(),
    };
  }

  /** P1: with the documented time to answer, and no fault of the two nodes, a first list has each member that is connected. */
  #judgeLists(): void {
    for (const { run, from, to, ids } of this.lists) {
      if (to - from >= ANSWERS_MS || this.#isTroubled(run, from, to)) continue;
      for (const stay of this.stays) {
        const { welcome, joinedAt, client } = stay;
        if (welcome === undefined || joinedAt > from || to >= this.#connectedUntil(stay)) continue;
        if (!ids.includes(welcome.id) && !this.#isTroubled(welcome.run, from, to))
          this.breach("P1", `the first list of node ${run} lacks client ${client} of node ${welcome.run}`);
      }
    }
  }

  /** P3. */
  #judgeLeaves(): Figures {
    const stays = new Map(this.stays.map((stay) => [stay.welcome?.id, stay]));
    for (const { run, left } of this.runs.values())
      for (const { id, time } of left) {
        const stay = stays.get(id);
        if (stay?.welcome === undefined || time < stay.joinedAt || time >= this.#connectedUntil(stay)) continue;
        if (!this.#isUnheard(stay.welcome.run, time, run))
          this.breach("P3", `client ${stay.client} left at ${time} for node ${run}, and is connected`);
      }
    return { "members that left": [...this.runs.values()].flatMap(({ left }) => left).length };
  }

  /** Returns until when a client was certainly connected: when the last notification was sent that it got in its session. */
  #connectedUntil({ endedAt, told }: Stay): number {
    return endedAt === Infinity ? Infinity : Math.max(...told.map(({ sentAt }) => sentAt));
  }

  /** Whether a node may be given up by another one at some time, for a reason of its own, or has ended. */
  #isUnheard(run: number, time: number, by: number): boolean {
    const { endedAt, troubles } = this.runs.get(run)!;
    const isOut = outagesOf(this.runs.get(by)!).some(({ from, to }) => from <= time && time <= to + LEASE_MS);
    // Perhaps only this one had no connection, such as to one server of a cluster.
    const own = isOut ? [] : outagesOf(this.runs.get(run)!);
    own.push(...troubles.filter(({ cause }) => cause === "node"));
    // Several short pauses may add up to a fault.
    const pauses = troubles.filter(
      ({ cause, from }) => cause === "machine" && from < time && from > time - 2 * LEASE_MS,
    );
    if (pauses.reduce((sum, { from, to }) => sum + to - from, 0) > BEAT_MS) own.push(...pauses);
    // Its last beat came at most a beat before the trouble.
    const silentMs = LEASE_MS - BEAT_MS - LATE_MS;
    return time > endedAt || own.some(({ from, to }) => time > from + silentMs && time < dueAt(to, troubles, BEAT_MS));
  }

  /** Whether something was wrong with a node between two times, that was not of this cause. */
  #isTroubled(run: number, from: number, to: number, besides?: Cause): boolean {
    const { endedAt, troubles } = this.runs.get(run)!;
    const faults = troubles.filter((one) => isFault(one) && one.cause !== besides);
    return to > endedAt || faults.some((one) => to >= one.from && from <= one.to + LATE_MS);
  }

  #judgeNotifications(): Figures {
    const figures = { "notifications that arrived": 0, "notifications that had to arrive": 0, "notifications lost": 0 };
    for (const stay of this.stays) {
      const last = new Map<number, number>();
      const got = new Map<number, number>();
      for (const { run, n, sentAt, time } of stay.told) {
        const troubles = [run, stay.welcome?.run ?? run].flatMap((one) => this.runs.get(one)!.troubles);
        stay.lateMs = Math.max(stay.lateMs, time - dueAt(sentAt, troubles));
        if (got.has(n)) this.breach("N1", `client ${stay.client} got ${n} of node ${run} twice`);
        else if (n < (last.get(run) ?? 0))
          this.breach("N2", `client ${stay.client} got ${n} of node ${run} after ${last.get(run)}`);
        got.set(n, time);
        last.set(run, n);
      }
      figures["notifications that arrived"] += stay.told.length;
      this.#judgeLosses(stay, got, figures);
    }
    return { notifications: this.sent.length, ...figures };
  }

  /** N3. A notification that a member did not get was lost before the next one of that node arrived. `got`: when which did. */
  #judgeLosses(stay: Stay, got: ReadonlyMap<number, number>, figures: Figures): void {
    const { welcome, joinedAt, endedAt, lateMs, client } = stay;
    const next = new Map<number, number>();
    const outages = new Map(Array.from(this.runs.values(), (run) => [run, outagesOf(run)]));
    if (welcome === undefined) return;
    for (let i = this.sent.length - 1; i >= 0; i--) {
      const { run, n, time } = this.sent[i]!;
      const arrivedAt = got.get(n);
      if (arrivedAt !== undefined) next.set(run, arrivedAt);
      if (time < joinedAt || time > endedAt) continue;
      const [from, to] = [run, welcome.run].map((one) => this.runs.get(one)!) as [Run, Run];
      const until = Math.min(next.get(run) ?? Infinity, dueAt(time, [...from.troubles, ...to.troubles]) + lateMs);
      const isOut = (one: Run): boolean => outages.get(one)!.some((out) => out.from <= until && time <= out.to);
      const isExcused = until > endedAt || (from === to ? until > from.endedAt : isOut(from) || isOut(to));
      if (!isExcused) figures["notifications that had to arrive"]!++;
      if (arrivedAt === undefined) figures["notifications lost"]!++;
      if (arrivedAt === undefined && !isExcused)
        this.breach("N3", `${n} of node ${run} at ${time} did not reach client ${client} of node ${welcome.run}`);
    }
  }

  #judgeLogs(): Figures {
    const texts = this.#texts();
    const content = new Map<number, Content>();
    for (const stay of this.stays) {
      const known = content.get(stay.client) ?? { got: new Map<string, number>(), loaded: new Map<string, number>() };
      content.set(stay.client, known);
      this.#judgeStay(stay, known, texts);
    }
    for (const stay of this.stays) this.#judgeAcks(stay);
    this.#judgePublications(texts);
    const acked = this.publications.filter(({ state }) => state === "acked");
    const kinds = this.stays.flatMap(({ events }) => events.map(({ kind }) => kind));
    const outcomes = this.stays.map(({ welcome }) => welcome?.outcome);
    return {
      "publications acknowledged": acked.length,
      "publications that arrived": countOf("said", kinds),
      "joins that were complete": countOf("complete", outcomes),
      "joins with a gap": countOf("gap", outcomes),
      "gaps reported to members": countOf("missed", kinds),
    };
  }

  /** Returns which publications are at each position, and checks that it is one (L2). */
  #texts(): Map<string, Set<number>> {
    const texts = new Map<string, Set<number>>();
    const place = (at: string, n: number): void => {
      const all = texts.get(at) ?? new Set();
      texts.set(at, all.add(n));
      if (all.size > 1) this.breach("L2", `${at} is ${[...all].join(" and ")}`);
    };
    for (const { at, n } of this.publications) if (at !== undefined) place(at, n);
    for (const { events } of this.stays)
      for (const event of events) if (event.kind === "said") place(event.at, event.n);
    return texts;
  }

  /** L1 and L3: each publication follows the one before, unless the client was told of a gap. `known`: what the client has. */
  #judgeStay(stay: Stay, known: Content, texts: ReadonlyMap<string, ReadonlySet<number>>): void {
    const { client, since, welcome, events } = stay;
    const isComplete = welcome?.outcome === "complete";
    // Replayed publications follow `since`. After a gap, live ones follow the position of the join, which may be before `since` if the
    // node has not caught up. Without an answer, the client does not know which. Its next join begins at its old position.
    let before: string | undefined = isComplete ? since : welcome?.at;
    let isExcused = welcome === undefined || (!isComplete && before === undefined);
    // The last position in each epoch: another log may begin before the join is answered.
    const reached = new Map(since === undefined ? [] : [[parse(since).epoch, since]]);
    for (const event of events) {
      if (event.kind === "missed") {
        isExcused = true;
        if (welcome !== undefined) this.#judgeGap(client, welcome.run, event.time);
      } else if (event.kind === "joined") this.#judgeJoin(stay, before, reached, known, texts);
      else {
        const { at, n } = event;
        const [place, last] = [parse(at), before === undefined ? undefined : parse(before)];
        if (last?.epoch === place.epoch && place.offset <= last.offset)
          this.breach("L1", `client ${client} got ${at} (${n}) after ${before}`);
        else if (last?.epoch !== place.epoch || place.offset !== last.offset + 1) {
          if (!isExcused)
            this.breach(isComplete ? "L3" : "L1", `client ${client} got ${at} (${n}) after ${before}, without a gap`);
          if (welcome !== undefined) known.loaded.set(place.epoch, place.offset - 1);
        }
        known.got.set(at, n);
        reached.set(place.epoch, at);
        before = at;
        isExcused = false;
      }
    }
  }

  /** L3: with `"complete"`, the client has every publication up to the position of the join. */
  #judgeJoin(
    { client, since, welcome, joinedAt }: Stay,
    before: string | undefined,
    reached: ReadonlyMap<string, string>,
    known: Content,
    texts: ReadonlyMap<string, ReadonlySet<number>>,
  ): void {
    const { outcome, at, run } = welcome!;
    if (outcome !== "complete") {
      if (at !== undefined && since !== undefined && parse(at).epoch === parse(since).epoch)
        this.#judgeGap(client, run, joinedAt);
      // Without a log there is no position: the client keeps its own, and what it has up to there.
      if (before !== undefined) {
        const place = parse(before);
        known.loaded.set(place.epoch, place.offset);
      }
      return;
    }
    const { epoch, offset } = parse(at ?? "");
    if (at === undefined || !covers(reached.get(epoch), at))
      return this.breach("L3", `client ${client} has ${before} and got "complete" up to ${at} from node ${run}`);
    const first = (known.loaded.get(epoch) ?? 0) + 1;
    for (let i = first; i <= offset; i++) {
      const has = known.got.get(`${epoch}.${i}`);
      const there = texts.get(`${epoch}.${i}`) ?? new Set();
      if (has === undefined || [...there].some((n) => n !== has))
        this.breach(
          "L3",
          `client ${client} got "complete" up to ${at} from node ${run}, and has ${has} at ${epoch}.${i}, which is ${[...there].join(" and ")}`,
        );
    }
  }

  /** L6: without another log, a gap needs pages without an answer, before which a node whose own connection fails has opened it anew. */
  #judgeGap(client: number, run: number, time: number): void {
    if (!this.#isTroubled(run, time - READ_ON_MS, time, "node"))
      this.breach("L6", `client ${client} of node ${run} got a gap at ${time}, and nothing was wrong`);
  }

  /** L1: what was acknowledged while the client was a member has arrived in time, unless a fault delayed it until the client left. */
  #judgeAcks({ client, welcome, since, joinedAt, endedAt, lateMs, events }: Stay): void {
    if (welcome === undefined) return;
    const got = new Set(events.map((event) => (event.kind === "said" ? event.at : "")));
    for (const { at, n, state, orderedAt, time } of this.publications) {
      if (state !== "acked" || time < joinedAt || time > endedAt) continue;
      // A node may report late: perhaps its log has ended since, and the client joined another one.
      if (orderedAt < joinedAt && welcome.at?.split(".")[0] !== at!.split(".")[0]) continue;
      if (got.has(at!) || covers(welcome.at, at!) || covers(since, at!) || isInGap(events, at!)) continue;
      if (dueAt(time, this.runs.get(welcome.run)!.troubles, this.readOnMs) + lateMs > endedAt) continue;
      this.breach("L1", `${at} (${n}) did not reach client ${client} of node ${welcome.run}, without a gap`);
    }
  }

  /** L1, L4 and L5: how often each publication appears. */
  #judgePublications(texts: ReadonlyMap<string, ReadonlySet<number>>): void {
    const places = new Map<number, string[]>();
    for (const [at, numbers] of texts) for (const n of numbers) places.set(n, [...(places.get(n) ?? []), at]);
    const byText = new Map<number, Publication[]>();
    for (const one of this.publications) byText.set(one.n, [...(byText.get(one.n) ?? []), one]);
    for (const [n, all] of byText) {
      const found = places.get(n) ?? [];
      const [{ key }] = all as [Publication];
      if (key === undefined && found.length > 1) this.breach("L1", `${n} is at ${found.join(" and ")}`);
      const epochs = found.map((at) => parse(at).epoch);
      if (key !== undefined && new Set(epochs).size < epochs.length)
        this.breach("L5", `${n} with ${key} is at ${found.join(" and ")}`);
      if (found.length > 0 && all.every(({ state }) => state === "not-sent"))
        this.breach("L4", `${n} was "not-sent" and is at ${found.join(" and ")}`);
      for (const { state } of all) if (state === "pending") this.breach("C1", `publication ${n} did not settle`);
    }
  }

  #judgeCalls(): Figures {
    for (const { n, run, state, result, timedOutAt, settledAt } of this.calls) {
      const times = this.ran.get(n) ?? 0;
      const lateMs = settledAt - timedOutAt;
      if (state === "pending") this.breach("C1", `call ${n} of node ${run} did not settle`);
      else if (lateMs > this.lateCallMs) this.breach("C1", `call ${n} of node ${run} was ${lateMs} ms late: ${state}`);
      if (state === "not-sent" && times > 0) this.breach("C2", `call ${n} was "not-sent" and ran`);
      if (times > 1 || (state === "result" && times !== 1)) this.breach("C3", `call ${n} ran ${times} times: ${state}`);
      if (state === "result" && result !== n) this.breach("C3", `call ${n} has the result ${String(result)}`);
    }
    const states = this.calls.map(({ state }) => state);
    return {
      "calls with a result": countOf("result", states),
      "calls not sent": countOf("not-sent", states),
      "calls with an unknown outcome": countOf("unknown", states),
    };
  }

  /** N4. */
  #judgeReports(): Figures {
    for (const { run, losses, states, troubles } of this.runs.values()) {
      const pauses = troubles.filter(({ cause }) => cause === "machine");
      for (const time of losses) {
        // All connections of a node end together: one report stands for them.
        const isReported = states.filter((state) => state.time <= time).at(-1)?.state === "down";
        // A connection that answers nothing is lost when the node finds that, in its lease. Both it and this process may be late.
        const due = dueAt(time, pauses, LATE_MS, time + 2 * LATE_MS);
        const isSoon = states.some((one) => one.state === "down" && one.time > time - LEASE_MS && one.time <= due);
        if (!isReported && !isSoon) this.breach("N4", `node ${run} lost a connection at ${time} and reported nothing`);
      }
      for (const { time, text } of states.filter(({ state }) => state === "down"))
        if (causesOf(troubles, time).length === 0)
          this.breach("N4", `node ${run} reported at ${time} that it lost a connection, which it had: ${text}`);
    }
    return { "lost connections reported": [...this.runs.values()].flatMap(({ losses }) => losses).length };
  }
}

const countOf = (wanted: string, all: readonly unknown[]): number => all.filter((one) => one === wanted).length;

/** Whether a trouble does more than delay messages. A pause of a process for a beat or less does not. */
const isFault = ({ from, to, cause }: Trouble): boolean => cause !== "machine" || to - from > BEAT_MS;

/** Returns when a message of some time has arrived. Each trouble delays it, until so long after that if it is a fault. */
function dueAt(time: number, troubles: readonly Trouble[], afterMs = 0, due = time + LATE_MS): number {
  const delays = troubles.filter(({ from, to }) => from <= due && to >= time);
  const next = Math.max(due, ...delays.map((one) => one.to + LATE_MS + (isFault(one) ? afterMs : 0)));
  return next === due ? due : dueAt(time, troubles, afterMs, next);
}

/** Returns why a node may report at some time that it has lost its connection. */
const causesOf = (troubles: readonly Trouble[], time: number): Trouble[] =>
  troubles.filter(({ from, to }) => from <= time && time <= to + LEASE_MS + LATE_MS);

/** Returns when a node had no connection by its own reports, from their reason on, and when it could not report that. */
function outagesOf({ states, troubles, endedAt }: Run): { from: number; to: number }[] {
  const outages = [{ from: endedAt, to: Infinity }];
  for (const [i, { state, time }] of states.entries()) {
    const causes = causesOf(troubles, time);
    const present = causes.filter(({ to }) => to >= time);
    const from = Math.min(time, ...(present.length > 0 ? present : causes).map((one) => one.from));
    if (state === "down") outages.push({ from, to: states[i + 1]?.time ?? Infinity });
  }
  for (const { cause, from, to } of troubles) if (cause === "slots") outages.push({ from, to: to + LATE_MS });
  return outages;
}

/** Whether a gap was reported where a position would have arrived: behind those before it, and before those behind it. */
function isInGap(events: readonly Arrival[], at: string): boolean {
  const { epoch, offset } = parse(at);
  const near = events.filter((one) => one.kind === "missed" || (one.kind === "said" && parse(one.at).epoch === epoch));
  const end = near.findIndex((one) => one.kind === "said" && parse(one.at).offset > offset);
  return near.slice(0, end === -1 ? Infinity : end).at(-1)?.kind === "missed";
}

/** What a client has of the log. */
interface Content {
  readonly got: Map<string, number>;
  /**
   * By epochs, the offset up to which the client has loaded the state, after its last gap there. Another log may begin, and be loaded,
   * while the answer to a join of this one is on its way.
   */
  readonly loaded: Map<string, number>;
}
