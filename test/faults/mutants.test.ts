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

const SEEDS = 32;
const SIDE_BY_SIDE = 8;
const SIZE = { messages: 400, cuts: 20 };
/** What takes longer is taken for what never comes. */
const PATIENCE_MS = 5_000;

const SOURCES = ["client", "core", "features", "link", "peer", "server", "sockets", "connect.ts", "index.ts", "node.ts", "pair.ts"];
const mutator = new Mutator(SOURCES, ["ws", "eventemitter3", "nanoid"]);
afterAll(() => mutator[Symbol.dispose]());

/** A client that is cut over and over within seconds would mostly wait. */
const QUICK: Change = {
  path: "link/backoff.ts",
  find: "return MIN_MS + this.#random() * (cap - MIN_MS);",
  replace: "return Math.min(MIN_MS + this.#random() * (cap - MIN_MS), 8);",
};

/** The first breach of any seed; `undefined` for none. */
async function findings(...changes: Change[]): Promise<string | undefined> {
  const load = mutator.mutate([QUICK, ...changes]);
  const build = { ...(await load("node.ts")), ...(await load("peer/peer.ts")) } as Build;
  let found: string | undefined;
  let next = 1;
  const work = async (): Promise<void> => {
    while (found === undefined && next <= SEEDS) {
      const seed = next++;
      try {
        await play(build, { ...SIZE, seed, patienceMs: PATIENCE_MS });
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
    expect(await findings()).toBeUndefined();
  });

  it.each(MUTANTS)("notices without rule %s", { timeout: 60_000 }, async (what, file, find, replace) => {
    const t = performance.now();
    const f = await findings({ path: `link/${file}`, find, replace });
    process.stdout.write(`MUT ${what} | ${Math.round(performance.now()-t)} | ${f?.slice(0, 200)}\n`);
    expect(f).toMatch(/^breach/);
  });
});
