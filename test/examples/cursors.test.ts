/** Runs examples/cursors: two windows of Chromium, with a cut network and a restart of the server. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Relay } from "../client/relay.js";
import { connect } from "../../src/node.js";
import { end } from "../browser/browser.js";
import { ExampleServer, PATIENCE, Windows } from "./page.js";

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
  await isOnline(opened.page, "online");
  return opened;
}

function isOnline(page: Page, text: string): Promise<void> {
  return page
    .getByRole("status")
    .and(page.getByText(text, { exact: true }))
    .waitFor();
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

async function showsAt(page: Page, name: string, x: number, y: number): Promise<void> {
  // The path begins at 1, 1, and has a border.
  await expect
    .poll(async () => (await placeOf(page, name)).map((value, i) => Math.abs(value - [x, y][i]!) < 3), PATIENCE)
    .toEqual([true, true]);
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

describe("the example cursors", () => {
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
    await isOnline(ada, "offline");
    await expect.poll(() => here(bob)).toEqual(["Ada (away)", "Bob"]);
    for (let x = 1; x <= 100; x++) await ada.mouse.move(x * 5, 300);
    for (let x = 1; x <= 100; x++) await bob.mouse.move(x * 4, 50);
    await network.open();
    await isOnline(ada, "online");
    await showsAt(bob, "Ada", 500, 300);
    await showsAt(ada, "Bob", 400, 50);
    await expect.poll(() => here(bob)).toEqual(["Ada", "Bob"]);
  });

  it("enters again after a restart, and shows those who leave no more", async () => {
    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await isOnline(page, "offline");
    await server.start();
    for (const page of [ada, bob]) await isOnline(page, "online");
    for (const page of [ada, bob])
      await expect.poll(async () => new Set(await here(page)), PATIENCE).toEqual(new Set(["Ada", "Bob"]));
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
