/** What the provider and the hooks promise, in Chromium. The suite runs with each version of React. */
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { ensurePackages } from "../../scripts/packages.js";
import { ErrorCode, RpcError, serve, type Server } from "../../src/node.js";
import { browser, PATIENCE } from "../browser/browser.js";
import { Relay } from "../client/relay.js";
import { portOf } from "../support/network.js";
import type { ClientApi, ServerApi, Shown, Visitor } from "./api.js";
import { bundle, type ReactVersion } from "./bundle.js";
import { startSite, type Site } from "./site.js";

type Auth = { name: string };
type BoardServer = Server<ServerApi, ClientApi, Auth>;

/** The streams that the servers of a test have begun, and whether each has ended. */
let streams: { from: number; to: number; hasEnded: boolean }[];
/** The calls of `topic/join` and `topic/leave`, in order. */
let topicCalls: string[];
/** What else the notification says about a peer that was sent away. */
let leaving: WeakMap<object, { notice: string }>;
/** Whether each call of `wait` was cancelled. */
let waits: boolean[];
let server: BoardServer;
let relay: Relay;
let site: Site;
let page: Page;

const visitorOf = (peer: { id: string; auth: Auth }): Visitor => ({ id: peer.id, name: peer.auth.name });

/** Starts a server. The name of a visitor is in the address. */
async function start(port: number, origin: string): Promise<BoardServer> {
  const started = await serve<ServerApi, ClientApi, Auth>({
    port,
    origins: [origin],
    authenticate: ({ url }) => {
      const name = new URL(url!, "ws://localhost").searchParams.get("name") ?? "Ada";
      return name === "Mallory" ? null : { name };
    },
    methods: {
      "topic/join"({ topic: name }, { peer, server: own }) {
        topicCalls.push(`join ${name}`);
        if (name === "secret") throw new RpcError(403, "the topic is secret");
        return Array.from(own.topic(name).add(peer), visitorOf);
      },
      "topic/leave"({ topic: name }, { peer, server: own }) {
        topicCalls.push(`leave ${name}`);
        own.topic(name).delete(peer);
      },
      sendAway({ topic: name, visitor, notice }, { server: own }) {
        const members = own.topic(name);
        for (const peer of members) {
          if (peer.auth.name !== visitor) continue;
          leaving.set(peer, { notice });
          members.delete(peer);
        }
      },
      async *count({ from, to }, { signal }) {
        const stream = { from, to, hasEnded: false };
        streams.push(stream);
        try {
          for (let n = from; n <= to; n++) yield n;
          // A negative end: the stream waits until its reader stops.
          if (to < 0) yield from;
          if (to < 0) await new Promise((resolve) => signal.addEventListener("abort", resolve));
        } finally {
          stream.hasEnded = true;
        }
      },
      // oxlint-disable-next-line require-yield
      async *fail() {
        throw new RpcError(410, "no stream today");
      },
      echo: ([value]) => value,
      numbers: () => [1, 2],
      noteMe: ([value], { peer }) => void peer.notify("note", [value]),
      wait: (_params, { signal }) =>
        new Promise((resolve) => {
          const at = waits.push(false) - 1;
          signal.addEventListener("abort", () => resolve((waits[at] = true)));
        }),
      askMe: ([question], { peer }) => peer.request("ask", [question]).catch(({ code }: RpcError) => `code ${code}`),
    },
  });
  for (const name of ["den", "attic"]) {
    const topic = started.topic(name);
    topic.on("join", (peer) => {
      topic.notify("topic/joined", { topic: name, member: visitorOf(peer) }, { except: peer });
    });
    topic.on("leave", (peer) => {
      topic.notify("topic/left", { topic: name, id: peer.id, ...leaving.get(peer) });
    });
  }
  return started;
}

const show = (shown: Shown): Promise<void> => page.evaluate((given) => globalThis.show(given), shown);
const text = (id: string): Promise<string | null> => page.locator(`#${id}`).textContent();
async function untilText(id: string, expected: string): Promise<void> {
  await expect.poll(() => text(id), PATIENCE).toBe(expected);
}
const ask = (): Promise<string> => page.evaluate(() => peer.request("askMe", ["tea?"]));
const opened = (): number => server.stats().opened;
const notes = (): Promise<unknown[]> => page.evaluate(() => heard.map(({ params }) => params));

