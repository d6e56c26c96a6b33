/** Runs the examples that are pages: windows of Chromium, with a cut network and a restart of the server. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../../src/node.js";
import { EXAMPLES, ExampleServer } from "../examples/server.js";
import type { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import { end } from "./browser.js";
import { status, Windows } from "./windows.js";

const linesOf = (page: Page, state = "li"): Promise<string[]> => page.locator(`#lines ${state}`).allTextContents();

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel("Your line").fill(text);
  await page.getByLabel("Your line").press("Enter");
}

const here = (page: Page): Promise<string[]> => page.getByLabel("Here").getByRole("listitem").allTextContents();

/** Returns where a page shows the cursor of a name, in its pixels. */
async function placeOf(page: Page, name: string): Promise<number[]> {
  const { x = NaN, y = NaN } =
    (await page
      .locator(".cursor path")
      .and(page.locator(`:has(+ text:text-is("${name}"))`))
      .boundingBox()) ?? {};
  return [Math.round(x), Math.round(y)];
}

const statusOf = async (url: string): Promise<number> => (await fetch(url)).status;

async function showsAt(page: Page, name: string, x: number, y: number): Promise<void> {
  // The path begins at 1, 1, and has a border.
  await expect
    .poll(async () => (await placeOf(page, name)).map((value, i) => Math.abs(value - [x, y][i]!) < 3))
    .toEqual([true, true]);
}

