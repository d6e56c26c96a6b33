/** Tabs of Chromium that share one connection: the unchanged example of docs/API.md, with a server that the test observes. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { serve, type AnyPeer, type Server } from "../../src/node.js";
import { tabs } from "../../src/tabs/index.js";
import { clean, extract, folder } from "../readme/examples.js";
import { Relay } from "../support/relay.js";
import { bundle, startPage, type Site } from "./bundle.js";
import { browser } from "./browser.js";

declare global {
  var tab: AnyPeer;
  var events: string[];
  var texts: string[];
  var back: Promise<unknown>;
}

let site: Site;
let server: Server<any, any, any>;
let relay: Relay;
let context: BrowserContext;
const connections: AnyPeer[] = [];
const aborted: AnyPeer[] = [];

beforeAll(async () => {
  server = await serve<any, any, any>({
    port: 0,
    use: [tabs],
    methods: {
      join: ({ room }: { room: string }, { peer }: { peer: AnyPeer }) => void server.topic(room).add(peer),
      echo: (params: unknown) => params,
      hang: (_params: unknown, { peer, signal }: { peer: AnyPeer; signal: AbortSignal }) =>
        new Promise((resolve) => signal.addEventListener("abort", () => resolve(aborted.push(peer)))),
    },
  });
  server.on("peer", (peer) => void connections.push(peer));
  relay = await Relay.to(server.url);
  await extract("docs/API.md");
  /** Returns the code of an example that connects to the relay, and then runs more. */
  const codeOf = async (name: string, more: string): Promise<{ code: string; css: string }> => {
    const example = await readFile(join(folder, name), "utf8");
    const contents = example.replaceAll(
      '"wss://example.com/rpc"',
      `"${relay.url}", { methods: { end: () => close() } }`,
    );
    return bundle({ stdin: { contents: contents + more, resolveDir: folder } });
  };
  const observe = `
    globalThis.events = [];
    globalThis.tab = peer;
    for (const name of ["suspend", "lost", "resume", "close"]) peer.on(name, () => events.push(name));`;
  const page = await codeOf("tabs-page.js", observe);
  page.code = `globalThis.texts = [];\n${page.code.replace("console.log(text)", "texts.push(text)")}`;
  const { code: worker } = await codeOf("tabs-worker.js", "");
  site = await startPage(page, "", { "/tabs-worker.js": worker });
});
afterAll(async () => {
  site.close();
  await relay.close();
  await server.close();
  await clean();
});
beforeEach(async () => {
  connections.length = 0;
  context = await (await browser()).newContext();
  return () => context.close();
});

/** Opens a tab. Resolves when it has joined. */
async function openTab(): Promise<Page> {
  const page = await context.newPage();
  await page.goto(site.url);
  await page.waitForFunction(() => globalThis.tab !== undefined);
  return page;
}

/** Lets some tabs wait for `resume` and call. Resolves with the function that waits for the results. */
async function backIn(pages: readonly Page[]): Promise<() => Promise<unknown[]>> {
  for (const page of pages)
    await page.evaluate(() => void (globalThis.back = tab.waitFor("resume").then(() => tab.request("echo", [7]))));
  return () => Promise.all(pages.map((page) => page.evaluate(() => back)));
}

const eventsOf = (page: Page): Promise<string[]> => page.evaluate(() => events.splice(0));

it("three tabs have one connection, and each its own calls, topics and end; a lost socket and a lost worker concern all", async () => {
  const pages = [await openTab(), await openTab(), await openTab()] as const;
  const [first, second, third] = pages;
  expect([connections.length, relay.lines.size, server.peers.size, server.topic("den").size]).toEqual([1, 1, 4, 3]);
  const echoes = await Promise.all(pages.map((page, n) => page.evaluate((m) => tab.request("echo", [m]), n)));
  expect(echoes).toEqual([[0], [1], [2]]);
  await second.evaluate(() => tab.request("join", { room: "attic" }));
  server.topics("den", "attic").notify("said", { text: "to all" });
  server.topic("attic").notify("said", { text: "to one" });
  for (const page of pages) await page.waitForFunction(() => texts[0] === "to all");
  const heard = await Promise.all(pages.map((page) => page.evaluate(() => tab.request("echo").then(() => texts))));
  expect(heard).toEqual([["to all"], ["to all", "to one"], ["to all"]]);

  // A tab that is closed.
  const [attic] = [...server.topic("attic")];
  await second.evaluate(() => void tab.request("hang").catch(() => {}));
  await second.close();
  await expect.poll(() => [server.topic("den").size, server.topicNames, aborted]).toEqual([2, ["den"], [attic]]);

  // A lost socket: the call waits, and nothing is lost.
  const resumed = await backIn([first, third]);
  relay.cut();
  expect(await resumed()).toEqual([[7], [7]]);
  for (const page of [first, third]) expect(await eventsOf(page)).toEqual(["suspend", "resume"]);
  expect([connections.length, server.topic("den").size]).toEqual([1, 2]);

  // A worker that ends.
  const restarted = await backIn([first, third]);
  connections[0]!.notify("end");
  expect(await restarted()).toEqual([[7], [7]]);
  for (const page of [first, third]) expect(await eventsOf(page)).toEqual(["lost", "resume"]);
  expect(connections.length).toBe(2);
  // The server closes a tab.
  const joined = first.evaluate(() => tab.request("join", { room: "cellar" }).then(() => tab.closed));
  await expect.poll(() => server.topic("cellar").size).toBe(1);
  await [...server.topic("cellar")][0]!.close(4002, "enough");
  expect([await joined, await eventsOf(third)]).toEqual([{ code: 4002, reason: "enough" }, []]);
  // The last tab ends the connection.
  await third.evaluate(() => tab.close(4003, "bye"));
  expect((await connections[1]!.closed).code).toBe(1000);
});

it("a tab without a SharedWorker connects itself", async () => {
  await context.addInitScript(() => delete (globalThis as { SharedWorker?: unknown }).SharedWorker);
  for (const page of [await openTab(), await openTab()])
    expect(await page.evaluate(() => tab.request("echo", [1]))).toEqual([1]);
  expect(connections.length).toBe(2);
});
