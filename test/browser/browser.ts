/** The Chromium that the tests of a file share. */
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll } from "vitest";
import { launch } from "./chromium.js";

let launched: Promise<Browser> | undefined;
afterAll(async () => (await launched)?.close());

/** Returns the browser of the test file, which starts at the first call. */
export function browser(): Promise<Browser> {
  launched ??= launch();
  return launched;
}

/** Opens a page in a context of its own. */
export async function newPage(options?: BrowserContextOptions): Promise<Page> {
  return (await (await browser()).newContext(options)).newPage();
}

/** Closes a page so that its session ends. Chromium may kill a page that is closed before it has sent its close. */
export async function end(page: Page): Promise<void> {
  await page.goto("about:blank");
  await page.context().close();
}