/** Renders the page, and waits until its peer is open. */
async function showOpen(shown: Shown): Promise<void> {
  await show(shown);
  await untilText("status", "open");
}

/** Ends the server, and starts another on its port. */
async function restartServer(): Promise<void> {
  const port = portOf(server.url);
  await server.close();
  server = await start(port, site.url);
}

/** Opens another page, which shows its members. */
async function openOther(shown: Shown): Promise<Page> {
  const other = await page.context().newPage();
  await other.goto(site.url);
  await other.waitForFunction(() => document.title !== "");
  await other.evaluate((given) => globalThis.show(given), shown);
  return other;
}

/** Runs the suite with a version of React. `more` adds tests of what only this version has. */
export function itWorksWith(version: ReactVersion, more: () => void = () => {}): void {
  beforeAll(async () => {
    await ensurePackages(import.meta.dirname);
    site = await startSite(await bundle('import "./page.tsx";', import.meta.dirname, version));
  }, 600_000);
  afterAll(() => site.close());

  beforeEach(async () => {
    streams = [];
    topicCalls = [];
    waits = [];
    leaving = new WeakMap();
    server = await start(0, site.url);
    relay = await Relay.to(server.url);
    page = await (await (await browser()).newContext()).newPage();
    await page.goto(site.url);
    await page.waitForFunction(() => document.title !== "");
    expect(await page.title()).toMatch(new RegExp(`^React ${version}\\.`));
  });
  afterEach(async () => {
    await page.context().close();
    await relay.close();
    await server.close();
  });

  describe("the provider", () => {
    it("opens one connection in StrictMode, gives every render the same peer, and closes it when it is unmounted", async () => {
      await showOpen({ url: server.url });
      expect(await page.evaluate(() => peer.request("echo", [7]))).toBe(7);
      expect(await page.evaluate(() => peers.size)).toBe(1);
      expect(opened()).toBe(1);
      await show({});
      await expect.poll(() => server.stats().closed).toEqual({ 1000: 1 });
      expect(opened()).toBe(1);
    });

    it("opens one connection without StrictMode", async () => {
      await showOpen({ url: server.url, strict: false });
      expect(opened()).toBe(1);
    });

    it("opens a new peer when it is mounted again", async () => {
      await showOpen({ url: server.url });
      await show({});
      await expect.poll(() => server.stats().peers).toBe(0);
      await showOpen({ url: server.url });
      expect(opened()).toBe(2);
      expect(await page.evaluate(() => peers.size)).toBe(2);
    });

    it("keeps its peer when other props change, and opens another when the address changes", async () => {
      await showOpen({ url: server.url });
      await show({ url: server.url, listeners: ["a"], options: { reconnect: false } });
      await showOpen({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await untilText("members-0", "Bo");
      await expect.poll(() => server.stats().closed).toEqual({ 1000: 1 });
      expect(opened()).toBe(2);
      expect(await page.evaluate(() => peers.size)).toBe(2);
    });

    it("connects as soon as the server is there, and calls of before are sent then", async () => {
      await relay.close();
      await show({ url: relay.url });
      await untilText("status", "connecting");
      const echoed = page.evaluate(() => peer.request("echo", [3]));
      await page.evaluate(() => new Promise((resolve) => peer.once("attempt", resolve)));
      await relay.open();
      expect(await echoed).toBe(3);
      await untilText("status", "open");
      expect(await page.evaluate(() => statuses)).toEqual(["connecting", "open"]);
    });

    it("closes the peer of a provider that suspends and is never mounted", async () => {
      await page.clock.install();
      const begun = Date.now();
      await show({ url: server.url, suspends: true });
      await page.locator("#waiting").waitFor({ state: "attached" });
      await expect.poll(() => server.stats().peers).toBeGreaterThan(0);
      // The clock stands still here: the page's timer of 30 s must not run on while the call is on its way.
      await page.clock.pauseAt(begun + 29_000);
      expect(await page.evaluate(() => peer.request("echo", [4]))).toBe(4);
      await page.clock.runFor(2_000);
      await page.clock.resume();
      await expect.poll(() => server.stats().peers).toBe(0);
    });

    it("is needed by every hook", async () => {
      await show({ orphan: true });
      await untilText("thrown", "This hook needs the `Provider` of its `createReciproc`");
    });
  });

  more();

  describe("useStatus", () => {
    it("shows a cut and the resumed session", async () => {
      await showOpen({ url: relay.url });
      relay.cut();
      await expect
        .poll(() => page.evaluate(() => statuses), PATIENCE)
        .toEqual(["connecting", "open", "suspended", "open"]);
      expect(server.stats()).toMatchObject({ opened: 1, resumed: 1 });
    });

    it("shows a restart of the server", async () => {
      await showOpen({ url: server.url });
      await restartServer();
      await expect
        .poll(() => page.evaluate(() => statuses), PATIENCE)
        .toEqual(["connecting", "open", "suspended", "open"]);
      expect(await page.evaluate(() => peers.size)).toBe(1);
      expect(opened()).toBe(1);
    });

    it("shows that the server has refused the client", async () => {
      await show({ url: `${server.url}?name=Mallory` });
      await untilText("status", "closed");
      expect(opened()).toBe(0);
    });

    it("shows that the server has closed the peer for good", async () => {
      await showOpen({ url: server.url });
      for (const peer of server.peers) void peer.close(4400, "enough");
      await untilText("status", "closed");
    });
  });

  describe("useNotification", () => {
    it("calls each listener once for each notification of its method, over a cut and a restart", async () => {
      await showOpen({ url: relay.url, listeners: ["a", "b"] });
      server.peers.notify("note", [1]);
      server.peers.notify("other", [1]);
      relay.cut();
      server.peers.notify("note", [2]);
      await expect.poll(notes).toEqual([[1], [1], [2], [2]]);
      await restartServer();
      await expect.poll(() => server.stats().peers, PATIENCE).toBe(1);
      server.peers.notify("note", [3]);
      await expect.poll(notes).toEqual([[1], [1], [2], [2], [3], [3]]);
      const labels = await page.evaluate(() => heard.map(({ label }) => label));
      expect(labels).toEqual(["a", "b", "a", "b", "a", "b"]);
    });

    it("calls the listener of the latest render, without subscribing again", async () => {
      await showOpen({ url: server.url, listeners: ["a"] });
      const [first] = [await page.evaluateHandle(() => peer.listeners("notification"))];
      server.peers.notify("note", [1]);
      await expect.poll(notes).toEqual([[1]]);
      await show({ url: server.url, listeners: ["a"], asker: "later" });
      server.peers.notify("note", [2]);
      await expect.poll(notes).toEqual([[1], [2]]);
      const [before, after] = await page.evaluate(() => heard.map(({ render }) => render));
      expect(after).toBeGreaterThan(before!);
      expect(
        await page.evaluate((old) => peer.listeners("notification").every((one, i) => one === old[i]), first),
      ).toBe(true);
    });

    it("reports a listener that throws as an `error` of the peer", async () => {
      await showOpen({ url: server.url, throws: true });
      const failed = page.evaluate(
        () => new Promise((resolve) => peer.once("error", (error) => resolve(String(error)))),
      );
      await page.evaluate(() => peer.notify("noteMe", [1]));
      expect(await failed).toBe("Error: the listener failed");
    });

    it("stops when the component is unmounted", async () => {
      await showOpen({ url: server.url, listeners: ["a", "b"] });
      await show({ url: server.url, listeners: ["b"] });
      server.peers.notify("note", [1]);
      await expect.poll(() => page.evaluate(() => heard.map(({ label }) => label))).toEqual(["b"]);
      await show({ url: server.url });
      expect(await page.evaluate(() => peer.listenerCount("notification"))).toBe(0);
    });
  });

  describe("useNotification beside TanStack Query", () => {
    it("adds a notification to a list that arrived together with it", async () => {
      await relay.close();
      await show({ url: relay.url, numbers: true });
      // Both calls are sent together, so the list and the notification are sent together.
      await page.evaluate(() => peer.notify("noteMe", [3]));
      await relay.open();
      await untilText("status", "open");
      await untilText("numbers", "1,2,3");
    });

    it("is a query that cancels its handler on the server when its component is unmounted", async () => {
      await showOpen({ url: server.url, waits: true, strict: false });
      await expect.poll(() => waits).toEqual([false]);
      await show({ url: server.url, strict: false });
      await expect.poll(() => waits).toEqual([true]);
    });
  });

  describe("useHandler", () => {
    it("serves the server's calls with the handler of the latest render, and not after it is unmounted", async () => {
      await showOpen({ url: server.url, asker: "yes" });
      expect(await ask()).toBe("tea? yes");
      await show({ url: server.url, asker: "no" });
      await expect.poll(ask).toBe("tea? no");
      await show({ url: server.url });
      await expect.poll(ask).toBe(`code ${ErrorCode.MethodNotFound}`);
    });
  });

  describe("useStream", () => {
    it("shows the values and the end, and makes one call in StrictMode", async () => {
      await showOpen({ url: server.url, stream: { from: 1, to: 4 } });
      await untilText("stream", '{"items":[1,2,3,4],"last":4,"done":true}');
      expect(streams).toEqual([{ from: 1, to: 4, hasEnded: true }]);
    });

    it("shows the newest values up to `keep`, and renders once for values that arrive together", async () => {
      await showOpen({ url: server.url, stream: { from: 1, to: 5_000, keep: 3 } });
      await untilText("stream", '{"items":[4998,4999,5000],"last":5000,"done":true}');
      expect(await page.evaluate(() => streamRenders)).toBeLessThan(500);
    });

    it("begins again when the params change, and ends the stream of before on the server", async () => {
      await showOpen({ url: server.url, stream: { from: 7, to: -1 } });
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      await show({ url: server.url, stream: { from: 8, to: -1 } });
      await untilText("stream", '{"items":[8],"last":8,"done":false}');
      await expect.poll(() => streams.map(({ hasEnded }) => hasEnded)).toEqual([true, false]);
    });

    it("does not begin again when the params are equal", async () => {
      await showOpen({ url: server.url, stream: { from: 7, to: -1 } });
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      await show({ url: server.url, stream: { from: 7, to: -1 }, topics: ["den"] });
      await untilText("members-0", "Ada");
      expect(streams).toHaveLength(1);
    });

    it("ends the stream on the server when the component is unmounted", async () => {
      await showOpen({ url: server.url, stream: { from: 7, to: -1 } });
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      await show({ url: server.url });
      await expect.poll(() => streams).toEqual([{ from: 7, to: -1, hasEnded: true }]);
    });

    it("continues over a cut", async () => {
      await showOpen({ url: relay.url, stream: { from: 7, to: -1 } });
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      relay.cut();
      await expect.poll(() => server.stats().resumed, PATIENCE).toBe(1);
      await untilText("status", "open");
      expect(await text("stream")).toBe('{"items":[7],"last":7,"done":false}');
      expect(streams).toEqual([{ from: 7, to: -1, hasEnded: false }]);
    });

    it("shows that the session was lost, and reads again after `restart`", async () => {
      await showOpen({ url: server.url, stream: { from: 7, to: -1 } });
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      await restartServer();
      await untilText("stream", '{"items":[7],"last":7,"done":true,"error":"ConnectionLostError"}');
      await page.evaluate(() => restart());
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      expect(streams).toHaveLength(2);
    });

    it("shows the error of the server", async () => {
      await showOpen({ url: server.url, fails: true });
      await untilText("fails", '{"items":[],"done":true,"error":"no stream today"}');
    });
  });

  describe("useTopicMembers", () => {
    it("shows the members, and who joins and leaves", async () => {
      await showOpen({ url: server.url, topics: ["den"] });
      await untilText("members-0", "Ada");
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await untilText("members-0", "Ada,Bo");
      await expect.poll(() => other.locator("#members-0").textContent()).toBe("Ada,Bo");
      await other.evaluate((url) => globalThis.show({ url }), `${server.url}?name=Bo`);
      await untilText("members-0", "Ada");
      await other.evaluate((url) => globalThis.show({ url, topics: ["den"] }), `${server.url}?name=Bo`);
      await untilText("members-0", "Ada,Bo");
      // A page that is killed may not end its session.
      await other.goto("about:blank");
      await untilText("members-0", "Ada");
    });

    it("joins once for all components and in StrictMode, and leaves after the last", async () => {
      await showOpen({ url: server.url, topics: ["den", "den", "attic"] });
      for (const at of [0, 1, 2]) await untilText(`members-${at}`, "Ada");
      await show({ url: server.url, topics: ["den"] });
      await expect.poll(() => topicCalls).toEqual(["join den", "join attic", "leave attic"]);
      await show({ url: server.url });
      await expect.poll(() => topicCalls).toEqual(["join den", "join attic", "leave attic", "leave den"]);
      expect(server.topic("den").size).toBe(0);
    });

    it("shows a member whose data has changed, in its place", async () => {
      await showOpen({ url: server.url, topics: ["den"] });
      await untilText("members-0", "Ada");
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await untilText("members-0", "Ada,Bo");
      const [ada] = server.topic("den");
      server.topic("den").notify("topic/joined", { topic: "attic", member: { id: ada!.id, name: "Eve" } });
      server.topic("den").notify("topic/joined", { topic: "den", member: { id: ada!.id, name: "Ada Lovelace" } });
      await untilText("members-0", "Ada Lovelace,Bo");
      await other.close();
    });

    it("keeps its list over a cut, with the changes of that time", async () => {
      await showOpen({ url: relay.url, topics: ["den"] });
      await untilText("members-0", "Ada");
      await relay.close();
      await untilText("status", "suspended");
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await expect.poll(() => other.locator("#members-0").textContent()).toBe("Ada,Bo");
      expect(await text("members-0")).toBe("Ada");
      await relay.open();
      await untilText("members-0", "Ada,Bo");
      expect(topicCalls).toEqual(["join den", "join den"]);
      await other.close();
    });

    it("joins again after a restart of the server, and shows the members of then", async () => {
      await showOpen({ url: server.url, topics: ["den"] });
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await untilText("members-0", "Ada,Bo");
      const port = portOf(server.url);
      await server.close();
      await other.close();
      await untilText("status", "suspended");
      server = await start(port, site.url);
      await untilText("members-0", "Ada");
      expect([...server.topic("den")]).toHaveLength(1);
    });

    it("asks for the members again when the server has dropped a change", async () => {
      const options = { limits: { maxMessageBytes: 1_000 } };
      await showOpen({ url: server.url, topics: ["den"], options });
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await untilText("members-0", "Ada,Bo");
      // The notification that Bo has left is longer than Ada's page accepts.
      await other.evaluate((notice) => {
        peer.notify("sendAway", { topic: "den", visitor: "Bo", notice });
      }, "x".repeat(2_000));
      await untilText("members-0", "Ada");
      expect(topicCalls).toEqual(["join den", "join den", "join den"]);
      expect(server.stats().dropped).toBe(1);
      await other.close();
    });

    it("makes a change that arrives together with the list after the list", async () => {
      const other = await openOther({ url: `${server.url}?name=Bo`, topics: ["den"] });
      await expect.poll(() => other.locator("#members-0").textContent()).toBe("Bo");
      await relay.close();
      await show({ url: relay.url, topics: ["den"] });
      // Both calls are sent together, so both replies are sent together: the list with Bo, and that Bo has left.
      await page.evaluate(() => peer.notify("sendAway", { topic: "den", visitor: "Bo", notice: "" }));
      await relay.open();
      await untilText("members-0", "Ada");
      expect(topicCalls).toEqual(["join den", "join den"]);
      await other.close();
    });

    it("shows why it could not join", async () => {
      await showOpen({ url: server.url, topics: ["secret"] });
      await untilText("members-0", "the topic is secret");
    });

    it("shows that the peer has closed", async () => {
      await showOpen({ url: server.url, topics: ["den"] });
      await show({ url: `${server.url}?name=Mallory`, topics: ["den"] });
      await expect.poll(() => text("members-0")).toContain("topic/join");
    });
  });
}

/** Tests what React 18 does not have. */
export function itHides(): void {
  it("closes its peer while an `Activity` hides it, and opens another after that", async () => {
    await show({ url: relay.url, hidden: false, topics: ["den"], stream: { from: 1, to: 3 } });
    await untilText("status", "open");
    await untilText("stream", '{"items":[1,2,3],"last":3,"done":true}');
    await show({ url: relay.url, hidden: true, topics: ["den"], stream: { from: 1, to: 3 } });
    await expect.poll(() => server.stats().closed).toEqual({ 1000: 1 });
    await relay.close();
    await show({ url: relay.url, hidden: false, topics: ["den"], stream: { from: 1, to: 3 } });
    // The peer of before was open.
    await untilText("status", "connecting");
    await relay.open();
    await expect.poll(() => server.stats(), PATIENCE).toMatchObject({ peers: 1, opened: 2 });
    await untilText("status", "open");
    await untilText("members-0", "Ada");
    await untilText("stream", '{"items":[1,2,3],"last":3,"done":true}');
  });
}
