import { describe, expect, it } from "vitest";
import { sizeOf } from "../../scripts/size.js";
import { build } from "./bundlers.js";

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

/** A budget far above the size guards nothing. */
const LEAST_USED = 0.8;

/**
 * Guards against unintended growth. Each budget is the size at the last measurement plus 5 %, so that a readable change needs no
 * negotiation. A commit that raises a budget states what users get for it. `npm run size` prints the share of each module.
 */
describe("the code that a page loads", () => {
  it.each([
    ["connect", "es2022", 26_900],
    ["connect", "es2020", 29_700],
    ["connect", "vite", 26_300],
    ["connect, contract", "es2022", 27_800],
    ["pair", "es2022", 19_000],
    ["RpcError", "es2022", 360],
    ["lsp", "es2022", 480],
    ["encodeRequest", "es2022", 940],
  ] as const)("for `%s`, built for %s, is at most %i bytes", async (name, target, budget) => {
    const { gzip } = await sizeOf(`export { ${name} } from "./dist/index.js";`, target);
    expect(gzip).toBeLessThanOrEqual(budget);
    expect(gzip).toBeGreaterThan(budget * LEAST_USED);
  });

  it("has nothing of `contract` unless the page imports it", async () => {
    const [without, having] = await Promise.all([pageOf("connect"), pageOf("connect, contract")]);
    for (const part of ["does not fit its schema", "must not have both"]) {
      expect(having).toContain(part);
      expect(without).not.toContain(part);
    }
  });

  it("for React, without React and without the chunks that a page loads anyway, is at most 1,500 bytes", async () => {
    const { gzip } = await sizeOf('export * from "./dist/react/index.js";', "es2022", undefined, [
      "react",
      "../chunks/*",
    ]);
    expect(gzip).toBeLessThanOrEqual(1_500);
    expect(gzip).toBeGreaterThan(1_500 * LEAST_USED);
  });
});
