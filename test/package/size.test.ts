import { gzipSync } from "node:zlib";
import { fileURLToPath } from "node:url";
import { build } from "esbuild-wasm";
import { describe, expect, it } from "vitest";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));

/** What a page loads for this code, its packages included: minified and gzipped, in bytes. */
async function sizeOf(code: string): Promise<number> {
  const { outputFiles } = await build({
    stdin: { contents: code, resolveDir: ROOT },
    bundle: true,
    minify: true,
    format: "esm",
    platform: "browser",
    target: "es2022",
    legalComments: "none",
    write: false,
  });
  return gzipSync(outputFiles![0]!.contents, { level: 9 }).length;
}

/**
 * Guards against unintended growth. Each budget is the size at the last measurement plus 5 %, so that a readable change needs no
 * negotiation. A commit that raises a budget states what users get for it.
 */
describe("what a page loads", () => {
  it.each([
    ["connect", "everything that a client in a page needs", 28_200],
    ["pair", "a peer without a network", 19_900],
    ["RpcError", "one error class", 400],
  ])("for `%s`, %s, is at most %i bytes", async (name, _what, budget) => {
    const size = await sizeOf(`export { ${name} } from "./dist/index.js"`);
    expect(size).toBeLessThanOrEqual(budget);
    // A budget far above what is used guards nothing.
    expect(size).toBeGreaterThan(budget * 0.8);
  });
});
