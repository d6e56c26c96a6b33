/** The Chromium that the tests of a file share. */
import type { Browser, BrowserContextOptions, Disposable, Page } from "playwright-core";
import { afterAll } from "vitest";
import { launch } from "./chromium.js";

let launched: Promise<Browser> | undefined;
afterAll(async () => (await launched)?.close());

/** Returns the browser of the test file, which starts at the first call. */
export function browser(): Promise<Browser> {
  launched ??= launch();
  return launched;
}

export async function newPage(options?: BrowserContextOptions): Promise<Page> {
  return (await (await browser()).newContext(options)).newPage();
}

/** Opens a page in a context of its own, by the name of this machine. A dialog is answered with `name`. */
export async function openPage(url: string, name = ""): Promise<Page> {
  const page = await newPage();
  page.on("dialog", (dialog) => void dialog.accept(name));
  await page.goto(url.replace("127.0.0.1", "localhost"), { waitUntil: "commit" });
  return page;
}

/** Takes each text that a WebSocket of a page sends. Only what it passes to `send` is sent. */
export type Sending = (text: string, send: (text: string) => void, webSocket: WebSocket) => void;

/** Gives the next documents of a page, until it is disposed, WebSockets whose texts go through what `make` returns in the page. */
export function interceptSent<A>(page: Page, make: (arg: A) => Sending, arg?: A): Promise<Disposable> {
  return page.addInitScript(`{
    const sending = (${String(make)})(${JSON.stringify(arg)});
    globalThis.WebSocket = class extends WebSocket {
      send(text) {
        sending(text, (sent) => super.send(sent), this);
      }
    };
  }`);
}

/** Closes a page so that its session ends. Chromium may kill a page that is closed before it has sent its close. */
export async function end(page: Page): Promise<void> {
  await page.goto("about:blank");
  await page.context().close();
}
