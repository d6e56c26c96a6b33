/** The demo: its server in a process of its own, and its page in the browser of the test file. */
import { fileURLToPath } from "node:url";
import type { Frame, Page } from "playwright-core";
import { expect } from "vitest";
import type { AnyPeer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { Running } from "../readme/examples.js";
import { Relay } from "../support/relay.js";
import { newPage } from "./browser.js";

const SERVER = fileURLToPath(new URL("../../demo/.build/server.js", import.meta.url));

export type Demo = Awaited<ReturnType<typeof startDemo>>;

/** A person at the board, and the errors of their page. */
export interface Visitor {
  page: Page;
  complaints: string[];
  /** The options of its browser context, if they differ from the default. */
  options: object | undefined;
}

/** Starts the demo's server, in its folder or in a copy, and reads its address from what it prints. */
export async function startDemo(env: Record<string, string | undefined> = {}, server = SERVER) {
  // Without a file, each demo begins with an empty board.
  const running = new Running(server, [], { PORT: "0", BOARD_FILE: "", ...env });
  const [, url] = /^reciproc demo: (http:\S+)$/.exec(await running.line(/./))!;
  let isKilled = false;
  /** Ends the process, and returns its exit code, or `null` if a signal killed it. */
  const kill = (signal: "SIGINT" | "SIGTERM" | "SIGKILL"): Promise<number | null> => {
    isKilled = true;
    return running.stop(signal);
  };
  return {
    url: url!,
    pid: running.pid,
    printed: () => running.lines.join("\n"),
    kill,
    async [Symbol.asyncDispose]() {
      if (isKilled) return;
      const code = await kill("SIGTERM");
      if (code !== 0) throw new Error(`the demo ended with ${code}:\n${running.errors}`);
    },
  };
}

const VIEWPORT = { width: 1280, height: 800 };
/** The options of a visitor with a phone. */
export const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };

/** The pages that visitors have left, for the next ones: a new page needs twice the CPU time. Another port finds nothing stored. */
const leftPages: Page[] = [];

/** Ends the visit. Pages that a test has closed or given options are not visited again. Call it while the demo runs. */
export async function leave(...visitors: Visitor[]): Promise<void> {
  await Promise.all(
    visitors.map(async ({ page, options }) => {
      if (page.isClosed()) return;
      if (options !== undefined || !page.url().startsWith("http:")) return page.context().close();
      page.removeAllListeners();
      await page.mouse.move(0, 0);
      await page.setViewportSize(VIEWPORT);
      // A file of the same site: Chromium would start another process for any other.
      await page.goto(new URL("/icon.svg", page.url()).href).then(
        () => void leftPages.push(page),
        // The demo has ended.
        () => page.context().close(),
      );
    }),
  );
}

