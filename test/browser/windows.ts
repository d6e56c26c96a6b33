/** Pages of an example in Chromium, each with a network that the test cuts. */
import type { BrowserContext, Locator, Page } from "playwright-core";
import { expect } from "vitest";
import type { ExampleServer } from "../examples/server.js";
import { Relay } from "../support/relay.js";
import { browser } from "./browser.js";

export function status(page: Page, text: string | RegExp): Locator {
  return page.getByRole("status").and(page.getByText(text, { exact: true }));
}

export interface Window {
  page: Page;
  relay: Relay;
}

/** Starts an example, and runs a test that opens its page. At the end, neither the server nor a page may have reported an error. */
export async function withWindows(
  server: ExampleServer,
  run: (open: () => Promise<Window>) => Promise<void>,
): Promise<void> {
  await server.start();
  const errors: string[] = [];
  const opened: { context: BrowserContext; relay: Relay }[] = [];
  const open = async (): Promise<Window> => {
    const relay = await Relay.to(server.url);
    const context = await (await browser()).newContext();
    opened.push({ context, relay });
    const page = await context.newPage();
    page.on("pageerror", (error) => errors.push(error.stack ?? error.message));
    page.on("console", (line) => {
      // Chromium writes a line for each connection that fails.
      if (line.type() === "error" && !/WebSocket connection|ERR_/.test(line.text())) errors.push(line.text());
    });
    await page.goto(relay.url.replace("ws:", "http:"));
    return { page, relay };
  };
  try {
    await run(open);
    expect([errors, server.errors]).toEqual([[], ""]);
  } finally {
    for (const { context, relay } of opened) {
      await context.close();
      await relay.close();
    }
    await server.stop();
  }
}

export async function enterText(page: Page, label: string, text: string): Promise<void> {
  const field = page.getByLabel(label, { exact: true });
  await field.fill(text);
  await field.press("Enter");
}
