/** A thousand idle connections between two processes: correct and counted. `npm run scale` tests ten thousand, and measures their memory. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, it } from "vitest";
import { check } from "./check.js";
import { measure } from "./measure.js";

const CONNECTIONS = 1_000;

beforeAll(async () => {
  const tsc = join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", import.meta.dirname]);
});

it.each(["plain", "packed"] as const)(
  `answers, counts and closes ${CONNECTIONS} idle connections, with no timer for each (%s)`,
  async (kind) => {
    const measured = await measure(kind, CONNECTIONS, 0, join(import.meta.dirname, ".build/test/scale"));
    expect(() => check(measured, CONNECTIONS)).not.toThrow();
  },
);
