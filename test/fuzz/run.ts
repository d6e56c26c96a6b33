/** The seed of a fuzzing run, its end, and the process-wide faults that it must not cause. */
import { setImmediate as turn } from "node:timers/promises";
import { afterAll, beforeAll, beforeEach } from "vitest";
import type { AnyPeer } from "../../src/index.js";

/** The seed of all random values in a run, or `RECIPROC_FUZZ_SEED` if that is set. */
export const seed = Number(process.env["RECIPROC_FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

/** Prints how to repeat each failed test. */
export function useSeed(): void {
  beforeEach(({ onTestFailed }) => {
    onTestFailed(() => void process.stderr.write(`run it again with RECIPROC_FUZZ_SEED=${seed}\n`));
  });
}

/** Collects unhandled rejections and uncaught exceptions of the process during the tests. */
export function useDisasters(): unknown[] {
  const disasters: unknown[] = [];
  const onDisaster = (error: unknown): void => void disasters.push(error);
  beforeAll(() => {
    process.on("unhandledRejection", onDisaster);
    process.on("uncaughtException", onDisaster);
  });
  afterAll(() => {
    process.off("unhandledRejection", onDisaster);
    process.off("uncaughtException", onDisaster);
  });
  return disasters;
}

/** Resolves when no handler runs and no more messages are sent. */
export async function untilQuiet(peer: AnyPeer): Promise<void> {
  do await turn();
  while (peer.stats().running > 0);
  for (let i = 0; i < 8; i++) await turn();
}
