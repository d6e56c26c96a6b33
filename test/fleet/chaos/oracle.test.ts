/** The oracle alone, in cases that a run with real faults seldom meets. */
import { describe, expect, it } from "vitest";
import { Oracle, type Arrival } from "./oracle.js";

const said = (at: string, n: number): Arrival => ({ kind: "said", at, n, time: n });
const joined: Arrival = { kind: "joined" };
const missed: Arrival = { kind: "missed" };

/** Judges the stays of one client, each with the outcome and the position of its join. The logs contain `texts`. */
function judge(
  texts: Readonly<Record<string, number>>,
  stays: readonly (readonly [since: string | undefined, "complete" | "gap", string, readonly Arrival[]])[],
): void {
  const oracle = new Oracle();
  oracle.started(1);
  for (const [at, n] of Object.entries(texts))
    oracle.publications.push({ n, run: 1, key: undefined, state: "unknown", at, orderedAt: 0, time: 0 });
  for (const [since, outcome, at, events] of stays)
    oracle.stays.push({
      client: 0,
      since,
      told: [],
      events: [...events],
      welcome: { run: 1, id: "1.a", outcome, at },
      joinedAt: 0,
      endedAt: 0,
      dropped: 0,
    });
  oracle.judge();
}

describe("a join that was complete, whose answer comes after another log has begun", () => {
  const texts = { "a.1": 0, "a.2": 1, "b.1": 2 };
  const late = [missed, said("b.1", 2), joined];

  it("is true if the client had loaded the first log", () => {
    expect(() =>
      judge(texts, [
        [undefined, "gap", "a.2", [joined]],
        ["a.2", "complete", "a.2", late],
      ]),
    ).not.toThrow();
  });

  it("is false if the client lacks a publication of the first log", () => {
    const stays = [
      [undefined, "gap", "a.1", [joined]],
      ["a.2", "complete", "a.2", late],
    ] as const;
    expect(() => judge(texts, stays)).toThrow(
      'L3: client 0 got "complete" up to a.2 from node 1, and has undefined at a.2',
    );
  });
});

describe("a world that has not settled", () => {
  it("breaks no rule but W", () => {
    const oracle = new Oracle();
    oracle.started(1).states.push({ state: "down", text: "", time: 0 });
    oracle.breach("W", "not settled: nodes 1");
    expect(() => oracle.judge()).toThrow(/^1 breaches\nW: not settled: nodes 1$/);
  });
});
