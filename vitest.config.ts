import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/browser/global-setup.ts", "test/interop/global-setup.ts"],
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 20_000,
    hookTimeout: 60_000,
  },
});
