/** A page of an example in Chromium, and its server, both with a network that the test cuts. */
import { join } from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import { browser } from "../browser/browser.js";
import { Relay } from "../client/relay.js";
import { Running } from "../readme/examples.js";

export const EXAMPLES = join(import.meta.dirname, "../../examples");
/** For what a page shows after it has connected again. Chromium delays a connection by some seconds after several that failed. */
export const PATIENCE = { timeout: 30_000 };

/** The server of an example. It can be stopped, and started again at the same port. */
export class ExampleServer {
  url = "";
  #running: Running | undefined;
  readonly #path: string;
  readonly #args: string[];
  #errors = "";

  constructor(path: string, args: string[] = []) {
    this.#path = join(EXAMPLES, path);
    this.#args = args;
  }

  /** Resolves when the server has printed its address. */
  async start(): Promise<void> {
    const port = this.url === "" ? "0" : new URL(this.url).port;
    this.#running = new Running(this.#path, this.#args, { PORT: port });
    this.url = /(?:http|ws):\S+/.exec(await this.#running.line(/(http|ws):/))![0];
  }

  /** Ends the server as a deployment does. Returns its exit code. */
  async stop(signal?: NodeJS.Signals): Promise<number | null> {
    const code = await this.#running!.stop(signal);
    this.#errors += this.#running!.errors;
    return code;
  }

  /** What the server has printed on its standard error. */
  get errors(): string {
    return this.#errors + (this.#running?.errors ?? "");
  }
}

/** Pages of one example, each over a relay of its own. */
export class Windows implements AsyncDisposable {
  readonly errors: string[] = [];
  readonly #opened: { context: BrowserContext; relay: Relay }[] = [];

  async open(url: string): Promise<{ page: Page; relay: Relay }> {
    const relay = await Relay.to(url);
    const context = await (await browser()).newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(PATIENCE.timeout);
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
