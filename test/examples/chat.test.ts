/** Runs examples/chat: two windows of Chromium, with a cut network and a restart of the server. */
import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Relay } from "../client/relay.js";
import { connect } from "../../src/node.js";
import { end } from "../browser/browser.js";
import { rejection } from "../support/turns.js";
import { ExampleServer, PATIENCE, Windows } from "./page.js";

const server = new ExampleServer("chat/server.js");
const windows = new Windows();
let ada: Page;
let bob: Page;
let network: Relay;

async function enter(name: string): Promise<{ page: Page; relay: Relay }> {
  const opened = await windows.open(server.url);
  await opened.page.getByLabel("Your name").fill(name);
  await opened.page.getByLabel("Your name").press("Enter");
  await shows(opened.page, "status", "online");
  return opened;
}

async function shows(page: Page, role: "status", text: string): Promise<void> {
  await page
    .getByRole(role)
    .and(page.getByText(text, { exact: true }))
    .waitFor();
}

const lines = (page: Page, state = "li"): Promise<string[]> => page.locator(`#lines ${state}`).allTextContents();

async function say(page: Page, text: string): Promise<void> {
  await page.getByLabel("Your line").fill(text);
  await page.getByLabel("Your line").press("Enter");
}

async function bothShow(...texts: string[]): Promise<void> {
  for (const page of [ada, bob]) await expect.poll(() => lines(page, ".said"), PATIENCE).toEqual(texts);
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

describe("the example chat", () => {
  it("shows who is here, and who types", async () => {
    for (const page of [ada, bob]) await page.getByText("Here: Ada, Bob").waitFor();
    await bob.getByLabel("Your line").pressSequentially("hel");
    await ada.getByText("Bob is typing").waitFor();
  });

  it("shows a line in both windows, and to those who enter later", async () => {
    await say(bob, "hello");
    await bothShow("Bob: hello");
    const { page } = await enter("Cyd");
    await expect.poll(() => lines(page)).toEqual(["Bob: hello"]);
    await end(page);
    for (const one of [ada, bob]) await expect.poll(() => one.locator("#here").textContent()).toBe("Here: Ada, Bob");
  });

  it("has rooms", async () => {
    await bob.getByRole("button", { name: "Kitchen" }).click();
    await ada.getByText("Here: Ada", { exact: true }).waitFor();
    await say(bob, "in the kitchen");
    await expect.poll(() => lines(bob, ".said")).toEqual(["Bob: in the kitchen"]);
    await bob.getByRole("button", { name: "Garden" }).click();
    await bothShow("Bob: hello");
  });

  it("shows a line at once while the network is cut, and sends it once afterwards", async () => {
    await network.close();
    await shows(ada, "status", "offline");
    await say(ada, "written without a network");
    await expect.poll(() => lines(ada, ".pending")).toEqual(["Ada: written without a network"]);
    await say(bob, "meanwhile");
    await network.open();
    await shows(ada, "status", "online");
    await bothShow("Bob: hello", "Bob: meanwhile", "Ada: written without a network");
    expect(await lines(ada, ".pending")).toEqual([]);
  });

  it("enters again after a restart, and sends the lines that were written meanwhile", async () => {
    const before = await lines(ada);
    expect(await server.stop()).toBe(0);
    for (const page of [ada, bob]) await shows(page, "status", "offline");
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
    await page
      .getByRole("status")
      .and(page.getByText(/authentication failed/))
      .waitFor();
  });

  it("serves the files of the page and of the package, and no others", async () => {
    const statusOf = async (path: string): Promise<number> => (await fetch(`${server.url}${path}`)).status;
    for (const path of ["", "page.js", "style.css", "reciproc/index.js"]) expect(await statusOf(path)).toBe(200);
    for (const path of [
      "..%2fserver.js",
      "%2e%2e/server.js",
      "reciproc/..%2f..%2fpackage.json",
      "/etc/passwd",
      "server.js",
      "page.js/",
    ])
      expect(await statusOf(path)).toBe(404);
  });

  it("reports no error, in the server and in the pages", () => {
    expect(windows.errors).toEqual([]);
    expect(server.errors).toBe("");
  });
});
