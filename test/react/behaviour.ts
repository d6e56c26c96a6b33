/** What the provider and the hooks promise, under a DOM, over a server in memory. The suite runs with each version of React. */
import { version as reactVersion } from "react";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { contract, ErrorCode, open, pair, RpcError, type Peer } from "../../src/index.js";
import { testServer, virtualClock, type TestServer } from "../../src/testing/index.js";
import { Page, type ClientApi, type ServerApi, type Shown } from "./page.js";

type Auth = { name: string };

const ADA = "ws://localhost/";
const BO = "ws://localhost/?name=Bo";
const MALLORY = "ws://localhost/?name=Mallory";

/** The streams that the server of a test has begun, and whether each has ended. */
let streams: { from: number; to: number; hasEnded: boolean }[];
let topicCalls: string[];
let kit: TestServer<ServerApi, ClientApi, Auth>;
let page: Page;
let pages: Page[];

/** Starts the server. The name of a visitor is in the address. */
function start(): TestServer<ServerApi, ClientApi, Auth> {
  return testServer<ServerApi, ClientApi, Auth>({
    authenticate: ({ url }) => {
      const name = new URL(url!, ADA).searchParams.get("name") ?? "Ada";
      return name === "Mallory" ? null : { name };
    },
    topics: (name) => (name === "list" ? { log: {} } : { members: "people" }),
    methods: {
      follow({ topic, since }, { peer, server }) {
        topicCalls.push(`follow ${topic}`);
        return server.topic(topic).join(peer, { since, load: () => [1] });
      },
      unfollow({ topic }, { peer, server }) {
        topicCalls.push(`unfollow ${topic}`);
        server.topic(topic).delete(peer);
      },
      people(params, { peer, server }) {
        topicCalls.push(`${params.presence} ${params.topic}`);
        if (params.topic === "secret") throw new RpcError(403, "the topic is secret");
        return server.topic(params.topic).present(peer, params, { ...params.state, name: peer.auth.name });
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
      async put({ value }, { server }) {
        if (value < 0) throw new RpcError(403, "not yours");
        await server.topic("list").publish("counted", { value });
      },
      echo: ([value]) => value,
      numbers: () => [1, 2],
      noteMe: ([value], { peer }) => void peer.notify("note", [value]),
      askMe: (params, { peer }) =>
        (peer as Peer).request("ask", params).catch(({ code }: RpcError) => `code ${code}`) as Promise<string>,
    },
  });
}

async function untilText(id: string, expected: string): Promise<void> {
  await expect.poll(() => page.text(id), { interval: 1 }).toBe(expected);
}
const ask = (): Promise<string> => page.peer.request("askMe", ["tea?"]);
const opened = (): number => kit.server.stats().opened;
const notes = (): unknown[] => page.heard.map(({ params }) => params);
// oxlint-disable-next-line vitest/require-awaited-expect-poll
const until = <T>(read: () => T) => expect.poll(read, { interval: 1 });

async function showOpen(shown: Shown): Promise<void> {
  await page.show(shown);
  await untilText("status", "open");
}

function newPage(openPeer: Page["open"] = kit.open): Page {
  const made = new Page(openPeer);
  pages.push(made);
  return made;
}

/** Shows a stream that waits for its reader, and waits for its first value. */
async function showWaiting(): Promise<void> {
  await showOpen({ url: ADA, stream: { from: 7, to: -1 } });
  await untilText("stream", '{"items":[7],"last":7,"done":false}');
}

/** Runs the suite with a version of React. `more` adds tests of what only this version has. */
export function itWorksWith(version: 18 | 19, more: () => void = () => {}): void {
  beforeEach(() => {
    streams = [];
    topicCalls = [];
    pages = [];
    kit = start();
    page = newPage();
  });
  afterEach(async () => {
    for (const one of pages) await one.show({});
    await kit.server.close();
  });

  it("is the version under test", () => expect(reactVersion).toMatch(new RegExp(`^${version}\\.`)));

  describe("the provider", () => {
    it.each([true, false])(
      "opens one connection, gives every render the same peer, and closes it when it is unmounted (StrictMode: %s)",
      async (strict) => {
        await showOpen({ url: ADA, strict });
        expect(await page.peer.request("echo", [7])).toBe(7);
        expect([page.peers.size, opened()]).toEqual([1, 1]);
        await page.show({});
        await until(() => kit.server.stats().closed).toEqual({ 1000: 1 });
        await showOpen({ url: ADA, strict });
        expect([page.peers.size, opened()]).toEqual([2, 2]);
      },
    );

    it("closes the peer of a provider that suspends and is never mounted, after 30 s", async () => {
      using clock = virtualClock();
      await page.show({ url: ADA, suspends: true });
      await untilText("waiting", "");
      await until(() => kit.server.stats().peers).toBeGreaterThan(0);
      await clock.pass(29_999);
      expect(await page.peer.request("echo", [4])).toBe(4);
      await clock.pass(1);
      await until(() => kit.server.stats().peers).toBe(0);
    });

    it("keeps the peer of a mounted provider open for longer than that", async () => {
      using clock = virtualClock();
      await page.show({ url: ADA });
      await until(async () => (await clock.pass(1), page.text("status"))).toBe("open");
      await clock.pass(40_000);
      expect(kit.server.stats()).toMatchObject({ peers: 1, opened: 1 });
    });

    it("takes a peer without `reconnect` and the other options of a connection, such as that of a tab", async () => {
      page = newPage(((_url: unknown, { reconnect: _reconnect, ...options }: any) => pair({}, options)[1]) as never);
      await showOpen({ url: ADA, connection: true });
      await untilText("connection", "open; ; ");
      void page.peer.close();
      await untilText("status", "closed");
    });

    it.each<[string, Shown, () => Page]>([
      ["This hook needs the `Provider` of its `createReciproc`", { orphan: true }, newPage],
      ["`open` must be synchronous, and it returned a promise", { url: ADA }, () => newPage((async () => {}) as never)],
    ])("throws %j", async (message, shown, make) => {
      page = make();
      await page.show(shown);
      await untilText("thrown", message);
    });
  });

  more();

  describe("useStatus", () => {
    it.each([
      ["a cut and the resumed session", "cut", { opened: 1, resumed: 1 }],
      ["a restart of the server", "lose", { opened: 2, resumed: 0 }],
    ] as const)("shows %s", async (_what, verb, stats) => {
      await showOpen({ url: ADA });
      kit.network[verb]();
      await until(() => page.statuses).toEqual(["connecting", "open", "suspended", "open"]);
      expect(kit.server.stats()).toMatchObject(stats);
      expect(page.peers.size).toBe(1);
    });

    it.each([MALLORY, ADA])(
      "shows that the server has refused the client, or closed the peer for good (%s)",
      async (url) => {
        await page.show({ url });
        await until(() => kit.server.peers.size).toBe(url === ADA ? 1 : 0);
        for (const peer of kit.server.peers) void peer.close(4400, "enough");
        await untilText("status", "closed");
      },
    );
  });

  it("shows by `useConnection` why the page is offline and when it tries again, and tries at once if it is asked", async () => {
    await showOpen({ url: ADA, connection: true, options: { openTimeoutMs: 1000, reconnect: { minDelayMs: 4000 } } });
    using clock = virtualClock();
    const shows = (text: RegExp) => until(async () => (await clock.pass(0), page.text("connection"))).toMatch(text);
    vi.spyOn(Math, "random").mockReturnValue(0.25);
    kit.network.stop();
    kit.network.cut();
    await shows(/^suspended; ; .*1006/);
    await clock.pass(1000);
    await shows(/^suspended; 5; .*\S$/);
    await clock.pass(1200);
    await shows(/^suspended; 4; /);
    page.retryNow();
    await shows(/^suspended; ; .*\S$/);
    kit.network.start();
    await shows(/^open; ; $/);
    void page.peer.close(4000, "enough");
    await shows(/^closed; ; .*4000 \(enough\)$/);
  });

  describe("useNotification", () => {
    it("calls each listener once for each notification of its method, over a cut and a restart", async () => {
      await showOpen({ url: ADA, listeners: ["a", "b"] });
      kit.server.peers.notify("note", [1]);
      kit.server.peers.notify("other", [1]);
      kit.network.cut();
      kit.server.peers.notify("note", [2]);
      await until(notes).toEqual([[1], [1], [2], [2]]);
      const resumed = page.peer.waitFor("resume");
      kit.network.lose();
      await resumed;
      kit.server.peers.notify("note", [3]);
      await until(notes).toEqual([[1], [1], [2], [2], [3], [3]]);
      expect(page.heard.map(({ label }) => label)).toEqual(["a", "b", "a", "b", "a", "b"]);
    });

    it("calls the listener of the latest render, without subscribing again, until it is unmounted", async () => {
      await showOpen({ url: ADA, listeners: ["a"] });
      const subscribed = page.peer.listeners("notification");
      kit.server.peers.notify("note", [1]);
      await until(notes).toEqual([[1]]);
      await page.show({ url: ADA, listeners: ["a"], asker: "later" });
      kit.server.peers.notify("note", [2]);
      await until(notes).toEqual([[1], [2]]);
      const [before, after] = page.heard.map(({ render }) => render);
      expect(after).toBeGreaterThan(before!);
      expect(page.peer.listeners("notification")).toEqual(subscribed);
      await page.show({ url: ADA });
      expect(page.peer.listenerCount("notification")).toBe(0);
    });

    it("adds a notification to a list of TanStack Query that arrived together with it", async () => {
      kit.network.stop();
      await page.show({ url: ADA, numbers: true });
      // Both calls are sent together, so the list and the notification are sent together.
      page.peer.notify("noteMe", [3]);
      kit.network.start();
      await untilText("status", "open");
      await untilText("numbers", "1,2,3");
    });
  });

  describe("useHandler", () => {
    it("serves the server's calls with the handler of the latest render, and not after it is unmounted", async () => {
      await showOpen({ url: ADA, asker: "yes" });
      expect(await ask()).toBe("tea? yes");
      await page.show({ url: ADA, asker: "no" });
      await until(ask).toBe("tea? no");
      await page.show({ url: ADA });
      await until(ask).toBe(`code ${ErrorCode.MethodNotFound}`);
    });

    it("serves an entry of a contract that had no handler, and the contract checks the params", async () => {
      const api = contract({
        ask: { params: z.tuple([z.string()]), result: z.string() },
        served: { params: z.tuple([z.number()]) },
      });
      // The `open` of a test server does not check what has no handler yet.
      vi.stubGlobal("WebSocket", kit.WebSocket);
      page = newPage(open as never);
      await showOpen({ url: ADA, asker: "yes", options: { contract: api } as never });
      vi.unstubAllGlobals();
      expect(await ask()).toBe("tea? yes");
      expect(await page.peer.request("askMe", [7])).toBe(`code ${ErrorCode.InvalidParams}`);
    });
  });

  describe("useStream", () => {
    it("shows the values up to `keep` and the end, by one call in StrictMode, and renders once for values of one time", async () => {
      await showOpen({ url: ADA, stream: { from: 1, to: 4 } });
      await untilText("stream", '{"items":[1,2,3,4],"last":4,"done":true}');
      expect(streams).toEqual([{ from: 1, to: 4, hasEnded: true }]);
      await page.show({ url: ADA, stream: { from: 1, to: 5_000, keep: 3 } });
      await untilText("stream", '{"items":[4998,4999,5000],"last":5000,"done":true}');
      expect(page.streamRenders).toBeLessThan(500);
    });

    it("begins again when the params change, not if they are equal, and ends on the server each time", async () => {
      await showWaiting();
      await page.show({ url: ADA, stream: { from: 7, to: -1 }, topics: ["den"] });
      await untilText("members-0", ";");
      expect(streams).toHaveLength(1);
      await page.show({ url: ADA, stream: { from: 8, to: -1 } });
      await untilText("stream", '{"items":[8],"last":8,"done":false}');
      await until(() => streams.map(({ hasEnded }) => hasEnded)).toEqual([true, false]);
      const resumed = page.peer.waitFor("resume");
      kit.network.cut();
      await resumed;
      await untilText("status", "open");
      expect(page.text("stream")).toBe('{"items":[8],"last":8,"done":false}');
      expect(streams).toHaveLength(2);
      await page.show({ url: ADA });
      await until(() => streams.map(({ hasEnded }) => hasEnded)).toEqual([true, true]);
    });

    it("shows that the session was lost, and reads again after `restart`", async () => {
      await showWaiting();
      kit.network.lose();
      await untilText("stream", '{"items":[7],"last":7,"done":true,"error":"ConnectionLostError"}');
      page.restart();
      await untilText("stream", '{"items":[7],"last":7,"done":false}');
      expect(streams).toHaveLength(2);
    });
  });

  it("shows a followed topic and a presence by one state for all components, which is left with the last one", async () => {
    await showOpen({ url: ADA, followers: 2, topics: ["den", "den", "attic"] });
    await untilText("followed-0", '{"value":[1],"isCurrent":true}');
    await kit.server.topic("list").publish("counted", { value: 2 });
    for (const at of [0, 1]) await untilText(`followed-${at}`, '{"value":[1,2],"isCurrent":true}');
    for (const at of [0, 1, 2]) await untilText(`members-${at}`, ";");
    await page.show({ url: ADA, followers: 1, topics: ["den"] });
    const calls = ["follow list", "join den", "join attic", "leave attic"];
    await until(() => topicCalls).toEqual(calls);
    await page.show({ url: ADA });
    await until(() => topicCalls).toEqual([...calls, "unfollow list", "leave den"]);
  });

  it("shows changes by one state for all components until they are settled, also if they were unmounted meanwhile", async () => {
    await showOpen({ url: ADA, followers: 2 });
    kit.network.stop();
    for (const value of [1, -2]) void page.put({ value });
    for (const at of [0, 1]) await untilText(`changes-${at}`, "1,-2;");
    await page.show({ url: ADA });
    // Longer than the tick after which nothing listens.
    await new Promise((resolve) => setTimeout(resolve));
    await page.show({ url: ADA, followers: 1 });
    await untilText("changes-0", "1,-2;");
    kit.network.start();
    await untilText("changes-0", ";RpcError");
    page.drawn.length = 0;
    await page.put({ value: 3 });
    await until(() => page.drawn.at(-1)?.filter((value) => value === 3)).toEqual([3]);
    expect(page.drawn.filter((values) => !values.includes(3))).toEqual([]);
  });

  it("shows the others with their states, and renders a part only if that changes", async () => {
    await showOpen({ url: ADA, topics: ["den"] });
    const other = newPage();
    await other.show({ url: BO, topics: ["den"], mine: "den" });
    await until(() => other.text("others")).toBe("1");
    other.rendered.length = 0;
    other.setMine({ x: 5 });
    await untilText("members-0", "Bo5;");
    expect([other.text("members-0"), other.text("mine"), ...new Set(other.rendered)]).toEqual(["Ada;5", "5", "mine"]);
    const line = kit.network.of(page.peer);
    line.stop();
    line.cut();
    await untilText("members-0", "(Bo5; undefined)");
    page.early.push({ x: 3 });
    await page.show({ url: ADA, topics: ["attic"], mine: "attic" });
    await untilText("members-0", "(;3 undefined)");
    line.start();
    await until(() => other.text("others")).toBe("0");
    expect(new Set(other.rendered)).toEqual(new Set(["mine", "others"]));
    await other.show({ url: BO, topics: ["attic", "secret"] });
    await until(() => other.text("members-0")).toBe("Ada3;");
    await until(() => other.text("members-1")).toBe("(; the topic is secret)");
    const third = newPage();
    await third.show({ url: BO, topics: ["den"] });
    await until(() => third.text("members-0")).toBe(";");
    // The component that is mounted first has no `by`, and the state is not that of before.
    await other.show({ url: BO, topics: ["den"], mine: "den" });
    await until(() => other.text("members-0")).toBe(";0");
  });
}

export function itHides(): void {
  it("closes its peer while an `Activity` hides it, and opens another after that", async () => {
    const shown: Shown = { url: ADA, topics: ["den"], stream: { from: 1, to: 3 } };
    await page.show({ ...shown, hidden: false });
    await untilText("status", "open");
    await untilText("stream", '{"items":[1,2,3],"last":3,"done":true}');
    await page.show({ ...shown, hidden: true });
    await until(() => kit.server.stats().closed).toEqual({ 1000: 1 });
    kit.network.stop();
    await page.show({ ...shown, hidden: false });
    // The peer of before was open.
    await untilText("status", "connecting");
    kit.network.start();
    await untilText("status", "open");
    expect(kit.server.stats()).toMatchObject({ peers: 1, opened: 2 });
    await untilText("members-0", ";");
    await untilText("stream", '{"items":[1,2,3],"last":3,"done":true}');
  });
}
