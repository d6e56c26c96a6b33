import { configDefaults, defineConfig } from "vitest/config";

const inFolders = (...folders: string[]): string[] => folders.map((folder) => `test/${folder}/**/*.test.ts`);

/** These begin no browser and no compiler. They run first, so that most mistakes show within a minute or two. */
const QUICK = inFolders(
  ...["bridge", "cli", "client", "conformance", "core", "features", "fuzz", "link", "server", "sockets"],
);
/** These measure delays and memory, or wait for timeouts. They run beside each other only, so that nothing heavy delays them. */
const MEASURING = inFolders("attacks", "runtimes", "scale", "soak");

/** Each project runs when the one before it has ended. */
export default defineConfig({
  test: {
    setupFiles: ["test/support/setup.ts"],
    reporters: ["default", "./test/support/failures.ts"],
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 20_000,
    hookTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: { name: "quick", include: QUICK, maxWorkers: 3, sequence: { groupOrder: 0 } },
      },
      {
        extends: true,
        test: { name: "measuring", include: MEASURING, maxWorkers: 2, sequence: { groupOrder: 1 } },
      },
      {
        extends: true,
        test: {
          name: "other",
          include: inFolders("*"),
          exclude: [...QUICK, ...MEASURING, ...configDefaults.exclude],
          globalSetup: ["test/browser/global-setup.ts"],
          // Some tests time out while three browsers share two cores.
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
