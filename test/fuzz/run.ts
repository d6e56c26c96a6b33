/** What a run of fuzzing is made from, and what must not happen in it. */
import { afterAll, beforeAll, beforeEach } from "vitest";

/** What everything random in a run comes from; `RECIPROC_FUZZ_SEED` chooses it. */
export const seed = Number(process.env["RECIPROC_FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));

/** Each test that fails says how to run it again. */
export function useSeed(): void {
  beforeEach(({ onTestFailed }) => {
    onTestFailed(() => void process.stderr.write(`run it again with RECIPROC_FUZZ_SEED=${seed}\n`));
  });
}

/** Gathers what must not happen anywhere in the process while the tests run. */
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
