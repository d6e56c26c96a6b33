/** Starts with the slowest files, so that a group does not end with a single one of them. */
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take 20 s or more on two cores, slowest first. */
const LONGEST = [
  "browser/reconnect",
  "browser/shared-text",
  "browser/board",
  "browser/language-server",
  "runtimes/clients",
  "runtimes/servers",
  "attacks/floods",
  "faults/mutants",
  "types/types",
  "cli/bridge",
  "browser/editor",
  "browser/session",
];

export default class LongestFirst extends BaseSequencer {
  /** Keeps Vitest's own order for the others: files that failed last time, then by size. */
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- this is Vitest's method, not that of an array.
    const byVitest = await super.sort(files);
    return [...LONGEST, undefined].flatMap((name) => byVitest.filter((file) => longestNameOf(file) === name));
  }
}

function longestNameOf({ moduleId }: TestSpecification): string | undefined {
  return LONGEST.find((name) => moduleId.endsWith(`/test/${name}.test.ts`));
}
