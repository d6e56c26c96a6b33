import { setImmediate as turn } from "node:timers/promises";
import { expect, it as test } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { uncaughtIn } from "../support/uncaught.js";

const isLong = expect.getState().testPath!.includes("/long/");

/** The seed of all random values: the same in each `npm test`, and another in each run of test/long. `RECIPROC_FUZZ_SEED` names one. */
export const seed = Number(process.env["RECIPROC_FUZZ_SEED"] ?? (isLong ? Math.floor(Math.random() * 2 ** 31) : 1));

/** As `it` of vitest. Also fails for uncaught exceptions and rejections meanwhile, and prints how to repeat a test that failed. */
export function it(title: string, run: () => unknown): void {
  test(title, async ({ onTestFailed }) => {
    onTestFailed(() => void process.stderr.write(`run it again with RECIPROC_FUZZ_SEED=${seed}\n`));
    expect(await uncaughtIn(run)).toEqual([]);
  });
}

/** Resolves when no handler runs and no more messages are sent. */
export async function untilQuiet(peer: AnyPeer): Promise<void> {
  do await turn();
  while (peer.stats().running > 0);
  for (let i = 0; i < 8; i++) await turn();
}
