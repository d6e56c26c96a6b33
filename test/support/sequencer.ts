/** Decides which test files run first, and so which of them run beside each other. */
import { BaseSequencer, type TestSpecification } from "vitest/node";

const ORDER = [
  // The longest first: otherwise the end of a run waits for a single one of them.
  "browser/reconnect",
  "browser/shared-text",
  "browser/board",
  "browser/language-server",
  "faults/mutants",
  "types/types",
  "cli/bridge",
  "browser/editor",
  "browser/session",
  // Two workers take these in turn. While one of them runs another runtime, which mostly waits, the other one measures an attack.
  "runtimes/clients",
  "attacks/floods",
  "attacks/reaching",
  "runtimes/servers",
  "attacks/frames",
  "attacks/handshakes",
  "attacks/limits",
  "attacks/slow",
  "scale/scale",
  "attacks/messages",
  "soak/cycles",
];

export default class Ordered extends BaseSequencer {
  /** Vitest's own order comes second: files that failed last time, then by size. */
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- this is Vitest's method, not that of an array.
    const byVitest = await super.sort(files);
    return [...ORDER, undefined].flatMap((name) => byVitest.filter((file) => nameOf(file) === name));
  }
}

/** Returns the name of the file in `ORDER`, or undefined if its place is left to Vitest. */
function nameOf({ moduleId }: TestSpecification): string | undefined {
  return ORDER.find((name) => moduleId.endsWith(`/test/${name}.test.ts`));
}
