/** The oracle alone, in cases that a run with real faults seldom meets. */
import { describe, expect, it } from "vitest";
import { Oracle, type Arrival, type Call, type Publication, type Rule, type Stay } from "./oracle.js";

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

/** When something happens in a short history. */
const NOW = 5_000;

/** An oracle with the processes 1 and 2, and with one client at the first of them. */
function historyOf(stay: Partial<Pick<Stay, "told" | "events">> = {}): Oracle {
  const oracle = new Oracle();
  oracle.started(1);
  oracle.started(2);
  const welcome = { run: 1, id: "1.a", outcome: "gap", at: "a.0" } as const;
  const always = { joinedAt: 0, endedAt: Infinity };
  oracle.stays.push({ client: 0, since: undefined, told: [], events: [], welcome, ...always, dropped: 0, ...stay });
  return oracle;
}

const published = (n: number, at: string | undefined, state: Publication["state"], key?: string): Publication => ({
  n,
  run: 1,
  key,
  state,
  at,
  orderedAt: NOW,
  time: NOW,
});

/** The history of one call, and how often it ran. */
function historyOfCall(call: Partial<Call>, times: number): Oracle {
  const oracle = historyOf();
  oracle.calls.push({ n: 1, run: 2, tookMs: 0, result: 1, state: "result", ...call });
  oracle.ran.set(1, times);
  return oracle;
}

/** Short histories, with a rule that is kept or broken. */
const HISTORIES: readonly (readonly [Rule, name: string, (isBroken: boolean) => Oracle])[] = [
  [
    "N1",
    "a notification that arrives twice",
    (isBroken) => historyOf({ told: [{ run: 2, n: 1 }, ...(isBroken ? [{ run: 2, n: 1 }] : [])] }),
  ],
  [
    "N2",
    "a notification that is overtaken",
    (isBroken) => historyOf({ told: (isBroken ? [2, 1] : [1, 2]).map((n) => ({ run: 2, n })) }),
  ],
  [
    "N3",
    "a notification that is lost although both nodes have connections",
    (isBroken) => {
      const oracle = historyOf();
      oracle.sent.push({ run: 2, n: 1, time: NOW });
      if (!isBroken) oracle.runs.get(2)!.troubles.push({ from: NOW, to: NOW });
      return oracle;
    },
  ],
  [
    "N4",
    "a lost connection that is not reported",
    (isBroken) => {
      const oracle = historyOf();
      const { losses, troubles, states } = oracle.runs.get(1)!;
      losses.push(NOW);
      troubles.push({ from: NOW, to: NOW });
      if (!isBroken) for (const state of ["down", "up"] as const) states.push({ state, text: "", time: NOW });
      return oracle;
    },
  ],
  [
    "L1",
    "an acknowledged publication that does not arrive",
    (isBroken) => {
      const oracle = historyOf({ events: isBroken ? [] : [said("a.1", 1)] });
      oracle.publications.push(published(1, "a.1", "acked"));
      return oracle;
    },
  ],
  [
    "L1",
    "a publication that arrives after one is missed, without a gap",
    (isBroken) => historyOf({ events: [...(isBroken ? [] : [missed]), said("a.2", 1)] }),
  ],
  [
    "L2",
    "two publications at one position",
    (isBroken) => {
      const oracle = historyOf();
      oracle.publications.push(published(1, "a.1", "unknown"), published(2, isBroken ? "a.1" : "a.2", "unknown"));
      return oracle;
    },
  ],
  [
    "L4",
    "a publication that was not sent and arrives",
    (isBroken) => {
      const oracle = historyOf({ events: [said("a.1", 1)] });
      oracle.publications.push(published(1, undefined, isBroken ? "not-sent" : "unknown"));
      return oracle;
    },
  ],
  [
    "L5",
    "a key with two positions in one epoch",
    (isBroken) => {
      const oracle = historyOf();
      for (const at of ["a.1", isBroken ? "a.2" : "b.1"]) oracle.publications.push(published(1, at, "unknown", "key"));
      return oracle;
    },
  ],
  ["C1", "a call that does not settle", (isBroken) => historyOfCall({ state: isBroken ? "pending" : "result" }, 1)],
  ["C1", "a call that settles too late", (isBroken) => historyOfCall({ tookMs: isBroken ? 60_000 : 1_000 }, 1)],
  ["C2", "a call that was not sent and ran", (isBroken) => historyOfCall({ state: "not-sent" }, isBroken ? 1 : 0)],
  ["C3", "a call with a result that ran twice", (isBroken) => historyOfCall({}, isBroken ? 2 : 1)],
  ["C3", "a call with the result of another one", (isBroken) => historyOfCall({ result: isBroken ? 2 : 1 }, 1)],
  [
    "P2",
    "a member that joins twice",
    (isBroken) => {
      const oracle = historyOf();
      const run = oracle.runs.get(1)!;
      for (const event of ["joined", isBroken ? "joined" : "left"] as const) oracle.member(run, event, "1.a");
      return oracle;
    },
  ],
  [
    "P2",
    "a member that joins when all nodes list it",
    (isBroken) => {
      const oracle = historyOf();
      oracle.listed(["1.a"]);
      if (!isBroken) oracle.member(oracle.runs.get(1)!, "left", "1.a");
      oracle.member(oracle.runs.get(1)!, "joined", "1.a");
      return oracle;
    },
  ],
];

describe.each(HISTORIES)("%s: %s", (rule, _name, make) => {
  it("is reported as the only breach", () => {
    expect(() => make(true).judge()).toThrow(new RegExp(`^1 breaches\n${rule}: .*$`));
  });

  it("is not reported if the rule is kept", () => {
    expect(() => make(false).judge()).not.toThrow();
  });
});
