import { expect, it } from "vitest";
import { explore } from "./model.js";

const seed = Number(process.env["RECIPROC_SESSION_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const runs = Number(process.env["RECIPROC_SESSION_RUNS"] ?? 5000);

it("delivers everything in order and once, or reports a loss that has a reason, whatever happens in whatever order", () => {
  expect(explore({ runs, seed, shrinks: true })).toBeUndefined();
});