/** Opens the page in a browser context of its own, and waits until it has joined. */
export async function visit(url: string, name: string, options?: object): Promise<Visitor> {
  const page = (options === undefined && leftPages.pop()) || (await newPage({ viewport: VIEWPORT, ...options }));
  const complaints: string[] = [];
  page.on("pageerror", (error) => complaints.push(String(error)));
  page.on("console", (message) => {
    // Chromium requests this file when `leave` opens an icon. Its 404 may be reported after the next visit has begun.
    if (message.location().url.endsWith("/favicon.ico")) return;
    if (message.type() === "error" || message.type() === "warning") complaints.push(message.text());
  });
  page.on("response", (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()} ${response.url()}`);
  });
  await page.goto(url);
  await live(page);
  const field = page.getByLabel("You are");
  await field.fill(name);
  await field.press("Enter");
  await page.locator(".person", { hasText: `${name} (you)` }).waitFor({ state: "attached" });
  return { page, complaints, options };
}

/** A vote that only its answers end: neither its time, nor pings that a busy page does not answer. A cut lasts as long. */
export const LONG_VOTE = { env: { VOTE_TIMEOUT_MS: "600000", CUT_MS: "600000" } };

type VisitedDemo = Demo & { invite(name: string, options?: object): Promise<Visitor> };

export interface Visit {
  env?: Record<string, string>;
  open?: typeof visit;
  /** Whether the pages may report errors, as they do when their server ends. Default false. */
  mayComplain?: boolean;
}

/** Starts a demo that two people visit. At the end they leave, and their pages must have had no errors. */
export async function withTwo(
  run: (ada: Visitor, bo: Visitor, demo: VisitedDemo) => Promise<void>,
  how: Visit = {},
): Promise<void> {
  await withDemo(async (demo) => {
    const [ada, bo] = await Promise.all([demo.invite("Ada"), demo.invite("Bo")]);
    await run(ada, bo, demo);
  }, how);
}

export async function withOne(run: (ada: Visitor, demo: VisitedDemo) => Promise<void>, how: Visit = {}): Promise<void> {
  await withDemo(async (demo) => run(await demo.invite("Ada"), demo), how);
}

export async function withDemo(
  run: (demo: VisitedDemo) => Promise<void>,
  { env, open = visit, mayComplain = false }: Visit = {},
): Promise<void> {
  await using demo = await startDemo(env);
  const visitors: Visitor[] = [];
  const invite: VisitedDemo["invite"] = async (name, options) => {
    const visitor = await open(demo.url, name, options);
    visitors.push(visitor);
    return visitor;
  };
  try {
    await run({ ...demo, invite });
    if (!mayComplain) expect(visitors.flatMap(({ complaints }) => complaints)).toEqual([]);
  } finally {
    await leave(...visitors);
  }
}

/** Starts a demo that Ada visits by a network of her own, which the test cuts and mends. The page then connects at once. */
export async function withCuttable(
  run: (ada: Visitor & Record<"cut" | "mend", () => Promise<void>>, demo: VisitedDemo) => Promise<void>,
  { options, open = visit, ...how }: Visit & { options?: object } = {},
): Promise<void> {
  await withDemo(
    async (demo) => {
      await using relay = await Relay.to(demo.url);
      const visitor = await open(relay.url.replace("ws:", "http:"), "Ada", options);
      const { page } = visitor;
      await note(page);
      /** Waits until the page has seen it. */
      const cut = async (): Promise<void> => {
        const before = await said(page);
        relay.target = () => undefined;
        relay.cut();
        await expect.poll(() => said(page)).toEqual([...before, "Reconnecting"]);
      };
      const mend = async (): Promise<void> => {
        relay.target = demo.url;
        await page.evaluate(() => dispatchEvent(new Event("online")));
      };
      await run({ ...visitor, cut, mend }, demo);
      await leave(visitor);
    },
    { open, ...how },
  );
}

/** Starts to record each text that an element of the page shows, by default the connection states. */
export async function note(page: Page | Frame, selector = "#status"): Promise<void> {
  await page.locator(selector).evaluate((element: HTMLElement) => {
    const words: string[] = [];
    const write = (): void => {
      words.push(element.textContent);
      element.dataset["said"] = JSON.stringify(words);
    };
    new MutationObserver(write).observe(element, { childList: true });
  });
}

/** Returns the texts that the element has shown since `note`. */
export function said(page: Page | Frame, selector = "#status"): Promise<string[]> {
  return page
    .locator(selector)
    .evaluate((element: HTMLElement) => JSON.parse(element.dataset["said"] ?? "[]") as string[]);
}

/** Joins the board without a browser, by a connection like that of a page. `methods` replace the default ones. */
export async function enter(url: string, name: string, methods: object = {}, page = ""): Promise<AnyPeer> {
  const ignored = ["welcome", "people", "stats", "said", "drew", "erased", "decided"].map((method) => [
    method,
    () => {},
  ]);
  const peer = await connect(`${url.replace("http", "ws")}/rpc?page=${page}`, {
    methods: { ping: () => {}, ...Object.fromEntries(ignored), ...methods },
  });
  await peer.request("join", { name, color: "red" });
  return peer;
}

export function live(page: Page): Promise<void> {
  return page.getByText("Live", { exact: true }).waitFor();
}

export function strokes(page: Page, count: number): Promise<void> {
  const name = `Shared drawing, ${count} ${count === 1 ? "stroke" : "strokes"}`;
  return page.getByRole("img", { name, exact: true }).waitFor();
}

/** Waits until the page has shown a notice. A notice is visible for some seconds, and its text stays until the next one. */
export function noticed(page: Page, text: string): Promise<void> {
  return page.locator("#notice", { hasText: text }).waitFor({ state: "attached" });
}

export async function say(page: Page | Frame, text: string): Promise<void> {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.getByLabel("Message", { exact: true }).press("Enter");
}

export async function draw(page: Page, points: [x: number, y: number][]): Promise<void> {
  const { x, y, width, height } = (await page.locator("#canvas").boundingBox())!;
  for (const [i, point] of points.entries()) {
    await page.mouse.move(x + point[0] * width, y + point[1] * height, { steps: i === 0 ? 1 : 6 });
    if (i === 0) await page.mouse.down();
  }
  await page.mouse.up();
}

/** Returns the board as a grid of `X` for drawn and `.` for empty squares. */
export function picture(page: Page): Promise<string> {
  return page.evaluate(async () => {
    await new Promise(requestAnimationFrame);
    const { width, height } = document.querySelector("canvas")!;
    // The browser warns of pages that read their own canvas often.
    const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true })!;
    copy.drawImage(document.querySelector("canvas")!, 0, 0);
    const { data } = copy.getImageData(0, 0, width, height);
    const [columns, rows] = [32, 24];
    const grid = Array.from({ length: rows }, () => Array.from({ length: columns }, () => "."));
    for (let i = 3; i < data.length; i += 4) {
      if (data[i]! < 128) continue;
      const at = (i - 3) / 4;
      grid[Math.floor(((at / width) | 0) * (rows / height))]![Math.floor((at % width) * (columns / width))] = "X";
    }
    return grid.map((row) => row.join("")).join("\n");
  });
}

export function pixels(page: Page): Promise<string> {
  return page.evaluate(async () => {
    await new Promise(requestAnimationFrame);
    return document.querySelector("canvas")!.toDataURL();
  });
}
