/** What is kept in memory, without what the collector has not come to yet. */
import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect } from "vitest";

export const MIB = 2 ** 20;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Bytes in use, buffers included, when everything that can go is gone: closing sockets need turns between the collections. */
export async function bytesKept(): Promise<number> {
  for (let i = 0; i < 4; i++) {
    collectGarbage();
    await turn();
  }
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

/** Does something, and asserts that no more than `most` bytes are kept after it. */
export async function expectKept<T>(most: number, act: () => Promise<T>): Promise<T> {
  const before = await bytesKept();
  const result = await act();
  const kept = (await bytesKept()) - before;
  expect(kept, `${(kept / MIB).toFixed(1)} MiB kept`).toBeLessThan(most);
  return result;
}
