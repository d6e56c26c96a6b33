/** A thousand idle connections between two processes: correct and counted. `npm run scale` tests ten thousand, and measures their memory. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, it } from "vitest";
import { check } from "../../bench/scale/check.js";
import { measure } from "../../bench/scale/measure.js";

const CONNECTIONS = 1_000;
const ROOT = join(import.meta.dirname, "../..");
const BUILD = join(import.meta.dirname, ".build");

beforeAll(async () => {
  const tsc = join(ROOT, "node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", join(ROOT, "bench/scale"), "--outDir", BUILD]);
});

it.each(["plain", "packed"] as const)("answers, counts and closes each, with no timer for it: %s", async (kind) => {
  const measured = await measure(kind, CONNECTIONS, 0, join(BUILD, "bench/scale"));
  expect(() => check(measured, CONNECTIONS)).not.toThrow();
});
