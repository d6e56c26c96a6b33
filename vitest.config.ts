import { defineConfig } from "vitest/config";

const BROWSER = "test/browser/**/*.test.ts";
const CHROMIUM = "test/browser/global-setup.ts";
const PACKAGES = "test/interop/global-setup.ts";

export default defineConfig({
  test: {
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 20_000,
    hookTimeout: 60_000,
    // Projects with different numbers of workers run one after the other.
    projects: [
      {
        extends: true,
        test: {
          name: "browser",
          include: [BROWSER],
          globalSetup: [CHROMIUM],
          // Half of the time these wait for the clock of a page.
          maxWorkers: 3,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: {
          name: "node",
          include: ["test/**/*.test.ts"],
          exclude: [BROWSER, "**/node_modules/**"],
          globalSetup: [CHROMIUM, PACKAGES],
          // Many tests wait for another process or the clock: two at a time, also on two cores.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
