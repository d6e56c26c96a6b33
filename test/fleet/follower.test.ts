import { describe, expect, it } from "vitest";
import type { LogPart } from "../../src/fleet/engine.js";
import { Follower } from "../../src/fleet/follower.js";
import { Random } from "../faults/random.js";

/** A log in a broker, and a follower of it. The test decides which messages arrive and when the log is read. */
class World {
  epoch = "";
  /** The bodies of the entries. The last has offset `top`. */
  bodies: string[] = [];
  top = 0;
  readonly seen: string[] = [];
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

/** A world whose log has entries that the follower need not see. */
function followed(entries = 3): World {
  const world = new World();
  world.begin("a");
  world.append(entries);
  world.heal();
  return world;
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
    }
  });

  it.each<[what: string, change: (world: World) => void, seen: string[]]>([
    ["begins at the top, and delivers nothing that was there before", () => {}, []],
    [
      "F1: delivers an entry whose message came before the top was read, if it is after the top",
      (world) => {
        const begun = new World();
        begun.begin("a");
        begun.append(2);
        expect(begun.read(0, () => run(begun.append()))).toBe(false);
        expect(begun.seen).toEqual(["a3"]);
        // The message overtakes the answer that there is no log.
        const unbegun = new World();
        unbegun.heal();
        expect(unbegun.read(100, () => (unbegun.begin("a"), run(unbegun.append(2))))).toBe(true);
        unbegun.heal();
        expect(unbegun.seen).toEqual(["a1", "a2"]);
        expect(world.read()).toBe(false);
      },
      [],
    ],
    [
      "F2: delivers what came meanwhile, and reads a busy log once",
      (world) => {
        const sends = world.append(6);
        run(sends.slice(1, 3));
        expect(world.read(2, () => run([...sends.slice(3), ...world.append(3)]))).toBe(false);
      },
      ["a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", "a12"],
    ],
    [
      "F4: delivers no entry twice that came as a message while the log was read",
      (world) => {
        const sends = world.append(4);
        world.read(100, () => run([...sends, ...world.append()]));
      },
      ["a4", "a5", "a6", "a7", "a8"],
    ],
    [
      "F4: reports no gap for entries that came as messages while the log was read and then cut",
      (world) => {
        const sends = world.append(4);
        const request = world.follower.request();
        run(sends.slice(0, 2));
        world.trim(2);
        world.follower.read(request, world.part(request.after));
      },
      ["a4", "a5", "a6", "a7"],
    ],
    [
      "F2: delivers the next entry, and ignores one that was seen",
      (world) => {
        const [fourth, fifth] = world.append(2);
        run([fourth!, fourth!, fifth!, fourth!]);
        expect(world.follower.needsHeal).toBe(false);
      },
      ["a4", "a5"],
    ],
    [
      "F2: reads what is missing before a later entry",
      (world) => {
        world.append(3)[2]!();
        expect([world.seen, world.follower.needsHeal]).toEqual([[], true]);
      },
      ["a4", "a5", "a6"],
    ],
    ["ignores a message that the broker knows nothing of", (world) => world.follower.received("a", 99, "a99"), []],
    ["F3: finds what was published while nothing was received", (world) => world.append(2), ["a4", "a5"]],
    [
      "reports a gap if the log no longer has what is missing, and continues after it",
      (world) => (world.append(10), world.trim(2)),
      ["gap: the log no longer has all entries", "a12", "a13"],
    ],
    [
      "reports a gap if all entries are gone",
      (world) => (world.append(3), world.trim(0)),
      ["gap: the log no longer has all entries"],
    ],
    [
      "F5: reports one gap for another log, and follows it from its beginning",
      (world) => (world.begin("b"), world.append(2)[1]!()),
      ["gap: another log began", "b1", "b2"],
    ],
    [
      "F5: reports one gap also if the beginning of the other log is gone",
      (world) => (world.begin("b"), world.append(9), world.trim(2)),
      ["gap: another log began", "b8", "b9"],
    ],
    [
      "reports a gap if the log is gone, and another if one begins unseen",
      (world) => (world.begin(""), world.heal(), world.begin("b"), world.append(2)),
      ["gap: the log is gone", "gap: a log began unseen", "b1", "b2"],
    ],
    [
      "F5: delivers no message of an earlier log, which was still on its way",
      (world) => {
        const late = world.append(2);
        world.begin("b");
        run(world.append());
        world.heal();
        run(late);
      },
      ["gap: another log began", "b1"],
    ],
  ])("%s", (_what, change, seen) => {
    const world = followed(3);
    change(world);
    world.heal();
    expect([world.seen, world.follower.needsHeal]).toEqual([seen, false]);
    expect(world.follower.position).toEqual({ epoch: world.epoch, offset: world.top });
    run(world.append());
    expect(world.seen.slice(seen.length)).toEqual([`${world.epoch}${world.top}`]);
  });

  it("delivers each entry once and in order, or reports a gap, whatever is lost, late or cut", () => {
    const random = new Random(1);
    for (let round = 0; round < 300; round++) {
      const world = followed(random.below(3));
      let late: (() => void)[] = [];
      const epochs = ["b", "c", "d"];
      for (let step = 0; step < 40; step++) {
        const sends = world.append(random.below(3));
        for (const send of sends) {
          const fate = random.below(4);
          if (fate === 0) late.push(send);
          else if (fate > 1) send();
        }
        const event = random.below(12);
        if (event === 0) world.trim(random.below(3));
        if (event === 1 && epochs.length > 0) world.begin(epochs.shift()!);
        if (event === 2) {
          run(late);
          late = [];
        }
        if (event < 6) {
          // Messages overtake the answer of the read.
          let isMore = world.read(1 + random.below(5), () => run(world.append(random.below(2))));
          while (isMore) isMore = world.read(1 + random.below(5));
        }
      }
      world.heal();
      expect(world.follower.position).toEqual({ epoch: world.epoch, offset: world.top });
      let last: [epoch: string, offset: number] | undefined;
      for (const one of world.seen) {
        if (one.startsWith("gap")) {
          last = undefined;
          continue;
        }
        const now: [string, number] = [one[0]!, Number(one.slice(1))];
        if (last !== undefined) expect(now).toEqual([last[0], last[1] + 1]);
        last = now;
      }
      const delivered = world.seen.filter((one) => !one.startsWith("gap"));
      expect(new Set(delivered).size).toBe(delivered.length);
    }
  });
});
