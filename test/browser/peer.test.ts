import { once } from "node:events";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest";
import { WebSocketServer } from "ws";
import { serve, type AnyPeer, type Peer, type Refusal, type Server } from "../../src/node.js";
import { launch } from "./chromium.js";
import { startSite } from "./site.js";

declare global {
  var peer: AnyPeer;
}

interface ServerApi {
  add(params: [a: number, b: number]): number;
  /** Calls the page back before it answers. */
  ask(params: { question: string }): string;
  /** Sends the page a message beyond its limit. */
  flood(): void;
  never(): string;
  noted(params: { text: string }): void;
}
interface ClientApi {
  confirm(params: { question: string }): boolean;
  noted(params: { text: string }): void;
}

let browser: Browser;
let site: Awaited<ReturnType<typeof startSite>>;
let server: Server<ServerApi, ClientApi>;
let page: Page;
const noted: string[] = [];

beforeAll(async () => {
  // A foreign name that resolves to this machine, as in DNS rebinding.
  browser = await launch(["--host-resolver-rules=MAP elsewhere.test 127.0.0.1"]);
  site = await startSite();
  server = await serve<ServerApi, ClientApi>({
    server: site.http,
    path: "/rpc",
    limits: { maxMessageBytes: 10_000 },
    methods: {
      add: ([a, b]) => a + b,
      ask: async (question, { peer }) => ((await peer.request("confirm", question)) ? "confirmed" : "declined"),
      flood: (_params, { peer }) => void peer.notify("noted", { text: "x".repeat(2000) }),
      never: () => new Promise<string>(() => {}),
      noted: ({ text }, { peer }) => {
        noted.push(text);
        peer.notify("noted", { text: `${text} yourself` });
      },
    },
  });
});
afterAll(async () => {
  await browser.close();
  await server.close();
  site.http.close();
});
beforeEach(async () => {
  noted.length = 0;
  page = await browser.newPage();
  await open(`http://127.0.0.1:${site.port}/`);
});
afterEach(() => page.close());

async function open(url: string): Promise<void> {
  await page.goto(url);
  await page.waitForFunction(() => document.title === "ready");
}

/** Returns the members of the `ConnectError` with which the page's `connect` rejects, or false for another error. */
function attempt(url: string, link: "packed" | "plain"): Promise<unknown> {
  return page.evaluate(
    async ([target, kind]) => {
      const error = await reciproc.connect(target, { link: kind }).catch((reason: unknown) => reason);
      return error instanceof reciproc.ConnectError && { code: error.code, status: error.status, url: error.url };
    },
    [url, link] as const,
  );
}

/** Returns the server's peer of the next connection. */
async function nextPeer(): Promise<Peer<ServerApi, ClientApi>> {
  const [peer] = (await once(server as never, "peer")) as [Peer<ServerApi, ClientApi>];
  return peer;
}

it("calls, is called back, and notifies in both directions", async () => {
  const outcome = await page.evaluate(async () => {
    const asked: unknown[] = [];
    const peer = await reciproc.connect("/rpc", {
      methods: { confirm: (params: { question: string }) => asked.push(params) === 1 },
    });
    const came = new Promise((resolve) => peer.on("notification", (method, params) => resolve({ method, params })));
    const taken = peer.notify("noted", { text: "héllo" });
    const unknown = peer.request("nothing").catch((error: unknown) => (error as { code: number }).code);
    const answers = [
      await peer.request("ask", { question: "sure?" }),
      await peer.request("ask", { question: "still?" }),
    ];
    return { asked, answers, unknown: await unknown, taken, came: await came, state: peer.state };
  });
  expect(outcome).toEqual({
    asked: [{ question: "sure?" }, { question: "still?" }],
    answers: ["confirmed", "declined"],
    unknown: -32601,
    taken: true,
    came: { method: "noted", params: { text: "héllo yourself" } },
    state: "open",
  });
  expect(noted).toEqual(["héllo"]);
});

it("opens a peer that queues calls while there is no server, reports its attempts, and ends by its signal", async () => {
  const states = page.evaluate(async () => {
    const controller = new AbortController();
    const peer = reciproc.open("/late", { reconnect: { initial: true }, signal: controller.signal });
    const seen: unknown[] = [peer.state];
    const sum = peer.request("add", [2, 3], { retry: "not-sent" });
    const { number, error } = await new Promise<{ number: number; error: Error }>((resolve) =>
      peer.once("attempt", resolve),
    );
    seen.push(number, error.name, peer.state);
    document.title = "connecting";
    await peer.opened;
    seen.push(await sum, peer.state);
    controller.abort("enough");
    return [...seen, (await peer.closed).reason, peer.state];
  });
  await page.waitForFunction(() => document.title === "connecting");
  await using late = await serve({ server: site.http, path: "/late", methods: { add: ([a, b]) => a + b } });
  late.on("peer", (peer) => void peer.closed.then(({ code }) => noted.push(`closed with ${code}`)));
  expect(await states).toEqual(["connecting", 2, "ConnectError", "connecting", 5, "open", "aborted", "closed"]);
  await vi.waitFor(() => expect(noted).toEqual(["closed with 1000"]));
});

