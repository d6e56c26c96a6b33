import { expect, it } from "vitest";
import { seed } from "../fuzz/run.js";
import { explore } from "./model.js";

it("delivers everything in order and once, or reports a loss that has a reason, whatever happens in whatever order", () => {
  expect({ seed, found: explore({ runs: 5_000, seed, shrinks: true }) }).toEqual({ seed, found: undefined });
});
