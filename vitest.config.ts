import { configDefaults, defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";

/** Folders whose tests need more than `npm ci` brings, or a long time: `npm run test:all`. All others belong to `npm test`. */
const ALL = ["browser", "engines", "interop", "long", "package", "runtimes", "scale", "scaling", "site", "soak"].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);

const isLong = ({ moduleId }: TestSpecification): boolean => moduleId.includes("/test/long/");

/** Starts the long runs first, so that none of them is left over when all others are done. */
class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    // oxlint-disable-next-line unicorn/no-array-sort -- the method of a sequencer, and of no array.
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

export default defineConfig({
  test: {
    setupFiles: ["test/support/setup.ts"],
    reporters: ["default", "./test/support/failures.ts"],
    // A test waits for an event. These limits only end a test whose event never comes, on a machine of any speed.
    testTimeout: 300_000,
    // Hooks install programs.
    hookTimeout: 600_000,
    allowOnly: false,
    // What a test replaces is restored before the next one.
    restoreMocks: true,
    unstubGlobals: true,
    expect: { poll: { timeout: 240_000 } },
    maxWorkers: 2,
    sequence: { sequencer: LongFirst },
    projects: [
      {
        extends: true,
        test: { name: "test", include: ["test/**/*.test.ts"], exclude: [...ALL, ...configDefaults.exclude] },
      },
      {
        extends: true,
        test: { name: "all", include: ALL, globalSetup: ["test/browser/global-setup.ts"] },
      },
    ],
  },
});
