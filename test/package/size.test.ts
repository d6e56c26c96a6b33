import { access } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { ADDED, addedBy, sharesOf, sizeOf } from "../../scripts/size.js";

/** The modules of what a page imports by name, of other entries, and of Node. */
const NOT_IN_EVERY_PAGE =
  "message/bytes.ts client/follow.ts client/join.ts client/mutation.ts client/presence.ts client/store.ts message/position.ts contract/checks.ts base/shared-timer.ts message/text.ts session/node-link.ts features/ bridge/ cli/ node.ts react/ server/ testing/";

/** Returns the modules that a page contains which imports `names`. */
async function modulesOf(names: string): Promise<string[]> {
  return (await sharesOf(`export { ${names} } from "./src/index.ts";`)).map(({ path }) => path);
}

/** A budget far above the size guards nothing. */
const LEAST_USED = 0.8;

/**
 * Guards against unintended growth. Each budget is the size at the last measurement plus at most 5 %, so that a repair of some bytes
 * needs no new budget. A commit that raises a budget states what users get for it. `npm run size` prints the share of each module.
 */
describe("the code that a page loads", () => {
  it.each([
    ["{ connect }", "index.js", "es2022", 24_200],
    ["{ connect }", "index.js", "es2020", 26_500],
    ["{ connect }", "index.js", "vite", 23_800],
    [
      "{ connect, streams, progress, batches, live, renewal, schemas, compat, bytes, contract }",
      "index.js",
      "es2022",
      33_300,
    ],
    ["{ contract }", "index.js", "es2022", 2_100],
    ["*", "reciproc.min.js", "es2022", 37_000],
    ["{ pair }", "index.js", "es2022", 16_300],
    ["{ RpcError }", "index.js", "es2022", 420],
    ["{ lsp }", "index.js", "es2022", 480],
    ["{ encodeRequest }", "index.js", "es2022", 1_160],
    ["*", "react/index.js", "es2022", 2_140],
  ] as const)("for `%s` of %s, built for %s, is at most %i bytes", async (names, file, target, budget) => {
    // The entry for React: without React, and without the chunks that a page loads anyway.
    const external = ["react", "../chunks/*"];
    const { gzip } = await sizeOf(`export ${names} from "./dist/${file}";`, target, undefined, external);
    expect(gzip).toBeLessThanOrEqual(budget);
    expect(gzip).toBeGreaterThan(budget * LEAST_USED);
  });

  it.each(ADDED)("grows by `%s`, beside `%s`, by less than 1.5 kB, or 1.7 kB with its store", async (name, beside) => {
    const hasStore = beside === "connect, createReciproc";
    expect(await addedBy(name, beside, "es2020")).toBeLessThan(hasStore ? 1_700 : 1_500);
  });

  it("has no module for features, contracts, servers, React or tests, unless the page imports it", async () => {
    const modules = await modulesOf("connect");
    expect(modules).toContain("src/connect.ts");
    for (const path of NOT_IN_EVERY_PAGE.split(" ").map((name) => `src/${name}`)) {
      await access(path);
      expect(modules.filter((module) => module.startsWith(path))).toEqual([]);
    }
    const packages = modules.flatMap((path) => /^node_modules\/([^/]+)/.exec(path)?.[1] ?? []);
    expect(new Set(packages)).toEqual(new Set(["eventemitter3", "nanoid"]));
    expect(await modulesOf("connect, bytes")).toContain("src/message/bytes.ts");
    expect(await modulesOf("connect, progress")).toContain("src/features/progress.ts");
    expect(await modulesOf("connect, contract")).toContain("src/contract/checks.ts");
  });
});
