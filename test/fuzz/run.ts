/** The seed of a fuzzing run, and the process-wide faults that it must not cause. */
import { afterAll, beforeAll, beforeEach } from "vitest";

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
