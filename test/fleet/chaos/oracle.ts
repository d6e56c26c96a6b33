/**
 * The oracle: records what nodes and clients did, and judges it by the rules.
 * N1: no notification arrives twice. N2: the notifications of each node arrive in order. N3: a notification is lost only while its
 * sender or its receiver had no connection. N4: a node reported each connection that it lost.
 * L1: each publication arrives once, or a gap was reported. L2: all have one order. L3: `"complete"` is never wrong. L4: a
 * `"not-sent"` publication never appears. L5: a key appears once in an epoch.
 * C1: each call settles. C2: a `"not-sent"` call never ran. C3: a call with a result ran once.
 * P1: in the end all lists of members are equal. P2: joined and left alternate.
 */
import type { Welcome } from "./orders.js";

/** A broken rule. */
export class Breach extends Error {
  override readonly name = "Breach";
}

/** A message may be on its way so long before or after a fault, in milliseconds. */
const ON_THE_WAY_MS = 2_000;
/** How long a client may get a publication after its node has reported the gap before it, or before. */
const GAP_MS = 10_000;
/** How long a node may take until it reports a lost connection. */
const REPORT_MS = 5_000;

/** A time without a connection; `to` is infinite while it lasts. */
export interface Trouble {
  readonly from: number;
  to: number;
}

/** One process of a node. */
export interface Run {
  readonly run: number;
  readonly troubles: Trouble[];
  readonly gaps: number[];
  readonly downs: number[];
  /** When the proxy saw that a connection ended. */
  readonly losses: number[];
  /** The last event of each member. */
  readonly members: Map<string, "joined" | "left">;
  endedAt: number;
}

interface Said {
  readonly at: string;
  readonly n: number;
  readonly time: number;
}

/** One session of a client. */
export interface Stay {
  readonly client: number;
  /** The position with which the client came. */
  readonly since: string | undefined;
  readonly told: { readonly run: number; readonly n: number }[];
  readonly said: Said[];
  welcome: Welcome | undefined;
  joinedAt: number;
  endedAt: number;
  /** The number of notifications that the server reported as dropped. */
  missed: number;
}

interface Sent {
  readonly run: number;
  readonly n: number;
  readonly time: number;
}

interface Publication {
  readonly n: number;
  readonly key: string | undefined;
  at: string | undefined;
  outcome: string | undefined;
}

interface Call {
  readonly n: number;
  state: "pending" | "result" | "not-sent" | "unknown" | "interrupted";
}

/** The counts of one or more worlds. */
export type Figures = Record<string, number>;

/** The offset and the epoch of a position. */
export function parse(at: string): { epoch: string; offset: number } {
  const [epoch, offset] = at.split(".");
  return { epoch: epoch!, offset: Number(offset) };
}

export class Oracle {
  readonly runs = new Map<number, Run>();
  readonly stays: Stay[] = [];
  readonly sent: Sent[] = [];
  readonly publications = new Map<number, Publication>();
  readonly calls = new Map<number, Call>();
  /** How often each call ran. */
  readonly ran = new Map<number, number>();
  readonly #breaches: string[] = [];

  /** Records that a rule is broken. */
  breach(rule: string, text: string): void {
    if (this.#breaches.length < 20) this.#breaches.push(`${rule}: ${text}`);
  }

  /** Begins to record a process. */
  started(run: number): Run {
    const record: Run = {
      run,
      troubles: [],
      gaps: [],
      downs: [],
      losses: [],
      members: new Map(),
      endedAt: Infinity,
    };
    this.runs.set(run, record);
    return record;
  }

  /** P2. */
  member(run: Run, event: "joined" | "left", id: string): void {
    const before = run.members.get(id) ?? "left";
    if (before === event) this.breach("P2", `node ${run.run} reported ${event} twice for ${id}`);
    run.members.set(id, event);
  }

  /** L3, when the response arrives: everything up to its position has come. */
  welcomed(stay: Stay, welcome: Welcome): void {
    stay.welcome = welcome;
    stay.joinedAt = Date.now();
    const { outcome, at, run } = welcome;
    if (outcome !== "complete") return;
    const last = stay.said.at(-1)?.at ?? stay.since;
    if (at === undefined || last === undefined) return this.breach("L3", `"complete" without a position at ${run}`);
    const [has, has2] = [parse(last), parse(at)];
    if (has.epoch !== has2.epoch || has.offset < has2.offset)
      this.breach("L3", `client ${stay.client} has ${last} and got "complete" up to ${at} from node ${run}`);
  }

  /** Judges everything, after the end. Throws a `Breach` with the broken rules. */
  judge(): Figures {
    const figures = {
      runs: this.runs.size,
      sessions: this.stays.length,
      ...this.#judgeNotifications(),
      ...this.#judgeLogs(),
      ...this.#judgeCalls(),
      ...this.#judgeReports(),
    };
    if (this.#breaches.length > 0) throw new Breach(this.#breaches.join("\n"));
    return figures;
  }

  /** Whether a process may have had no connection at a time. */
  #isTroubled(run: number, time: number): boolean {
    const record = this.runs.get(run)!;
    if (time > record.endedAt - ON_THE_WAY_MS) return true;
    return record.troubles.some(({ from, to }) => time > from - ON_THE_WAY_MS && time < to + ON_THE_WAY_MS);
  }

  #judgeNotifications(): Figures {
    let [arrived, lost] = [0, 0];
    for (const stay of this.stays) {
      const last = new Map<number, number>();
      const got = new Set<string>();
      for (const { run, n } of stay.told) {
        arrived++;
        if (got.has(`${run} ${n}`)) this.breach("N1", `client ${stay.client} got ${n} of node ${run} twice`);
        else if (n < (last.get(run) ?? 0)) this.breach("N2", `client ${stay.client} got ${n} of node ${run} late`);
        got.add(`${run} ${n}`);
        last.set(run, n);
      }
      lost += this.#lostBy(stay, got);
    }
    return { notified: this.sent.length, arrived, lost };
  }

