/**
 * The oracle, shown to work: rules of the session are taken out of the sources in turn, and between real peers somebody must
 * notice, within a bounded number of seeds.
 */
import { afterAll, describe, expect, it } from "vitest";
import { Mutator, type Change } from "../support/mutator.js";
import { MUTANTS } from "../link/session/mutants.js";
import type { Build } from "./build.js";
import { Breach } from "./oracle.js";
import { play } from "./world.js";

/**
 * Of each rule what two peers notice that both keep all others. What is left shows where an end breaks the rules on purpose, or
 * at a bound: against the model (test/link/session/mutants.test.ts), which has all of them.
 */
const NOTICED = [
  "1: a returning client sends only `resume` until `resumed`",
  "2: the old socket is left before `received` is read",
  "3: a stale attempt is not taken",
  "3: attempts grow",
  "4: a token is new at each resume",
  "4: the newest unconfirmed token is accepted",
  "5: replay begins behind what was received",
  "5: replay leaves nothing out",
  "6: other closes do not",
  "6: what the other side does not take is not logged",
  "7: a call that waits can be taken back",
  "7: a message that waits was not sent",
  "8: the server's session ends in time",
  "8: what is of a lost session is never sent on",
  "9: a session whose token was never acked ends with its socket",
  "10: another principal does not resume",
];

/** What a broadcast may do, taken out in turn. */
const BROADCAST_MUTANTS: [what: string, change: Change][] = [
  [
    "a broadcast ends no session",
    {
      path: "link/outbox.ts",
      find: "if (ticket === BROADCAST) return this.#waitBroadcast(text);",
      replace: "if (ticket === BROADCAST) ticket = undefined;",
    },
  ],
  [
    "broadcasts take no room from other messages",
    {
      path: "link/outbox.ts",
      find: "if (this.#ordinaryLength + text.length > most) {",
      replace: "if ((this.#waiting?.length ?? 0) + text.length > most) {",
    },
  ],
  [
    "a broadcast that is dropped is counted",
    {
      path: "server/groups.ts",
      find: 'counts[isTaken ? "notificationsSent" : "dropped"]++;',
      replace: "if (isTaken) counts.notificationsSent++;",
    },
  ],
];

/** None needed more than 14, of many runs. */
const SEEDS = 100;
const SEEDS_OF_THE_SOURCES = 16;
const SIDE_BY_SIDE = 8;
const SIZE = { messages: 400, cuts: 20 };
const PATIENCE_MS = 30_000;
/** A mutant that hangs is not waited for as long. */
const LITTLE_PATIENCE_MS = 5_000;

const SOURCES = [
  "client",
  "core",
  "features",
  "link",
  "peer",
  "server",
  "sockets",
  "connect.ts",
  "index.ts",
  "node.ts",
  "pair.ts",
];
const mutator = new Mutator(SOURCES, ["ws", "eventemitter3", "nanoid"]);
afterAll(() => mutator[Symbol.dispose]());

/** A client that is cut over and over within seconds would mostly wait. */
const QUICK: Change = {
  path: "link/backoff.ts",
  find: "return MIN_MS + this.#random() * (cap - MIN_MS);",
  replace: "return Math.min(MIN_MS + this.#random() * (cap - MIN_MS), 8);",
};

/** The first breach of any seed; `undefined` for none. */
async function findings(seeds: number, patienceMs: number, ...changes: Change[]): Promise<string | undefined> {
  const load = mutator.mutate([QUICK, ...changes]);
  const build = { ...(await load("node.ts")), ...(await load("peer/peer.ts")) } as Build;
  let found: string | undefined;
  let next = 1;
  const work = async (): Promise<void> => {
    while (found === undefined && next <= seeds) {
      const seed = next++;
      try {
        await play(build, { ...SIZE, seed, patienceMs });
      } catch (error) {
        found ??= `${error instanceof Breach ? "breach" : "crash"} of seed ${seed}: ${(error as Error).message}`;
      }
    }
  };
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, work));
  return found;
}

describe("the oracle", () => {
  it("finds nothing in the sources as they are", { timeout: 120_000 }, async () => {
    expect(await findings(SEEDS_OF_THE_SOURCES, PATIENCE_MS)).toBeUndefined();
  });

  it.each(MUTANTS.filter(([what]) => NOTICED.includes(what)))(
    "notices without rule %s",
    { timeout: 120_000 },
    async (_what, file, find, replace) => {
      const change = { path: `link/${file}`, find, replace };
      expect(await findings(SEEDS, LITTLE_PATIENCE_MS, change)).toMatch(/^breach/);
    },
  );

  it.each(BROADCAST_MUTANTS)("notices without the rule that %s", { timeout: 120_000 }, async (_what, change) => {
    expect(await findings(SEEDS, LITTLE_PATIENCE_MS, change)).toMatch(/^breach/);
  });

  it("was tried with each of the ten rules", () => {
    const known = new Set(MUTANTS.map(([what]) => what));
    expect(NOTICED.filter((what) => !known.has(what))).toEqual([]);
    const rules = new Set(NOTICED.map((what) => Number.parseInt(what)));
    expect([...rules]).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  });
});
