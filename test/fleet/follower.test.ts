import { describe, expect, it } from "vitest";
import type { LogPart } from "../../src/topics/engine.js";
import { Follower } from "../../src/fleet/follower.js";
import { Random } from "../faults/random.js";

/** A log in a broker, and a follower of it. The test decides which messages arrive and when the log is read. */
class FollowedLog {
  epoch = "";
  /** The bodies of the entries. The last has offset `top`. */
  bodies: string[] = [];
  top = 0;
  readonly seen: string[] = [];
  /** By epoch: the last entry that is gone. */
  readonly cuts = new Map<string, number>();
  readonly follower = new Follower({
    deliver: ({ epoch, offset }, body) => {
      this.seen.push(body === `${epoch}${offset}` ? body : `${body} at ${epoch}${offset}`);
    },
    gap: (reason) => this.seen.push(`gap: ${reason}`),
  });

  /** Appends entries. Returns what sends the message of each. */
  append(count = 1): (() => void)[] {
    return Array.from({ length: count }, () => {
      const { epoch } = this;
      const offset = ++this.top;
      this.bodies.push(`${epoch}${offset}`);
      return () => this.follower.received(epoch, offset, `${epoch}${offset}`);
    });
  }

  /** Begins a log. */
  begin(epoch: string): void {
    Object.assign(this, { epoch, bodies: [], top: 0 });
  }

  /** The log keeps its last entries only. */
  trim(length: number): void {
    this.cuts.set(this.epoch, Math.max(this.cuts.get(this.epoch) ?? 0, this.top - length));
    this.bodies = length === 0 ? [] : this.bodies.slice(-length);
  }

  part(after: number, limit = 100): LogPart {
    const { epoch, top, bodies } = this;
    const all = bodies.map((body, i): [number, string] => [top - bodies.length + 1 + i, body]);
    return { epoch, top, entries: all.filter(([offset]) => offset > after).slice(0, limit) };
  }

  /** Reads a part of the log. `overtake`: what happens before the answer comes. Returns whether more is missing. */
  read(limit?: number, overtake = (): void => {}): boolean {
    const request = this.follower.request();
    const part = this.part(request.after, request.onlyTop ? 0 : limit);
    overtake();
    return this.follower.read(request, part);
  }

  /** Reads the log in pages until nothing is missing. */
  heal(): void {
    while (this.read(2));
  }
}

const run = (sends: (() => void)[]): void => {
  for (const send of sends) send();
};

describe("a follower", () => {
  it("keeps at most 1,000 messages that came too early, and 1 Mi of their text, and reads the others", () => {
    for (const [count, length] of [
      [1_500, 10],
      [50, 40_000],
    ] as const) {
      const seen: number[] = [];
      const follower = new Follower({ deliver: ({ offset }) => seen.push(offset), gap: () => seen.push(-1) });
      follower.read(follower.request(), { epoch: "a", top: 0, entries: [] });
      const body = "x".repeat(length);
      for (let offset = 2; offset <= count; offset++) follower.received("a", offset, body);
      const request = follower.request();
      expect(follower.read(request, { epoch: "a", top: 1, entries: [[1, body]] })).toBe(false);
      expect(seen.length).toBe(length === 10 ? 1_001 : 1 + Math.floor(2 ** 20 / length));
      // The next message shows that some were not kept.
      follower.received("a", count + 1, body);
      expect(follower.needsHeal).toBe(true);
      const other = new Follower({ deliver() {}, gap() {} });
      other.received("a", 2, "x".repeat(2 ** 20 + 1));
      expect(other.needsHeal).toBe(true);
    }
  });

  it("reads what the broker knows nothing of once, and a log that begins or is gone unseen", () => {
    const log = new FollowedLog();
    log.heal();
    // The message overtakes the answer that there is no log.
    expect(log.read(100, () => (log.begin("a"), run(log.append(2))))).toBe(true);
    log.heal();
    log.follower.received("a", 99, "a99");
    expect([log.follower.needsHeal, log.read(), log.follower.needsHeal]).toEqual([true, false, false]);
    log.begin("");
    log.heal();
    log.begin("b");
    log.append(2);
    log.heal();
    expect(log.seen).toEqual(["a1", "a2", "gap: the log is gone", "gap: a log began unseen", "b1", "b2"]);
  });

  it("reports one gap for another log whose beginning is gone, and one for entries that it misses of it later", () => {
    const log = new FollowedLog();
    log.begin("a");
    log.heal();
    /** The log loses its beginning, before or after the node has followed the log. */
    const lose = (before: () => void): string[] => {
      log.begin(epochs.shift()!);
      before();
      log.append(5);
      log.trim(1);
      log.heal();
      return log.seen.splice(0);
    };
    const epochs = ["b", "c", "d"];
    const [began, lost] = ["gap: another log began", "gap: the log no longer has all entries"];
    expect(lose(() => {})).toEqual([began, "b5"]);
    expect(lose(() => log.heal())).toEqual([began, lost, "c5"]);
    expect(lose(() => (log.read(), run(log.append())))).toEqual([began, "d1", lost, "d6"]);
  });

  it("delivers each entry once and in order, or reports a gap, whatever is lost, late or cut", () => {
    const random = new Random(1);
    for (let round = 0; round < 300; round++) {
      const log = new FollowedLog();
      log.begin("a");
      log.append(random.below(3));
      const { top } = log;
      const epochs = ["b", "c", "d"];
      let late: (() => void)[] = [];
      /** Reads all. Messages overtake the answer: those of entries that were read, and one behind others that are lost. */
      const heal = (): void => {
        const overtake = (): void => {
          run(late);
          log.append(random.below(3)).at(-1)?.();
        };
        let isMore = log.read(1 + random.below(5), overtake);
        while (isMore) isMore = log.read(1 + random.below(5));
        expect(log.follower.position).toEqual({ epoch: log.epoch, offset: log.top });
        expect(log.follower.needsHeal).toBe(false);
      };
      heal();
      for (let step = 0; step < 40; step++) {
        const sends = log.append(random.below(3));
        for (const send of sends) {
          const fate = random.below(4);
          if (fate === 0) late.push(send);
          else if (fate > 1) send();
        }
        const event = random.below(12);
        if (event === 0) log.trim(random.below(3));
        if (event === 1 && epochs.length > 0) log.begin(epochs.shift()!);
        if (event === 2) {
          run(late);
          late = [];
        }
        if (event < 6) heal();
      }
      // A message shows that others are missing.
      run(log.append());
      if (log.follower.needsHeal) heal();
      expect(log.follower.position).toEqual({ epoch: log.epoch, offset: log.top });
      let [epoch, offset] = ["a", top];
      let gaps: string[] = [];
      for (const one of log.seen) {
        if (one.startsWith("gap")) {
          gaps.push(one);
          continue;
        }
        const [before, next] = [epoch, Number(one.slice(1))];
        epoch = one[0]!;
        const isOther = epoch !== before;
        expect(gaps.includes("gap: another log began")).toBe(isOther);
        const first = isOther ? 1 : offset + 1;
        if (next > first) expect(next - 1).toBeLessThanOrEqual(log.cuts.get(epoch)!);
        expect(gaps.length > 0).toBe(isOther || next > first);
        expect(next).toBeGreaterThanOrEqual(first);
        [offset, gaps] = [next, []];
      }
    }
  });
});
