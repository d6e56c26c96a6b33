/** Pages of an example in Chromium, each with a network that the test cuts. */
import type { BrowserContext, Locator, Page } from "playwright-core";
import { Relay } from "../support/relay.js";
import { browser } from "./browser.js";

/** Returns the element that shows the state of the connection, when it shows this text. */
export function status(page: Page, text: string | RegExp): Locator {
  return page.getByRole("status").and(page.getByText(text, { exact: true }));
}

/** Pages of one example, each over a relay of its own. */
export class Windows implements AsyncDisposable {
  readonly errors: string[] = [];
  readonly #opened: { context: BrowserContext; relay: Relay }[] = [];

  async open(url: string): Promise<{ page: Page; relay: Relay }> {
    const relay = await Relay.to(url);
    const context = await (await browser()).newContext();
    const page = await context.newPage();
    page.on("pageerror", (error) => this.errors.push(error.stack ?? error.message));
    page.on("console", (line) => {
      // Chromium writes a line for each connection that fails.
      if (line.type() === "error" && !/WebSocket connection|ERR_/.test(line.text())) this.errors.push(line.text());
    });
    await page.goto(relay.url.replace("ws:", "http:"));
    this.#opened.push({ context, relay });
    return { page, relay };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { context, relay } of this.#opened) {
      await context.close();
      await relay.close();
    }
  }
}