it("connects at once by `reconnect()`, whatever the delay before its next attempt", async () => {
  // No delay in the page ends.
  await page.clock.install();
  await page.clock.pauseAt(Date.now() + 60_000);
  await page.evaluate(async () => {
    globalThis.peer = reciproc.open("/later", { reconnect: { initial: true } });
    await new Promise((resolve) => peer.once("attempt", resolve));
  });
  await using late = await serve({ server: site.http, path: "/later", methods: { add: ([a, b]) => a + b } });
  expect(await page.evaluate(() => [peer.state, peer.reconnect()])).toEqual(["connecting", true]);
  expect(await page.evaluate(() => peer.opened.then(() => peer.request("add", [2, 3])))).toBe(5);
  expect(late.peers.size).toBe(1);
  expect(await page.evaluate(() => peer.close().then(() => peer.reconnect()))).toBe(false);
});

it("reports a handler's failure without a listener as an error of the page, with its cause", async () => {
  const reported = await page.evaluate(async () => {
    const seen = new Promise((resolve) => {
      addEventListener("error", ({ error, message }) => resolve([message, String((error as Error).cause)]), {
        once: true,
      });
    });
    const peer = await reciproc.connect("/rpc", {
      methods: { confirm: () => Promise.reject(new Error("the page failed")) },
    });
    const answer = await peer.request("ask", { question: "sure?" }).catch(({ code }: { code: number }) => code);
    return [answer, await seen];
  });
  const message = expect.stringContaining('"confirm" failed, and nothing listens for `error`') as string;
  expect(reported).toEqual([-32603, [message, "Error: the page failed"]]);
});

it("shows both sides the code and the reason the page closes with", async () => {
  const served = nextPeer();
  const info = page.evaluate(async () => {
    const peer = await reciproc.connect("/rpc");
    const lost = peer.request("never").catch((error: unknown) => (error as { outcome: string }).outcome);
    await peer.close(4001, "enough");
    return { ...(await peer.closed), lost: await lost, later: peer.notify("noted", { text: "" }) };
  });
  expect(await (await served).closed).toMatchObject({ code: 4001, reason: "enough" });
  expect(await info).toEqual({ code: 4001, reason: "enough", lost: "unknown", later: false });
});

it("shows both sides the code and the reason the server closes with", async () => {
  const served = nextPeer();
  const info = page.evaluate(async () => (await reciproc.connect("/rpc", { reconnect: false })).closed);
  const peer = await served;
  await peer.close(4002, "closing time");
  expect(await peer.closed).toMatchObject({ code: 4002, reason: "closing time" });
  expect(await info).toEqual({ code: 4002, reason: "closing time" });
});

it("closes with 4413 when a message exceeds the page's limit, and reports 1009", async () => {
  const served = nextPeer();
  const info = page.evaluate(async () => {
    const peer = await reciproc.connect("/rpc", { limits: { maxMessageBytes: 1000 }, reconnect: false });
    const heard: string[] = [];
    peer.on("notification", (method) => void heard.push(method));
    const error = await peer.request("flood").catch((reason: unknown) => reason as Error & { outcome: string });
    const outcome = error instanceof reciproc.ConnectionLostError && error.outcome;
    return { code: (await peer.closed).code, outcome, heard };
  });
  expect(await (await served).closed).toMatchObject({ code: 4413 });
  expect(await info).toEqual({ code: 1009, outcome: "unknown", heard: [] });
});

it("rejects with ConnectError if the server refuses the page's origin or host name", async () => {
  await open(`http://elsewhere.test:${site.port}/`);
  const refusals: Refusal[] = [];
  const remember = (refusal: Refusal): void => void refusals.push(refusal);
  server.on("refuse", remember);
  const foreign = `ws://127.0.0.1:${site.port}/rpc`;
  const rebound = `ws://elsewhere.test:${site.port}/rpc`;
  const code = "CONNECT_FAILED";
  expect(await attempt(`${foreign}?token=secret`, "packed")).toEqual({ code, status: 403, url: foreign });
  expect(await attempt(rebound, "packed")).toEqual({ code, status: 403, url: rebound });
  // Without an agreed subprotocol, a browser reports no HTTP status to a page.
  expect(await attempt(rebound, "plain")).toEqual({ code, status: undefined, url: rebound });
  server.off("refuse", remember);
  const host = { status: 403, reason: expect.stringContaining(`Host "elsewhere.test:${site.port}" is not allowed`) };
  expect(refusals).toEqual([
    { status: 403, reason: expect.stringContaining(`Origin "http://elsewhere.test:${site.port}" is not allowed`) },
    host,
    host,
  ]);
});

it("accepts JSON in binary frames, on the server and in the page", async () => {
  const answer = await page.evaluate(async () => {
    const webSocket = new WebSocket("/rpc");
    await new Promise((resolve) => webSocket.addEventListener("open", resolve));
    const came = new Promise((resolve) => webSocket.addEventListener("message", ({ data }) => resolve(data)));
    webSocket.send(new TextEncoder().encode('{"jsonrpc":"2.0","id":1,"method":"add","params":[2,3]}'));
    return came;
  });
  expect(JSON.parse(answer as string)).toEqual({ jsonrpc: "2.0", id: 1, result: 5 });

  const binary = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await once(binary, "listening");
  binary.on("connection", (webSocket) =>
    webSocket.on("message", (data: Buffer) => {
      const { id } = JSON.parse(data.toString()) as { id: number };
      webSocket.send(Buffer.from(JSON.stringify({ jsonrpc: "2.0", id, result: "grüße" })), { binary: true });
    }),
  );
  const { port } = binary.address() as { port: number };
  const result = await page.evaluate(
    async (url) => (await reciproc.connect(url)).request("anything"),
    `ws://127.0.0.1:${port}/`,
  );
  expect(result).toBe("grüße");
  for (const client of binary.clients) client.terminate();
  binary.close();
});
