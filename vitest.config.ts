import { configDefaults, defineConfig } from "vitest/config";

/** Folders whose tests need more than `npm ci` brings, or a long time: `npm run test:all`. All others belong to `npm test`. */
const ALL = ["browser", "engines", "interop", "long", "package", "runtimes", "scale", "scaling", "site", "soak"].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);

export default defineConfig({
  test: {
    setupFiles: ["test/support/setup.ts"],
    reporters: ["default", "./test/support/failures.ts"],
    // A test waits for an event. These limits only end a test whose event never comes, on a machine of any speed.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 240_000 } },
    maxWorkers: 2,
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
