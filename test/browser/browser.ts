/** The Chromium that the tests of a file share. */
import type { Browser } from "playwright-core";
import { afterAll } from "vitest";
import { launch } from "./chromium.js";

let launched: Promise<Browser> | undefined;
afterAll(async () => (await launched)?.close());

/** Returns the browser of the test file, which starts at the first call. */
export function browser(): Promise<Browser> {
  launched ??= launch();
  return launched;
}

/** How long a test waits for a page to connect again. After connections that lasted less than 5 s, a client waits for up to 20 s. */
export const PATIENCE = { timeout: 30_000 };
