/** Runs the unchanged engine of docs/guides/engine.md through the rules of engines. */
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { clean, examplesOf, extract, folder } from "./examples.js";

const PAGE = "docs/guides/engine.md";

await extract(PAGE);
afterAll(clean);

it("builds an engine in fewer than 150 lines", async () => {
  const [bus] = await examplesOf(PAGE);
  expect(bus!.code.split("\n").length).toBeLessThan(150);
});

await import(/* @vite-ignore */ join(folder, "bus.spec.ts"));
