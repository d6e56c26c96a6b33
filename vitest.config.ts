import { defineConfig } from "vitest/config";

/** Folders that begin no browser, no other runtime and no compiler. They run first, so that most mistakes show within a minute. */
const QUICK = ["bridge", "cli", "client", "conformance", "core", "features", "fuzz", "link", "server", "sockets"].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);

export default defineConfig({
  test: {
    setupFiles: ["test/support/setup.ts"],
    reporters: ["default", "./test/support/failures.ts"],
    // Three browsers at a time are too slow for some tests on two cores.
    maxWorkers: 2,
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 20_000,
    hookTimeout: 60_000,
    projects: [
      { extends: true, test: { name: "quick", include: QUICK, sequence: { groupOrder: 0 } } },
      {
        extends: true,
        test: {
          name: "slow",
          include: ["test/**/*.test.ts"],
          exclude: [...QUICK, "**/node_modules/**"],
          globalSetup: ["test/browser/global-setup.ts"],
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
