/** A peer in a page of Chromium: one run of everything, and what depends on the browser. All else is proved without a browser. */
import { createHash } from "node:crypto";
import type { BrowserContext, Frame, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type * as Entry from "../../src/index.js";
import type { AnyPeer } from "../../src/index.js";
import { bytes, bytesOf, serve, type ServeOptions, type Server } from "../../src/node.js";
import { bareServer } from "../client/clients.js";
import { Relay } from "../support/relay.js";
import { gate, type Gate } from "../support/turns.js";
import { launchTabs } from "./chromium.js";
import { newPage } from "./browser.js";
import { bundle, startPage, type Site } from "./bundle.js";

declare global {
  /** The whole browser entry, imported by the page. */
  var reciproc: typeof Entry;
  var peer: AnyPeer;
  var emitted: string[];
  var pushed: unknown[];
}

let site: Site;
let page: Page;
let server: Server<any, any, any>;
let relay: Relay;
/** The params of the calls and notifications to the server, in order. */
let heard: unknown[];
/** The server cuts the socket when it has got this number of messages. */
let cutAt: number;
/** Holds the stream `tail` in its middle. */
let middle: Gate<void>;

function hear(params: unknown): unknown {
  if (heard.push(params) === cutAt) relay.cut();
  return params;
}

const methods = {
  note: (params: unknown) => void hear(params),
  echo: hear,
  ask: (question: unknown, { peer }: { peer: AnyPeer }) =>
    peer.request("confirm", question).catch(({ code }: { code: number }) => code),
  async *tail() {
    for (let i = 0; i < 60; i++) {
      if (i === 30) await middle.promise;
      yield i;
    }
  },
  mirror: ({ data }: { data: unknown }) => ({ data: bytes(bytesOf(data)) }),
  async upload({ file }: { file: never }, { peer }: { peer: AnyPeer }) {
    const parts: Uint8Array[] = [];
    for await (const part of peer.iterate(file)) parts.push(bytesOf(part));
    return digest(Buffer.concat(parts));
  },
};

const digest = (view: Uint8Array): string => createHash("sha256").update(view).digest("hex");

/** Opens the bare page in a context of its own. `host` is another name of this machine. */
async function openBarePage(context?: BrowserContext, host = "127.0.0.1"): Promise<Page> {
  const opened = await (context?.newPage() ?? newPage());
  await opened.goto(site.url.replace("127.0.0.1", host));
  await opened.waitForFunction(() => document.title === "ready");
  return opened;
}

beforeAll(async () => {
  const contents = 'import * as entry from "reciproc"; globalThis.reciproc = entry; document.title = "ready";';
  site = await startPage(await bundle({ stdin: { contents } }));
});
afterAll(() => site.close());
beforeEach(async () => {
  heard = [];
  cutAt = -1;
  middle = gate();
  page = await openBarePage();
  await start();
});
afterEach(async () => {
  await page.context().close();
  await relay.close();
  await server.close();
});

/** Starts the server behind a relay. Their ports differ from that of the page. */
async function start(options: Partial<ServeOptions<any, any, any>> = {}): Promise<void> {
  const { authenticate = ({ headers }) => headers.cookie ?? "no cookie" } = options;
  server = await serve<any, any, any>({ port: 0, methods: methods as never, ...options, authenticate });
  relay = await Relay.to(server.url);
}

/** Connects the page, and waits until its session is one for both sides: at the client's next frame after the first reply. */
async function connectPage(options: object = {}): Promise<void> {
  await page.evaluate(
    async ([url, given]) => {
      globalThis.emitted = [];
      globalThis.pushed = [];
      globalThis.peer = await reciproc.connect(url, {
        use: [reciproc.streams, reciproc.progress, reciproc.bytes],
        openTimeoutMs: Infinity,
        ...given,
      });
      for (const name of ["suspend", "lost", "attempt", "resume", "close"] as const)
        peer.on(name, () => void emitted.push(name));
      peer.on("notification", (_method, params) => void pushed.push(params));
      for (let i = 0; i < 2; i++) await peer.request("echo");
    },
    [relay.url, options] as const,
  );
  heard.length = 0;
}

async function untilEmitted(...names: string[]): Promise<void> {
  await expect.poll(() => page.evaluate(() => emitted.filter((name) => name !== "attempt"))).toEqual(names);
}

/** Sends 150 messages. Returns the answers to the calls among them. */
function send(from: number): Promise<unknown> {
  return page.evaluate((first) => {
    const calls: Promise<unknown>[] = [];
    for (let i = first; i < first + 150; i += 2) {
      calls.push(peer.request("echo", [i]));
      peer.notify("note", [i + 1]);
    }
    return Promise.all(calls);
  }, from);
}

it("calls, notifies and streams without loss, duplicates or reordering while its socket is cut twice", async () => {
  await connectPage();
  const items = page.evaluate(async () => {
    const got: unknown[] = [];
    for await (const item of peer.stream("tail")) got.push(item);
    return got;
  });
  cutAt = 20;
  expect(await send(0)).toEqual(Array.from({ length: 75 }, (_, i) => [2 * i]));
  await untilEmitted("suspend", "resume");
  middle.resolve();
  cutAt = 170;
  expect(await send(150)).toEqual(Array.from({ length: 75 }, (_, i) => [150 + 2 * i]));
  await untilEmitted("suspend", "resume", "suspend", "resume");
  expect(await items).toEqual(Array.from({ length: 60 }, (_, i) => i));
  expect(heard).toEqual(Array.from({ length: 300 }, (_, i) => [i]));
  expect(server.stats()).toMatchObject({ peers: 1, suspended: 0 });
});

it("is called, and reports a handler that fails without a listener as an error of the page, with its cause", async () => {
  await connectPage({ reconnect: false });
  const answers = await page.evaluate(async (url) => {
    const other = await reciproc.connect(url, {
      openTimeoutMs: Infinity,
      methods: {
        confirm: ({ sure }: { sure: boolean }) => {
          if (!sure) throw new Error("the page failed");
          return "confirmed";
        },
      },
    });
    const seen = new Promise((resolve) => {
      addEventListener("error", ({ error, message }) => resolve([message, String((error as Error).cause)]), {
        once: true,
      });
    });
    return [await other.request("ask", { sure: true }), await other.request("ask", { sure: false }), await seen];
  }, relay.url);
  const message = expect.stringContaining('"confirm" failed, and nothing listens for `error`') as string;
  expect(answers).toEqual(["confirmed", -32603, [message, "Error: the page failed"]]);
});

it("sends bytes as a binary frame of a megabyte there and back, and streams a Blob, unchanged", async () => {
  const frames: (string | Buffer)[] = [];
  page.on("websocket", (webSocket) => {
    for (const event of ["framesent", "framereceived"] as const)
      webSocket.on(event as "framesent", ({ payload }) => void frames.push(payload));
  });
  await connectPage();
  const length = 1_000_000;
  const answer = await page.evaluate(async (size) => {
    const sent = Uint8Array.from({ length: size }, (_, i) => (i * 31 + (i >> 8)) & 255);
    const { data } = (await peer.request("mirror", { data: reciproc.bytes(sent) })) as { data: Uint8Array };
    const isSame = data.length === size && data.every((byte, i) => byte === sent[i]);
    return { isSame, streamed: await peer.request("upload", { file: peer.offer(new Blob([sent, sent]).stream()) }) };
  }, length);
  const sent = Buffer.from(Array.from({ length }, (_, i) => (i * 31 + (i >> 8)) & 255));
  expect(answer).toEqual({ isSame: true, streamed: digest(Buffer.concat([sent, sent])) });
  const [there, back] = frames.filter((frame) => typeof frame !== "string");
  for (const frame of [there!, back!]) expect(frame.includes(sent)).toBe(true);
});

/** Returns the members of the `ConnectError` with which the page's `connect` rejects, or false for another error. */
function attempt(url: string, options: object = {}): Promise<unknown> {
  return page.evaluate(
    async ([target, given]) => {
      const opening = reciproc.connect(target, { openTimeoutMs: Infinity, ...given });
      const error = await opening.catch((reason: unknown) => reason);
      return error instanceof reciproc.ConnectError && [error.status, error.url];
    },
    [url, options] as const,
  );
}

describe("a connection attempt of a page", () => {
  it("rejects with ConnectError if the server refuses the page's origin or host name", async () => {
    await page.context().close();
    // A foreign name that resolves to this machine, as in DNS rebinding.
    page = await openBarePage(undefined, "elsewhere.test");
    const reasons: string[] = [];
    server.on("refuse", ({ status, reason }) => void reasons.push(`${status} ${reason}`));
    const rebound = server.url.replace("127.0.0.1", "elsewhere.test");
    expect(await attempt(`${server.url}?token=secret`)).toEqual([403, server.url]);
    expect(await attempt(rebound)).toEqual([403, rebound]);
    // Without an agreed subprotocol, a browser reports no HTTP status to a page.
    expect(await attempt(rebound, { link: "plain" })).toEqual([undefined, rebound]);
    expect(reasons).toEqual([
      expect.stringMatching(/^403 Origin "http:\/\/elsewhere\.test:\d+" is not allowed/),
      ...Array<unknown>(2).fill(expect.stringMatching(/^403 Host "elsewhere\.test:\d+" is not allowed/)),
    ]);
  });

  it("has the cookies of the page, by which `authenticate` knows the user, who is logged out by 4401", async () => {
    await page.evaluate(() => void (document.cookie = "user=ada"));
    await connectPage();
    expect(Array.from(server.peers, ({ auth }) => auth as unknown)).toEqual(["user=ada"]);
    for (const each of server.peers) void each.close(4401);
    await untilEmitted("close");
  });

  it("connects again, without the offer, if a server ignores subprotocols", async () => {
    await using bare = await bareServer();
    const answer = await page.evaluate(async (url) => {
      const other = await reciproc.connect(url, { openTimeoutMs: Infinity });
      const echo = await other.request("echo", ["ü"]);
      await other.close();
      return echo;
    }, bare.url);
    expect(answer).toEqual(["ü"]);
    expect(bare.offers).toEqual(["reciproc.v1", ""]);
  });
});

it("a page that was frozen resumes each time it is thawed, without a missed message", async () => {
  await using tabs = await launchTabs();
  await page.context().close();
  page = await openBarePage(tabs.context);
  await connectPage();
  const cdp = await tabs.context.newCDPSession(page);
  const other = await tabs.context.newPage();
  const [served] = server.peers;
  await page.evaluate(() => document.addEventListener("freeze", () => emitted.push("freeze")));
  /** In the background, where its timers and tasks stand still. */
  const freeze = async (): Promise<void> => {
    await other.bringToFront();
    await page.waitForFunction(() => document.hidden, undefined, { polling: 100 });
    const before = await page.evaluate(() => emitted.length);
    await cdp.send("Page.setWebLifecycleState", { state: "frozen" });
    // The answer may come before the event, and a cut before the event would be noticed at once.
    await expect.poll(() => page.evaluate((length) => emitted.slice(length), before)).toContain("freeze");
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
  await thaw();
  expect(await page.evaluate(() => peer.request("echo", [2]))).toEqual([2]);
  await untilEmitted("freeze", "suspend", "resume", "freeze", "suspend", "resume");
  expect(await page.evaluate(() => pushed)).toEqual(Array.from({ length: 100 }, (_, i) => [i]));
  expect(server.stats()).toMatchObject({ peers: 1, suspended: 0 });
});

it("a page resumes at once when its network returns, and by `reconnect()`, whatever the delay before its next attempt", async () => {
  // No delay in the page ends.
  await page.clock.install();
  await page.clock.pauseAt(Date.now() + 60_000);
  await connectPage();
  const network = (type: "offline" | "online"): Promise<void> =>
    page.evaluate((name) => void dispatchEvent(new Event(name)), type);
  for (const [i, isOffline] of [true, false].entries()) {
    // The events of a network that Playwright emulates may come before its connections work again.
    if (isOffline) await network("offline");
    await relay.close();
    await expect.poll(() => page.evaluate(() => emitted.at(-1))).toBe("attempt");
    const call = page.evaluate((n) => peer.request("echo", [n]), i);
    await relay.open();
    const { accepted } = relay;
    if (isOffline) await network("online");
    else expect(await page.evaluate(() => peer.reconnect())).toBe(true);
    expect(await call).toEqual([i]);
    expect(relay.accepted - accepted).toBe(1);
  }
  await untilEmitted("suspend", "resume", "suspend", "resume");
});

const JSON_TYPE = { "Content-Type": "application/json" };

function postFrom(frame: Page | Frame, headers: Record<string, string>): Promise<unknown> {
  return frame.evaluate(
    async ([target, given]) => {
      const body = '{"jsonrpc":"2.0","id":1,"method":"echo","params":[1,2]}';
      try {
        const response = await fetch(target, { method: "POST", headers: given, body });
        return [response.status, await response.text()];
      } catch (error) {
        return String(error);
      }
    },
    [server.url.replace("ws:", "http:"), headers] as const,
  );
}

it("HTTP POST from a page of another origin lets a page of another local port call, with custom headers, and read why it is refused", async () => {
  const asked: unknown[] = [];
  await relay.close();
  await server.close();
  await start({
    authenticate: ({ headers: { authorization } }) => (asked.push(authorization), authorization ?? null),
  });
  const reply = [200, '{"jsonrpc":"2.0","id":1,"result":[1,2]}'];
  expect(await postFrom(page, { ...JSON_TYPE, Authorization: "token" })).toEqual(reply);
  // The preflight carries no credentials, so it is not authenticated.
  expect(asked).toEqual(["token"]);
  expect(await postFrom(page, JSON_TYPE)).toEqual([401, "authentication failed\n"]);
  expect(await postFrom(page, {})).toMatchObject([415, expect.stringContaining("text/plain")]);
});

it("HTTP POST from a page of another origin lets a page of a refused origin neither run nor read anything", async () => {
  const refused: string[] = [];
  server.on("refuse", ({ reason }, { method }) => refused.push(`${method} ${reason}`));
  // A sandboxed frame has no origin and sends `null`.
  await page.evaluate(() => {
    const frame = Object.assign(document.createElement("iframe"), { srcdoc: "sandbox", name: "sandbox" });
    frame.setAttribute("sandbox", "allow-scripts");
    document.body.append(frame);
  });
  await expect.poll(() => page.frame("sandbox")).not.toBeNull();
  expect(await postFrom(page.frame("sandbox")!, JSON_TYPE)).toContain("Failed to fetch");
  // Without the JSON content type the browser makes no preflight, and the request itself arrives.
  expect(await postFrom(page.frame("sandbox")!, {})).toContain("Failed to fetch");
  const reason = expect.stringContaining('Origin "null" is not allowed') as string;
  expect(refused).toEqual([reason, reason]);
  expect(refused.map((text) => text.split(" ")[0])).toEqual(["OPTIONS", "POST"]);
  expect(heard).toEqual([]);
});
