/** The oracle in cases that no mutant brings about. */
import { expect, it } from "vitest";
import { Oracle, type Arrival } from "./oracle.js";

/** Judges a client that has loaded a log up to one position, and whose next join is complete after another log has begun. */
function judgeLateJoin(loadedAt: string): void {
  const oracle = new Oracle();
  oracle.started(1);
  for (const [n, at] of ["a.1", "a.2", "b.1"].entries())
    oracle.publications.push({ n, run: 1, key: undefined, state: "unknown", at, orderedAt: 0, time: 0 });
  const stay = { client: 0, told: [], joinedAt: 0, endedAt: 0 };
  const joined: Arrival = { kind: "joined" };
  const welcome = { run: 1, id: "1.a" };
  const first = { since: undefined, events: [joined], welcome: { ...welcome, outcome: "gap", at: loadedAt } as const };
  const late: Arrival[] = [{ kind: "missed" }, { kind: "said", at: "b.1", n: 2, time: 2 }, joined];
  const second = { since: "a.2", events: late, welcome: { ...welcome, outcome: "complete", at: "a.2" } as const };
  oracle.stays.push({ ...stay, ...first }, { ...stay, ...second });
  oracle.judge();
}

it("accepts a join that was complete if the client had loaded the log, although another one has begun", () => {
  expect(() => judgeLateJoin("a.2")).not.toThrow();
  const lacks = 'L3: client 0 got "complete" up to a.2 from node 1, and has undefined at a.2';
  expect(() => judgeLateJoin("a.1")).toThrow(lacks);
});

it("reports no breach but W of a world that has not settled", () => {
  const oracle = new Oracle();
  oracle.started(1).states.push({ state: "down", text: "", time: 0 });
  oracle.breach("W", "not settled: nodes 1");
  expect(() => oracle.judge()).toThrow(/^1 breaches\nW: not settled: nodes 1$/);
});

it("reports a call that settles too late", () => {
  const oracle = new Oracle();
  oracle.calls.push({ n: 1, run: 1, lateMs: 60_000, result: 1, state: "result" });
  oracle.ran.set(1, 1);
  expect(() => oracle.judge()).toThrow(/^1 breaches\nC1: .*$/);
});
