/** Runs the examples that are pages: windows of Chromium, with a cut network and a restart of the server. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "playwright-core";
import { expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { connect } from "../support/connect.js";
import { EXAMPLES, ExampleServer } from "../examples/server.js";
import { rejection } from "../support/turns.js";
import { end } from "./browser.js";
import { enterText, status, withWindows, type Window } from "./windows.js";

async function enter(open: () => Promise<Window>, name: string): Promise<Window> {
  const opened = await open();
  await opened.page.setViewportSize({ width: 1_000, height: 500 });
  await enterText(opened.page, "Your name", name);
  await status(opened.page, "online").waitFor();
  return opened;
}

const linesOf = (page: Page, state = "li"): Promise<string[]> => page.locator(`#lines ${state}`).allTextContents();
const say = (page: Page, text: string): Promise<void> => enterText(page, "Your line", text);

it("the example chat shows lines at once, in every window of a room, over a cut and a restart", async () => {
  const server = new ExampleServer("chat/server.js");
  await withWindows(server, async (open) => {
    const { page: ada, relay: network } = await enter(open, "Ada");
    const { page: bob } = await enter(open, "Bob");
    const bothShow = async (...texts: string[]): Promise<void> => {
      for (const page of [ada, bob]) await expect.poll(() => linesOf(page, ".said")).toEqual(texts);
    };
    const bothAre = async (): Promise<void> => {
      for (const page of [ada, bob])
        await expect.poll(() => page.locator("#here").textContent()).toMatch(/^Here: (Ada, Bob|Bob, Ada)$/);
    };
    await bothAre();
    await bob.getByLabel("Your line").pressSequentially("hel");
    await ada.getByText("Bob is typing").waitFor();
    await say(bob, "hello");
    await bothShow("Bob: hello");
    const { page: later } = await enter(open, "Cyd");
    await expect.poll(() => linesOf(later)).toEqual(["Bob: hello"]);
    await end(later);
    await bothAre();

    await bob.getByRole("button", { name: "Kitchen" }).click();
    await ada.getByText("Here: Ada", { exact: true }).waitFor();
    await say(bob, "in the kitchen");
    await expect.poll(() => linesOf(bob, ".said")).toEqual(["Bob: in the kitchen"]);
    await bob.getByRole("button", { name: "Garden" }).click();
    await bothShow("Bob: hello");

    await network.close();
    await status(ada, "offline").waitFor();
    await say(ada, "written without a network");
    await expect.poll(() => linesOf(ada, ".pending")).toEqual(["Ada: written without a network"]);
    await say(bob, "meanwhile");
    await network.open();
    await status(ada, "online").waitFor();
    const before = ["Bob: hello", "Bob: meanwhile", "Ada: written without a network"];
    await bothShow(...before);
    expect(await linesOf(ada, ".pending")).toEqual([]);

    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await status(page, "offline").waitFor();
    await say(bob, "written during the restart");
    await server.start();
    await bothShow(...before, "Bob: written during the restart");
    await bothAre();

    const { page: nameless } = await open();
    await enterText(nameless, "Your name", " ");
    await status(nameless, /authentication failed/).waitFor();
  });
});

it("the example chat says a line of one id once, in rooms that the caller has entered, and serves no other files", async () => {
  const server = new ExampleServer("chat/server.js");
  await withWindows(server, async () => {
    const peer = await connect(`${server.url.replace("http", "ws")}rpc`, { auth: "Eve" });
    const line = { room: "Workshop", id: "1", text: "twice" };
    expect(await rejection(peer.request("say", line))).toMatchObject({ code: 403 });
    await peer.request("enter", { room: "Workshop" });
    expect(await peer.request("say", line)).toEqual(await peer.request("say", line));
    expect(await peer.request("enter", { room: "Workshop" })).toMatchObject([{ text: "twice" }]);
    await peer.close();

    const statusOf = async (path: string): Promise<number> => (await fetch(`${server.url}${path}`)).status;
    for (const path of ["", "page.js", "style.css", "reciproc/index.js"]) expect(await statusOf(path)).toBe(200);
    for (const path of ["..%2fserver.js", "reciproc/..%2f..%2fpackage.json", "/etc/passwd", "server.js", "page.js/"])
      expect([path, await statusOf(path)]).toEqual([path, 404]);
  });
});

const here = (page: Page): Promise<string[]> => page.getByLabel("Here").getByRole("listitem").allTextContents();

/** Waits until a page shows the cursor of a name at a place. The path of the cursor begins at 1, 1, and has a border. */
function showsAt(page: Page, name: string, x: number, y: number): Promise<void> {
  const path = page.locator(".cursor path").and(page.locator(`:has(+ text:text-is("${name}"))`));
  const isThere = async (): Promise<boolean> => {
    const box = (await path.boundingBox()) ?? { x: NaN, y: NaN };
    return Math.hypot(box.x - x, box.y - y) < 4;
  };
  return expect.poll(isThere).toBe(true);
}