describe("the example chat", () => {
  const server = new ExampleServer("chat/server.js");
  const windows = new Windows();
  let ada: Page;
  let bob: Page;
  let network: Relay;

  async function enter(name: string): Promise<{ page: Page; relay: Relay }> {
    const opened = await windows.open(server.url);
    await opened.page.getByLabel("Your name").fill(name);
    await opened.page.getByLabel("Your name").press("Enter");
    await status(opened.page, "online").waitFor();
    return opened;
  }

  async function bothShow(...texts: string[]): Promise<void> {
    for (const page of [ada, bob]) await expect.poll(() => linesOf(page, ".said")).toEqual(texts);
  }

  beforeAll(async () => {
    await server.start();
    ({ page: ada, relay: network } = await enter("Ada"));
    ({ page: bob } = await enter("Bob"));
  });
  afterAll(async () => {
    await windows[Symbol.asyncDispose]();
    await server.stop();
  });

  it("shows who is here, and who types", async () => {
    for (const page of [ada, bob]) await page.getByText("Here: Ada, Bob").waitFor();
    await bob.getByLabel("Your line").pressSequentially("hel");
    await ada.getByText("Bob is typing").waitFor();
  });

  it("shows a line in both windows, and to those who enter later", async () => {
    await say(bob, "hello");
    await bothShow("Bob: hello");
    const { page } = await enter("Cyd");
    await expect.poll(() => linesOf(page)).toEqual(["Bob: hello"]);
    await end(page);
    for (const one of [ada, bob]) await expect.poll(() => one.locator("#here").textContent()).toBe("Here: Ada, Bob");
  });

  it("has rooms", async () => {
    await bob.getByRole("button", { name: "Kitchen" }).click();
    await ada.getByText("Here: Ada", { exact: true }).waitFor();
    await say(bob, "in the kitchen");
    await expect.poll(() => linesOf(bob, ".said")).toEqual(["Bob: in the kitchen"]);
    await bob.getByRole("button", { name: "Garden" }).click();
    await bothShow("Bob: hello");
  });

  it("shows a line at once while the network is cut, and sends it once afterwards", async () => {
    await network.close();
    await status(ada, "offline").waitFor();
    await say(ada, "written without a network");
    await expect.poll(() => linesOf(ada, ".pending")).toEqual(["Ada: written without a network"]);
    await say(bob, "meanwhile");
    await network.open();
    await status(ada, "online").waitFor();
    await bothShow("Bob: hello", "Bob: meanwhile", "Ada: written without a network");
    expect(await linesOf(ada, ".pending")).toEqual([]);
  });

  it("enters again after a restart, and sends the lines that were written meanwhile", async () => {
    const before = await linesOf(ada);
    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await status(page, "offline").waitFor();
    await say(bob, "written during the restart");
    await server.start();
    await bothShow(...before, "Bob: written during the restart");
    for (const page of [ada, bob])
      await expect.poll(() => page.locator("#here").textContent()).toMatch(/Ada.*Bob|Bob.*Ada/);
  });

  it("says a line of one id once, and nothing in a room that the caller has not entered", async () => {
    const peer = await connect(`${server.url.replace("http", "ws")}rpc`, { auth: "Eve" });
    const line = { room: "Workshop", id: "1", text: "twice" };
    expect(await rejection(peer.request("say", line))).toMatchObject({ code: 403 });
    await peer.request("enter", { room: "Workshop" });
    expect(await peer.request("say", line)).toEqual(await peer.request("say", line));
    expect(await peer.request("enter", { room: "Workshop" })).toMatchObject([{ text: "twice" }]);
    await peer.close();
  });

  it("shows why a name is refused", async () => {
    const { page } = await windows.open(server.url);
    await page.getByLabel("Your name").fill(" ");
    await page.getByLabel("Your name").press("Enter");
    await status(page, /authentication failed/).waitFor();
  });

  it("serves the files of the page and of the package, and no others", async () => {
    for (const path of ["", "page.js", "style.css", "reciproc/index.js"])
      expect(await statusOf(`${server.url}${path}`)).toBe(200);
    for (const path of [
      "..%2fserver.js",
      "%2e%2e/server.js",
      "reciproc/..%2f..%2fpackage.json",
      "/etc/passwd",
      "server.js",
      "page.js/",
    ])
      expect(await statusOf(`${server.url}${path}`)).toBe(404);
  });

  it("reports no error, in the server and in the pages", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});

describe("the example cursors", () => {
  const server = new ExampleServer("cursors/server.js");
  const windows = new Windows();
  let ada: Page;
  let bob: Page;
  let network: Relay;

  async function enter(name: string): Promise<{ page: Page; relay: Relay }> {
    const opened = await windows.open(server.url);
    await opened.page.setViewportSize({ width: 1_000, height: 500 });
    await opened.page.getByLabel("Your name").fill(name);
    await opened.page.getByLabel("Your name").press("Enter");
    await status(opened.page, "online").waitFor();
    return opened;
  }

  beforeAll(async () => {
    await server.start();
    ({ page: ada, relay: network } = await enter("Ada"));
    ({ page: bob } = await enter("Bob"));
  });
  afterAll(async () => {
    await windows[Symbol.asyncDispose]();
    await server.stop();
  });

  it("shows who is here, and no cursor before the first move", async () => {
    for (const page of [ada, bob]) await expect.poll(() => here(page)).toEqual(["Ada", "Bob"]);
    expect(await bob.locator(".cursor:visible").count()).toBe(0);
  });

  it("shows the pointer of one window in the other, and not in its own", async () => {
    await ada.mouse.move(300, 200);
    await showsAt(bob, "Ada", 300, 200);
    expect(await ada.locator(".cursor:visible").count()).toBe(0);
    await bob.mouse.move(700, 100);
    await showsAt(ada, "Bob", 700, 100);
  });

  it("shows those who are away, and the newest place when they are here again", async () => {
    await network.close();
    await status(ada, "offline").waitFor();
    await expect.poll(() => here(bob)).toEqual(["Ada (away)", "Bob"]);
    for (let x = 1; x <= 100; x++) await ada.mouse.move(x * 5, 300);
    for (let x = 1; x <= 100; x++) await bob.mouse.move(x * 4, 50);
    await network.open();
    await status(ada, "online").waitFor();
    await showsAt(bob, "Ada", 500, 300);
    await showsAt(ada, "Bob", 400, 50);
    await expect.poll(() => here(bob)).toEqual(["Ada", "Bob"]);
  });

  it("enters again after a restart, and shows those who leave no more", async () => {
    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await status(page, "offline").waitFor();
    await server.start();
    for (const page of [ada, bob]) await status(page, "online").waitFor();
    for (const page of [ada, bob])
      await expect.poll(async () => new Set(await here(page))).toEqual(new Set(["Ada", "Bob"]));
    await ada.mouse.move(600, 400);
    await showsAt(bob, "Ada", 600, 400);
    const { page: cyd } = await enter("Cyd");
    await showsAt(cyd, "Ada", 600, 400);
    await expect.poll(() => here(bob)).toContain("Cyd");
    await end(cyd);
    await expect.poll(() => here(bob)).not.toContain("Cyd");
  });

  it("ignores a place that is none", async () => {
    let cursors: { id: string; x?: number }[] = [];
    const peer = await connect(`${server.url.replace("http", "ws")}rpc`, {
      auth: "Eve",
      methods: { here: (params: { cursors: typeof cursors }) => void (cursors = params.cursors) },
    });
    const id = await peer.request("enter");
    const own = async (): Promise<object> => {
      await peer.request("enter"); // the list arrives before the response
      return cursors.find((cursor) => cursor.id === id)!;
    };
    for (const place of [{ x: 2, y: 0 }, { x: "0", y: 0 }, {}]) peer.notify("moved", place);
    expect(await own()).not.toHaveProperty("x");
    peer.notify("moved", { x: 0.5, y: 0 });
    expect(await own()).toMatchObject({ name: "Eve", x: 0.5, y: 0 });
    await peer.close();
  });

  it("reports no error, in the server and in the pages", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});

describe("the example language-server", () => {
  const folder = join(EXAMPLES, "language-server");
  const server = new ExampleServer("language-server/server.js");
  const windows = new Windows();
  let page: Page;

  const warnings = (): Promise<string[]> => page.locator(".cm-lintRange").allTextContents();

  /** Writes a text into the editor, in place of the one that it has. */
  async function write(text: string): Promise<void> {
    await page.getByRole("textbox", { name: "Stylesheet" }).focus();
    await page.keyboard.press("ControlOrMeta+a");
    await page.keyboard.insertText(text);
  }

  beforeAll(async () => {
    await ensurePackages(folder);
    const build = join(folder, "node_modules/vite/bin/vite.js");
    await promisify(execFile)(process.execPath, [build, "build"], { cwd: folder });
    await server.start();
    ({ page } = await windows.open(server.url));
  });
  afterAll(async () => {
    await windows[Symbol.asyncDispose]();
    await server.stop();
  });

  it("shows what the language server finds, and no more when it is corrected", async () => {
    await status(page, "connected").waitFor();
    await expect.poll(warnings).toEqual(["colr"]);
    await write("body {\n  color: red;\n}\n");
    await expect.poll(warnings).toEqual([]);
  });

  it("sends several changes at once as one change of the text", async () => {
    await write("a { color: red }\nb { color: red }\n");
    // Two cursors, so that one update of the editor has two changes.
    await page.keyboard.press("ControlOrMeta+Home");
    await page.keyboard.press("ControlOrMeta+Alt+ArrowDown");
    for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await page.keyboard.press("Delete");
    const lines = ["a { ", "  olor: red }", "b { ", "  olor: red }", ""];
    await expect.poll(() => page.locator(".cm-line").allTextContents()).toEqual(lines);
    await expect.poll(warnings).toEqual(["olor", "olor"]);
    await page.keyboard.press("Escape");
  });

  it("completes a property, and explains it", async () => {
    await write("body {\n  \n}\n");
    await page.keyboard.press("ControlOrMeta+Home");
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("End");
    await page.keyboard.type("background-c");
    await page.locator(".cm-tooltip-autocomplete", { hasText: "background-color" }).waitFor();
    await page.keyboard.press("Escape");
    await write("body {\n  color: red;\n}\n");
    await page
      .locator(".cm-line")
      .nth(1)
      .hover({ position: { x: 40, y: 8 } });
    await page.locator(".cm-tooltip-hover", { hasText: "Sets the color" }).waitFor();
  });

  it("sends the whole text to a new language server after a restart", async () => {
    expect(await server.stop()).toBe(0);
    await page.getByText("connecting again").waitFor();
    await write("body {\n  margn: 0;\n}\n");
    await server.start();
    await status(page, "connected").waitFor();
    await expect.poll(warnings).toEqual(["margn"]);
  });

  it("reports no error, in the server and in the page", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});
