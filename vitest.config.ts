import { configDefaults, defineConfig } from "vitest/config";
import Ordered from "./test/support/sequencer.js";

const inFolders = (folders: string[]): string[] => folders.map((folder) => `test/${folder}/**/*.test.ts`);

/** These begin no browser and no compiler. They run first, so that most mistakes show soon. */
const LIGHT = inFolders([
  "bridge",
  "cli",
  "client",
  "conformance",
  "core",
  "engines",
  "features",
  "fleet",
  "fuzz",
  "link",
  "server",
  "session",
  "sockets",
  "testing",
]);
/** These measure delays and memory. Beside them run the tests of other runtimes, which mostly wait and so delay nothing. */
const MEASURING = inFolders(["attacks", "runtimes", "scale", "soak"]);
/** Each of these runs several processes of Node and brokers, which must report soon what happens to them. */
const CHAOS = inFolders(["fleet/chaos"]);

/** Each project runs when the one before it has ended. */
export default defineConfig({
  test: {
    setupFiles: ["test/support/setup.ts"],
    reporters: ["default", "./test/support/failures.ts"],
    sequence: { sequencer: Ordered },
    // A test that waits for an event which never comes fails here; none is timed.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The same as for `vi.waitFor`, in `setup.ts`.
    expect: { poll: { timeout: 15_000 } },
    projects: [
      {
        extends: true,
        test: {
          name: "light",
          include: LIGHT,
          exclude: [...CHAOS, ...configDefaults.exclude],
          maxWorkers: 3,
          sequence: { groupOrder: 0 },
        },
      },
      {
        extends: true,
        test: { name: "measuring", include: MEASURING, maxWorkers: 2, sequence: { groupOrder: 1 } },
      },
      {
        extends: true,
        test: {
          name: "heavy",
          include: inFolders(["*"]),
          exclude: [...LIGHT, ...MEASURING, ...CHAOS, ...configDefaults.exclude],
          globalSetup: ["test/browser/global-setup.ts"],
          // Some tests time out while three browsers share two cores.
          maxWorkers: 2,
          // A browser on a loaded machine may need several seconds for each step of a test. Steps have timeouts of their own.
          expect: { poll: { timeout: 20_000 } },
          sequence: { groupOrder: 2 },
        },
      },
      {
        extends: true,
        test: { name: "chaos", include: CHAOS, maxWorkers: 2, sequence: { groupOrder: 3 } },
      },
    ],
  },
});
