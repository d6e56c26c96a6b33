/**
 * A thousand idle connections between two processes: correct, counted and cheap. `npm run scale` tests ten thousand.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { check } from "./check.js";
import type { Memory } from "./held.js";
import { measure, type Kind, type Measured } from "./measure.js";

const CONNECTIONS = 1_000;
/**
 * Most bytes of heap for each idle connection. Measured on Node 20.20: server 3,750 to 4,070 plain and 5,150 to 5,250
 * packed, clients 7,840 to 8,050 and 11,330 to 11,490. The limit is about a third more, for other versions of Node, but
 * not 4 KiB more.
 */
const MOST_HEAP = {
  plain: { server: 5_400, clients: 10_700 },
  packed: { server: 7_000, clients: 14_800 },
};
/** Most bytes outside the heap, which hold the contents of Buffers. Measured 8. */
const MOST_BUFFERS = 100;
/**
 * Most bytes of heap that each may leave. Measured up to 400: code that Node compiles, which does not grow with their
 * number.
 */
const MOST_LEFT = 800;

const KINDS = ["plain", "packed"] as const;
const SIDES = ["server", "clients"] as const;
const measured = new Map<Kind, Measured>();

beforeAll(async () => {
  const tsc = join(import.meta.dirname, "../../node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", import.meta.dirname]);
  const build = join(import.meta.dirname, ".build/test/scale");
  for (const kind of KINDS) measured.set(kind, await measure(kind, CONNECTIONS, 0, build));
}, 300_000);

/** Returns the bytes of each connection. */
function each(from: Memory, to: Memory, what: "heap" | "buffers"): number {
  return (to[what] - from[what]) / CONNECTIONS;
}

describe.each(KINDS)(`${CONNECTIONS} idle connections, %s`, (kind) => {
  it("answers, counts and closes all of them, with no timer for each", () => {
    expect(() => check(measured.get(kind)!, CONNECTIONS)).not.toThrow();
  });

  it.each(SIDES)("needs no more memory than its limit in the process of the %s, and leaves nothing there", (name) => {
    const { empty, full, once, left } = measured.get(kind)![name];
    expect(each(empty, full, "heap")).toBeLessThan(MOST_HEAP[kind][name]);
    expect(each(empty, full, "buffers")).toBeLessThan(MOST_BUFFERS);
    expect(each(once, left, "heap")).toBeLessThan(MOST_LEFT);
    expect(each(once, left, "buffers")).toBeLessThan(MOST_BUFFERS);
  });
});
