import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/browser/global-setup.ts", "test/interop/global-setup.ts"],
    // Many tests wait for a browser, another process or the clock: two at a time, also on two cores.
    maxWorkers: 2,
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
