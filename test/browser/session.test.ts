/** A page in a real Chromium that is frozen, taken off the network, or loses its connection or server. */
import type { BrowserContext, Page } from "playwright-core";
import { afterEach, beforeEach, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { serve, type Server } from "../../src/node.js";
import { Relay } from "../support/relay.js";
import { browser } from "./browser.js";
import { launchTabs } from "./chromium.js";
import { openBarePage } from "./site.js";

declare global {
  /** The peer of the page, and its events. */
  var peer: AnyPeer;
  var emitted: string[];
  /** The notifications it received. */
  var pushed: unknown[];
}

let context: BrowserContext;
let page: Page;
let server: Server<any, any, any>;
let relay: Relay;
/** The params of the notifications to the server, in order. */
const heard: unknown[] = [];

const methods = {
  note: (params: unknown) => void heard.push(params),
  echo: (params: unknown) => (heard.push(params), params),
  slow: async (params: unknown) => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    return params;
  },
  never: () => new Promise(() => {}),
  tail: async function* ([to]: [number]) {
    for (let i = 0; i < to; i++) {
      yield i;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  },
};

beforeEach(async () => {
  heard.length = 0;
  context = await (await browser()).newContext();
  const opened = await openBarePage(context);
  page = opened.page;
  // The ports of the site, the server and the relay differ.
  server = await serve<any, any, any>({
    port: 0,
    origins: [`http://127.0.0.1:${opened.port}`],
    methods: methods as never,
  });
  relay = await Relay.to(server.url);
});
afterEach(async () => {
  await context.close();
  await relay.close();
  await server.close();
});

/** Connects the page, and waits until its session is one for both sides. */
async function connectPage(options: object = {}): Promise<void> {
  await page.evaluate(
    async ([url, given]) => {
      globalThis.emitted = [];
      globalThis.peer = await reciproc.connect(url, given);
      for (const name of ["suspend", "lost", "resume", "close"] as const) peer.on(name, () => void emitted.push(name));
      for (let i = 0; i < 2; i++) await peer.request("slow", [i]);
    },
    [relay.url, options] as const,
  );
}

/** Waits until the page's peer has emitted exactly these events. */
async function untilEmitted(...names: string[]): Promise<void> {
  await expect.poll(() => page.evaluate(() => emitted), { timeout: 15_000 }).toEqual(names);
}

it("resumes after its socket is cut, without loss, duplicates or reordering", async () => {
  await connectPage();
  const results = page.evaluate(async () => {
    const calls: Promise<unknown>[] = [];
    const items: unknown[] = [];
    const read = (async () => {
      for await (const item of peer.stream("tail", [60])) items.push(item);
    })();
    for (let i = 0; i < 300; i += 2) {
      calls.push(peer.request("echo", [i]));
      peer.notify("note", [i + 1]);
      if (i % 10 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    }
    const answers = await Promise.all(calls);
    await read;
    return { answers, items };
  });
  await expect.poll(() => heard.length).toBeGreaterThan(20);
  relay.cut();
  // Without a socket, the second cut would cut nothing.
  await untilEmitted("suspend", "resume");
  await expect.poll(() => heard.length).toBeGreaterThan(150);
  relay.cut();
  const { answers, items } = await results;
  expect(answers).toEqual(Array.from({ length: 150 }, (_, i) => [2 * i]));
  expect(items).toEqual(Array.from({ length: 60 }, (_, i) => i));
  expect(heard).toEqual(Array.from({ length: 300 }, (_, i) => [i]));
  await untilEmitted("suspend", "resume", "suspend", "resume");
  expect(server.stats()).toMatchObject({ peers: 1 });
});

it("gets the newest of each key and the count of what was dropped while it was away, and sends its own newest", async () => {
  await connectPage();
  await page.evaluate(() => {
    globalThis.pushed = [];
    peer.on("notification", (method, params) => void pushed.push([method, params]));
    peer.on("missed", ({ count }) => void pushed.push(["missed", count]));
  });
  const [serverPeer] = server.peers;
  await relay.close();
  await expect.poll(() => serverPeer!.state).toBe("suspended");
  await untilEmitted("suspend");
  for (let i = 1; i <= 500; i++) {
    server.peers.notify("moved", { ann: i }, { latest: "ann" });
    server.peers.notify("moved", { bob: i }, { volatile: true });
  }
  // More than a quarter of maxUnsentBytes.
  for (let i = 0; i < 30; i++) server.peers.notify("said", ["x".repeat(100_000)]);
  const { dropped } = serverPeer!.stats();
  expect(dropped).toBeGreaterThan(0);
  await page.evaluate(() => {
    for (let i = 1; i <= 500; i++) peer.notify("note", [i], { latest: "page" });
    peer.notify("note", ["volatile"], { volatile: true });
  });
  await relay.open();
  await untilEmitted("suspend", "resume");
  server.peers.notify("end");
  await expect.poll(() => page.evaluate(() => JSON.stringify(pushed.at(-1)))).toBe('["end",null]');
  const got = await page.evaluate(() => pushed as [string, unknown][]);
  expect(got[0]).toEqual(["missed", dropped]);
  expect(got.filter(([method]) => method === "moved")).toEqual([["moved", { ann: 500 }]]);
  expect(got.filter(([method]) => method === "said")).toHaveLength(30 - dropped);
  await expect.poll(() => heard.at(-1)).toEqual([500]);
  expect(heard.filter((params) => (params as unknown[]).includes("volatile"))).toEqual([]);
});

it("resumes each time the page is thawed, without a missed message", async () => {
  await using tabs = await launchTabs();
  ({ page } = await openBarePage(tabs.context));
  await connectPage();
  const cdp = await tabs.context.newCDPSession(page);
  const other = await tabs.context.newPage();
  const [served] = server.peers;
  await page.evaluate(() => {
    globalThis.pushed = [];
    peer.on("notification", (_method, params) => void pushed.push(params));
    document.addEventListener("freeze", () => emitted.push("freeze"));
  });
  /** In the background, where its timers and tasks stand still. */
  const freeze = async (): Promise<void> => {
    await other.bringToFront();
    await page.waitForFunction(() => document.hidden, undefined, { polling: 100 });
    const before = await page.evaluate(() => emitted.length);
    await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
    // The answer may come before the event, and a cut before the event would be noticed at once.
    await expect.poll(() => page.evaluate((length) => emitted[length], before)).toBe("freeze");
  };
  const thaw = async (): Promise<void> => {
    await cdp.send("Page.setWebLifecycleState", { state: "active" });
    await page.bringToFront();
  };
  // Chromium closes the socket of a frozen page when a message arrives.
  await freeze();
  for (let i = 0; i < 50; i++) served!.notify("pushed", [i]);
  await thaw();
  expect(await page.evaluate(() => peer.request("echo", [1]))).toEqual([1]);
  await freeze();
  relay.cut();
  await expect.poll(() => server.stats().suspended).toBe(1);
  for (let i = 50; i < 100; i++) served!.notify("pushed", [i]);
  // A frozen page does not reconnect.
  await new Promise((resolve) => setTimeout(resolve, 500));
  expect(server.stats().suspended).toBe(1);
  await thaw();
  expect(await page.evaluate(() => peer.request("echo", [2]))).toEqual([2]);
  await untilEmitted("freeze", "suspend", "resume", "freeze", "suspend", "resume");
  expect(await page.evaluate(() => pushed)).toEqual(Array.from({ length: 100 }, (_, i) => [i]));
  expect(server.stats()).toMatchObject({ peers: 1, suspended: 0 });
});

it("resumes at once when its network returns", async () => {
  await connectPage();
  await context.setOffline(true);
  // Taking a page offline keeps its sockets open, so the cable simulates a lost network.
  await relay.close();
  await untilEmitted("suspend");
  const call = page.evaluate(() => peer.request("echo", [3]));
  // Long enough that the next automatic attempt is seconds away.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  await relay.open();
  const accepted = relay.accepted;
  await context.setOffline(false);
  expect(await call).toEqual([3]);
  await untilEmitted("suspend", "resume");
  expect(relay.accepted - accepted).toBe(1);
});

it("leaves a frozen server within seconds after the page is shown again, without loss", async () => {
  await connectPage();
  relay.pause();
  const call = page.evaluate(() => {
    const answer = peer.request("echo", [4]);
    document.dispatchEvent(new Event("visibilitychange"));
    return answer;
  });
  // Without it, a minute.
  await untilEmitted("suspend");
  relay.mend();
  expect(await call).toEqual([4]);
  await untilEmitted("suspend", "resume");
  expect(heard).toEqual([[4]]);
});

it("may close with a code that a standard WebSocket cannot send", async () => {
  // The page reads nothing and sends no acks, so the queue exceeds its limit.
  await connectPage({ limits: { maxUnsentBytes: 50_000, maxReplyBytes: 50_000, maxMessageBytes: 20_000 } });
  relay.pause();
  const taken = await page.evaluate(async () => {
    let count = 0;
    while (count < 200 && peer.notify("note", [count, "x".repeat(5000)])) count++;
    return count;
  });
  expect(taken).toBeGreaterThan(5);
  expect(taken).toBeLessThan(200);
  relay.mend();
  await untilEmitted("suspend", "lost", "resume");
  expect(await page.evaluate(() => peer.request("slow", [7]))).toEqual([7]);
});