it("the example cursors shows the newest place of each pointer, and who is away, over a cut and a restart", async () => {
  const server = new ExampleServer("cursors/server.js");
  await withWindows(server, async (open) => {
    const { page: ada, relay: network } = await enter(open, "Ada");
    const { page: bob } = await enter(open, "Bob");
    for (const page of [ada, bob]) await expect.poll(() => here(page)).toEqual(["Ada", "Bob"]);
    expect(await bob.locator(".cursor:visible").count()).toBe(0);
    await ada.mouse.move(300, 200);
    await showsAt(bob, "Ada", 300, 200);
    expect(await ada.locator(".cursor:visible").count()).toBe(0);
    await bob.mouse.move(700, 100);
    await showsAt(ada, "Bob", 700, 100);

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

    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await status(page, "offline").waitFor();
    await server.start();
    for (const page of [ada, bob]) await status(page, "online").waitFor();
    for (const page of [ada, bob])
      await expect.poll(async () => new Set(await here(page))).toEqual(new Set(["Ada", "Bob"]));
    await ada.mouse.move(600, 400);
    await showsAt(bob, "Ada", 600, 400);
    // A place outside of the page is ignored.
    await ada.locator("body").dispatchEvent("pointermove", { clientX: -100, clientY: 100 });
    const { page: cyd } = await enter(open, "Cyd");
    await showsAt(cyd, "Ada", 600, 400);
    await expect.poll(() => here(bob)).toContain("Cyd");
    await end(cyd);
    await expect.poll(() => here(bob)).not.toContain("Cyd");
  });
});

it("the example language-server underlines, completes and explains, and sends its text again after a restart", async () => {
  const folder = join(EXAMPLES, "language-server");
  await ensurePackages(folder);
  const build = join(folder, "node_modules/vite/bin/vite.js");
  await promisify(execFile)(process.execPath, [build, "build"], { cwd: folder });
  const server = new ExampleServer("language-server/server.js");
  await withWindows(server, async (open) => {
    const { page } = await open();
    const warnings = (): Promise<string[]> => page.locator(".cm-lintRange").allTextContents();
    const write = async (text: string): Promise<void> => {
      await page.getByRole("textbox", { name: "Stylesheet" }).focus();
      await page.keyboard.press("ControlOrMeta+a");
      await page.keyboard.insertText(text);
    };
    const press = async (...keys: string[]): Promise<void> => {
      for (const key of keys) await page.keyboard.press(key);
    };
    await status(page, "connected").waitFor();
    await expect.poll(warnings).toEqual(["colr"]);
    await write("body {\n  color: red;\n}\n");
    await expect.poll(warnings).toEqual([]);

    await write("a { color: red }\nb { color: red }\n");
    // Two cursors, so that one update of the editor has two changes.
    await press("ControlOrMeta+Home", "ControlOrMeta+Alt+ArrowDown", ...Array<string>(4).fill("ArrowRight"));
    await press("Enter", "Delete");
    const lines = ["a { ", "  olor: red }", "b { ", "  olor: red }", ""];
    await expect.poll(() => page.locator(".cm-line").allTextContents()).toEqual(lines);
    await expect.poll(warnings).toEqual(["olor", "olor"]);
    await press("Escape");

    await write("body {\n  \n}\n");
    await press("ControlOrMeta+Home", "ArrowDown", "End");
    await page.keyboard.type("background-c");
    await page.locator(".cm-tooltip-autocomplete", { hasText: "background-color" }).waitFor();
    await press("Escape");
    await write("body {\n  color: red;\n}\n");
    const second = page.locator(".cm-line").nth(1);
    await second.hover({ position: { x: 40, y: 8 } });
    await page.locator(".cm-tooltip-hover", { hasText: "Sets the color" }).waitFor();

    expect(await server.stop()).toBe(0);
    await page.getByText("connecting again").waitFor();
    await write("body {\n  margn: 0;\n}\n");
    await server.start();
    await status(page, "connected").waitFor();
    await expect.poll(warnings).toEqual(["margn"]);
  });
});
