import { describe, expect, it } from "vitest";
import { sizeOf } from "../../scripts/size.js";

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
    ["pair", "es2022", 19_000],
    ["RpcError", "es2022", 360],
    ["lsp", "es2022", 480],
    ["encodeRequest", "es2022", 940],
  ] as const)("for `%s`, built for %s, is at most %i bytes", async (name, target, budget) => {
    const { gzip } = await sizeOf(`export { ${name} } from "./dist/index.js";`, target);
    expect(gzip).toBeLessThanOrEqual(budget);
    expect(gzip).toBeGreaterThan(budget * LEAST_USED);
  });
});
