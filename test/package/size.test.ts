import { access } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { sharesOf, sizeOf } from "../../scripts/size.js";
import { build } from "esbuild-wasm";

/** Returns the code of a page that imports `names`. */
async function pageOf(names: string): Promise<string> {
  const contents = `export { ${names} } from "./dist/index.js";`;
  const stdin = { contents, resolveDir: process.cwd() };
  const { outputFiles } = await build({
    stdin,
    bundle: true,
    write: false,
    format: "esm",
    platform: "browser",
    target: "es2022",
    logLevel: "error",
  });
  return new TextDecoder().decode(outputFiles![0]!.contents);
}

/** The modules of what a page imports by name, of other entries, and of Node. */
const NOT_IN_EVERY_PAGE = [
  "src/core/bytes.ts",
  "src/core/checks.ts",
  "src/core/shared-timer.ts",
  "src/core/text.ts",
  "src/bridge/",
  "src/cli/",
  "src/node.ts",
  "src/react/",
  "src/server/",
  "src/testing/",
];

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
    ["connect", "es2022", 30_000],
    ["connect", "es2020", 32_800],
    ["connect", "vite", 29_300],
    ["connect, contract", "es2022", 30_800],
    ["pair", "es2022", 21_400],
    ["RpcError", "es2022", 420],
    ["lsp", "es2022", 480],
    ["encodeRequest", "es2022", 1_110],
  ] as const)("for `%s`, built for %s, is at most %i bytes", async (name, target, budget) => {
    const { gzip } = await sizeOf(`export { ${name} } from "./dist/index.js";`, target);
    expect(gzip).toBeLessThanOrEqual(budget);
    expect(gzip).toBeGreaterThan(budget * LEAST_USED);
  });

  it.each([
    ["contract", ["does not fit its schema", "must not have both"]],
    ["bytes", ["apart from the message that contains it", "BigUint64Array"]],
  ])("has nothing of `%s` unless the page imports it", async (name, parts) => {
    const [without, having] = await Promise.all([pageOf("connect"), pageOf(`connect, ${name}`)]);
    for (const part of parts) {
      expect(having).toContain(part);
      expect(without).not.toContain(part);
    }
  });

  it("has no module for bytes, contracts, servers, React or tests, unless the page imports it", async () => {
    const modules = await modulesOf("connect");
    expect(modules).toContain("src/connect.ts");
    for (const path of NOT_IN_EVERY_PAGE) {
      await access(path);
      expect(modules.filter((module) => module.startsWith(path))).toEqual([]);
    }
    const packages = modules.flatMap((path) => /^node_modules\/([^/]+)/.exec(path)?.[1] ?? []);
    expect(new Set(packages)).toEqual(new Set(["eventemitter3", "nanoid"]));
    expect(await modulesOf("connect, bytes")).toContain("src/core/bytes.ts");
    expect(await modulesOf("connect, contract")).toContain("src/core/checks.ts");
  });

  it("for React, without React and without the chunks that a page loads anyway, is at most 1,620 bytes", async () => {
    const { gzip } = await sizeOf('export * from "./dist/react/index.js";', "es2022", undefined, [
      "react",
      "../chunks/*",
    ]);
    expect(gzip).toBeLessThanOrEqual(1_620);
    expect(gzip).toBeGreaterThan(1_620 * LEAST_USED);
  });
});
