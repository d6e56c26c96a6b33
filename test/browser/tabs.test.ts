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
  var back: Promise<unknown>;
}

let site: Site;
let server: Server<any, any, any>;
let relay: Relay;
let context: BrowserContext;
const connections: AnyPeer[] = [];

beforeAll(async () => {
  const methods = {
    join: ({ room }: any, { peer }: any) => void server.topic(room).add(peer),
    echo: (params: any) => params,
  };
  server = await serve<any, any, any>({ port: 0, use: [tabs], methods });
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
  const observe = `globalThis.events = [];
    globalThis.tab = peer;
    for (const name of ["suspend", "lost", "resume", "close"]) peer.on(name, () => events.push(name));`;
  const { code: worker } = await codeOf("tabs-worker.js", "");
  const page = await codeOf("tabs-page.js", observe);
  page.code = page.code.replace("console.log(text)", "events.push(text)");
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

const eventsOf = (page: Page): Promise<string[]> =>
  page.evaluate(() => tab.request("echo").then(() => events.splice(0)));

it("three tabs have one connection, and each its own calls, topics and end; a lost socket and a lost worker concern all", async () => {
  const pages = [await openTab(), await openTab(), await openTab()];
  const [first, second, third] = pages as [Page, Page, Page];
  expect([connections.length, relay.lines.size, server.peers.size, server.topic("den").size]).toEqual([1, 1, 4, 3]);
  await second.evaluate(() => tab.request("join", { room: "attic" }));
  server.topics("den", "attic").notify("said", { text: "all" });
  server.topic("attic").notify("said", { text: "one" });
  for (const page of pages) await page.waitForFunction(() => events[0] === "all");
  expect(await Promise.all(pages.map(eventsOf))).toEqual([["all"], ["all", "one"], ["all"]]);
  await second.close();
  await expect.poll(() => [server.topic("den").size, server.topicNames]).toEqual([2, ["den"]]);
  for (const [act, events] of [
    [() => relay.cut(), ["suspend", "resume"]],
    [() => connections[0]!.notify("end"), ["suspend", "lost", "resume"]],
  ] as const) {
    for (const page of [first, third])
      await page.evaluate(() => void (globalThis.back = tab.waitFor("resume").then(() => tab.request("echo", [7]))));
    act();
    for (const page of [first, third])
      expect([await page.evaluate(() => back), await eventsOf(page)]).toEqual([[7], events]);
  }
  expect(connections.length).toBe(2);
  for (const page of [first, third]) await page.evaluate(() => tab.close(4003, "bye"));
  expect((await connections[1]!.closed).code).toBe(1000);
});

it("a tab without a SharedWorker connects itself", async () => {
  await context.addInitScript(() => delete (globalThis as { SharedWorker?: unknown }).SharedWorker);
  for (const page of [await openTab(), await openTab()]) expect(await eventsOf(page)).toEqual([]);
  expect(connections.length).toBe(2);
});