  /** N3. Returns how many notifications did not reach the client while it was a member. */
  #lostBy(stay: Stay, got: ReadonlySet<string>): number {
    const { welcome, joinedAt, endedAt, client } = stay;
    if (welcome === undefined || stay.missed > 0) return 0;
    let lost = 0;
    for (const { run, n, time } of this.sent) {
      if (time < joinedAt || time > endedAt - ON_THE_WAY_MS || got.has(`${run} ${n}`)) continue;
      lost++;
      if (run === welcome.run) {
        if (time < this.runs.get(run)!.endedAt - ON_THE_WAY_MS) this.breach("N3", `${n} of node ${run} did not reach its own client ${client}`);
      } else if (!this.#isTroubled(run, time) && !this.#isTroubled(welcome.run, time))
        this.breach("N3", `${n} of node ${run} did not reach client ${client} of node ${welcome.run}`);
    }
    return lost;
  }

  #judgeLogs(): Figures {
    const texts = new Map<string, number>();
    const place = (at: string, n: number): void => {
      const before = texts.get(at) ?? n;
      if (before !== n) this.breach("L2", `${at} is ${before} and ${n}`);
      texts.set(at, n);
    };
    let [acked, recovered, gaps] = [0, 0, 0];
    // With a key, a repeated publication has the position and the text of the first.
    for (const { at, n, key } of this.publications.values())
      if (at !== undefined) {
        acked++;
        if (key === undefined) place(at, n);
      }
    for (const stay of this.stays) {
      if (stay.welcome?.outcome === "complete") recovered++;
      else gaps++;
      for (const { at, n } of stay.said) place(at, n);
      this.#judgeOrder(stay);
    }
    for (const n of texts.values())
      if (this.publications.get(n)?.outcome === "not-sent") this.breach("L4", `${n} was "not-sent" and appeared`);
    this.#judgeKeys(texts);
    return { acked, recovered, gaps };
  }

  /** L1 and L3: each publication follows the one before, unless a gap was reported. */
  #judgeOrder({ client, since, said, welcome }: Stay): void {
    let before = since;
    let beforeAt = 0;
    for (const [i, { at, time }] of said.entries()) {
      const { epoch, offset } = parse(at);
      const last = before === undefined ? undefined : parse(before);
      const follows = last?.epoch === epoch && last.offset + 1 === offset;
      if (last?.epoch === epoch && offset <= last.offset) this.breach("L1", `client ${client} got ${at} after ${before}`);
      else if (!follows && !(i === 0 && welcome?.outcome !== "complete") && !this.#hasGap(welcome?.run, beforeAt, time))
        this.breach(i === 0 ? "L3" : "L1", `client ${client} got ${at} after ${before}, without a gap`);
      before = at;
      beforeAt = time;
    }
  }

  #hasGap(run: number | undefined, from: number, to: number): boolean {
    // A client whose `join` was not answered does not know what it has.
    if (run === undefined) return true;
    return this.runs.get(run)!.gaps.some((time) => time > from - GAP_MS && time < to + GAP_MS);
  }

  /** L5. */
  #judgeKeys(texts: ReadonlyMap<string, number>): void {
    const seen = new Map<string, string>();
    for (const [at, n] of texts) {
      const key = this.publications.get(n)?.key;
      if (key === undefined) continue;
      const place = `${key} in ${parse(at).epoch}`;
      const other = seen.get(place);
      if (other !== undefined) this.breach("L5", `${place} is at ${other} and ${at}`);
      seen.set(place, at);
    }
  }

  #judgeCalls(): Figures {
    const figures = { results: 0, notSent: 0, unknown: 0 };
    for (const { n, state } of this.calls.values()) {
      const times = this.ran.get(n) ?? 0;
      if (state === "pending") this.breach("C1", `call ${n} did not settle`);
      if (state === "not-sent" && times > 0) this.breach("C2", `call ${n} was "not-sent" and ran`);
      if (times > 1 || (state === "result" && times !== 1)) this.breach("C3", `call ${n} ran ${times} times: ${state}`);
      if (state === "result") figures.results++;
      else if (state === "not-sent") figures.notSent++;
      else figures.unknown++;
    }
    return figures;
  }

  /** N4. */
  #judgeReports(): Figures {
    let reported = 0;
    for (const { run, losses, downs, endedAt } of this.runs.values())
      for (const time of losses) {
        if (time > endedAt - REPORT_MS) continue;
        reported++;
        // The two connections of a node end together: one report stands for both.
        if (!downs.some((down) => down > time - REPORT_MS && down < time + REPORT_MS))
          this.breach("N4", `node ${run} lost a connection and reported nothing`);
      }
    return { losses: reported };
  }
}
