/** Clients over real sockets: servers that change, pulled cables, cut sockets, late servers, and `signal`. */
import { getEventListeners, once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createServer as createTcpServer, type Socket } from "node:net";
import { describe, expect, it, vi } from "vitest";
import type { AnyPeer, Attempt, CloseInfo } from "../../src/index.js";
import { connect as connectNode, open as openNode, serve, type Server } from "../../src/node.js";
import { listening } from "../support/network.js";
import { Relay } from "../support/relay.js";
import { rejection } from "../support/turns.js";
import { bareServer, confirmed, describeClients, event, record, type Connect } from "./clients.js";

const REASON = new Error("the user went elsewhere");

const echo = { echo: (params: unknown) => params };

function serveEcho(options: object = {}): Promise<Server<any, any, any>> {
  return serve<any, any, any>({ port: 0, methods: echo as never, ...options });
}

describeClients("a client that reconnects", (connect: Connect) => {
  it("closes for good if it is refused with 401, with the reason", async () => {
    let isStrict = false;
    await using server = await serveEcho({ authenticate: () => (isStrict ? null : "me") });
    await using relay = await Relay.to(server.url);
    const peer = await confirmed(connect, relay.url);
    const emitted = record(peer);
    const suspended = event(peer, "suspend");
    await relay.close();
    await suspended;
    const waiting = rejection(peer.request("echo", [1]));
    isStrict = true;
    await relay.open();
    const info = await peer.closed;
    expect(info).toMatchObject({ code: 4401, error: { name: "ConnectError", status: 401 } });
    expect(info.reason).toContain("authentication failed");
    expect(await waiting).toMatchObject({ outcome: "not-sent", cause: info.error });
    expect(emitted).toEqual(["suspend", "close 4401"]);
  });

  it("continues at a server that is now plain", async () => {
    await using server = await serveEcho();
    await using relay = await Relay.to(server.url);
    await using peer = await confirmed(connect, relay.url);
    const emitted = record(peer);
    // This server accepts any subprotocol, and sends first.
    await using bare = await bareServer({ handleProtocols: undefined }, '{"jsonrpc":"2.0","method":"hi"}');
    const back = event(peer, "resume");
    const lost = event(peer, "lost");
    relay.target = bare.url;
    relay.cut();
    expect(await lost).toMatchObject({ message: "the server keeps no sessions any more" });
    await back;
    expect(await peer.request("echo", [1])).toEqual([1]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    expect(bare.offers).toEqual(["reciproc.v1,reciproc.resume"]);
    // Then a reciproc server again.
    relay.target = server.url;
    const again = event(peer, "resume");
    relay.cut();
    await again;
    expect(await peer.request("echo", [2])).toEqual([2]);
    expect(emitted).toEqual(["suspend", "lost", "resume", "suspend", "lost", "resume"]);
  });

  it("never drops its offer after a hello: it retries while a server ignores subprotocols", async () => {
    await using server = await serveEcho();
    await using relay = await Relay.to(server.url);
    await using peer = await confirmed(connect, relay.url);
    const emitted = record(peer);
    await using bare = await bareServer();
    relay.target = bare.url;
    relay.cut();
    await expect.poll(() => bare.offers.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(2);
    expect(new Set(bare.offers)).toEqual(new Set(["reciproc.v1,reciproc.resume"]));
    const back = event(peer, "resume");
    relay.target = server.url;
    await back;
    expect(emitted).toEqual(["suspend", "resume"]);
  });
});

it.each([
  [{ headers: new Map([["a", "b"]]) }, "`headers`"],
  [{ headers: "a: b" }, "`headers`"],
  [{ tls: 5 }, "`tls`"],
])("a client in Node refuses %j", async (options, message) => {
  const error = await rejection(connectNode("ws://localhost:1", options as never));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toContain(message);
});

it("a client in Node sends the headers of a function, new ones for each attempt", async () => {
  const cookies: unknown[] = [];
  await using server = await serveEcho({
    authenticate: ({ headers }: IncomingMessage) => (cookies.push(headers.cookie), "me"),
  });
  await using relay = await Relay.to(server.url);
  await using peer = await confirmed(connectNode as Connect, relay.url, {
    headers: ({ number, reason }: Attempt) => ({ cookie: `${number} ${(reason as CloseInfo | undefined)?.code}` }),
  });
  const back = event(peer, "resume");
  relay.cut();
  await back;
  expect(cookies).toEqual(["1 undefined", "1 1006"]);
});

/** Short, but long enough for a busy machine to answer. */
const heartbeat = { intervalMs: 300, deadAfterMs: 1200 };

describeClients("a client whose server is frozen", (connect: Connect) => {
  it("detects it by its heartbeat, resumes, and has lost no message", async () => {
    const heard: number[] = [];
    await using server = await serve<any, any>({
      port: 0,
      methods: { note: ([n]: [number]) => void heard.push(n), echo: (params: unknown) => params } as never,
    });
    await using relay = await Relay.to(server.url);
    await using peer = await confirmed(connect, relay.url, { heartbeat });
    const emitted = record(peer);
    peer.notify("note", [1]);
    await peer.request("echo", []);
    relay.pause();
    // This message is sent, and never arrives on this socket.
    peer.notify("note", [2]);
    await event(peer, "suspend");
    peer.notify("note", [3]);
    // The old connections continue late, when neither side reads them any more.
    relay.mend();
    await event(peer, "resume");
    peer.notify("note", [4]);
    expect(await peer.request("echo", [5])).toEqual([5]);
    expect(heard).toEqual([1, 2, 3, 4]);
    expect(emitted).toEqual(["suspend", "resume"]);
  });
});

it("detects a frozen plain server from Node, by pings of the WebSocket", async () => {
  await using bare = await bareServer();
  await using relay = await Relay.to(bare.url);
  const connect = connectNode as Connect;
  await using peer = await connect(relay.url, { link: "plain", reconnect: true, heartbeat });
  await using other = await connect(relay.url, { link: "plain", reconnect: false, heartbeat });
  const emitted = record(peer);
  await peer.request("echo", [1]);
  let pings = 0;
  for (const webSocket of bare.webSockets) webSocket.on("ping", () => pings++);
  await expect.poll(() => pings, { timeout: 5000 }).toBeGreaterThan(1);
  relay.pause();
  const call = rejection(peer.request("echo", [2]));
  await event(peer, "lost");
  expect(await call).toMatchObject({ outcome: "unknown" });
  expect(await other.closed).toMatchObject({ code: 1006 });
  relay.mend();
  await event(peer, "resume");
  expect(await peer.request("echo", [3])).toEqual([3]);
  expect(emitted).toEqual(["suspend", "lost", "resume"]);
});

describeClients("a client whose socket is cut", (connect: Connect) => {
  it("loses and duplicates no call or notification of either side, and keeps their order", async () => {
    const heard: number[] = [];
    const pushed: number[] = [];
    const methods = {
      n: ([n]: [number]) => (heard.push(n), n),
      note: ([n]: [number]) => void heard.push(n),
    };
    await using server = await serve<any, any>({ port: 0, methods });
    await using relay = await Relay.to(server.url);
    const peers: AnyPeer[] = [];
    server.on("peer", (one) => peers.push(one));
    await using peer = await confirmed(connect, relay.url, {
      methods: { push: ([n]: [number]) => void pushed.push(n) },
    });
    const emitted = record(peer);
    await peer.request("n", [0]);
    const calls: Promise<unknown>[] = [];
    const last = 2000;
    for (let i = 1; i < last; i += 2) {
      calls.push(peer.request("n", [i]));
      expect(peer.notify("note", [i + 1])).toBe(true);
      expect(peers[0]!.notify("push", [i])).toBe(true);
      if (i % 501 === 0) relay.cut();
      if (i % 11 === 0) await new Promise((resolve) => setImmediate(resolve));
    }
    const odd = Array.from({ length: last / 2 }, (_, i) => 2 * i + 1);
    expect(await Promise.all(calls)).toEqual(odd);
    await peer.request("n", [-1]);
    expect(heard).toEqual([...Array.from({ length: last + 1 }, (_, i) => i), -1]);
    expect(pushed).toEqual(odd);
    expect(new Set(emitted)).toEqual(new Set(["suspend", "resume"]));
    expect(peers).toHaveLength(1);
    expect(relay.accepted).toBeGreaterThan(1);
  });
});

const add = ([a, b]: [number, number]): number => a + b;

describe("a peer that is opened over real sockets", () => {
  it("queues what is sent before the server listens, and is open when it does", async () => {
    const taken = await serve({ port: 0 });
    const { url } = taken;
    const { port } = new globalThis.URL(url);
    await taken.close();
    const peer = openNode(url, { reconnect: { initial: true } }) as AnyPeer;
    const sum = peer.request("add", [2, 3]);
    await event(peer, "attempt");
    expect(peer.state).toBe("connecting");
    await using late = await serve({ port: Number(port), methods: { add } });
    expect(late.url).toBe(url);
    peer.reconnect();
    expect(await sum).toBe(5);
    await peer.opened;
    expect(peer.state).toBe("open");
    await peer.close();
  });

  it("makes a call with `retry` again at a restarted server, and rejects one that was sent", async () => {
    const methods = { add, never: () => new Promise(() => {}) };
    const first = await serve({ port: 0, methods });
    const { url } = first;
    const peer = openNode(url, { retry: "not-sent" }) as AnyPeer;
    const emitted = record(peer);
    await peer.opened;
    await peer.request("add", [1, 1]);
    const sent = rejection(peer.request("never"));
    await peer.request("add", [1, 1]);
    const suspended = event(peer, "suspend");
    await first.close();
    await suspended;
    const again = peer.request("add", [2, 3]);
    const unsent = rejection(peer.request("add", [2, 3], { retry: false, timeoutMs: 1 }));
    expect(await sent).toMatchObject({ outcome: "unknown" });
    expect(await unsent).toMatchObject({ outcome: "not-sent" });
    await using second = await serve({ port: Number(new globalThis.URL(url).port), methods });
    expect(second.url).toBe(url);
    peer.reconnect();
    expect(await again).toBe(5);
    expect(emitted.slice(0, 3)).toEqual(["suspend", "lost", "resume"]);
    await peer.close();
  });

  it("hangs up and rejects when its signal aborts", async () => {
    await using server = await serve({ port: 0, methods: { never: () => new Promise(() => {}) } });
    const controller = new AbortController();
    const peer = openNode(server.url, { signal: controller.signal }) as AnyPeer;
    await peer.opened;
    const call = rejection(peer.request("never"));
    controller.abort(REASON);
    expect(await call).toMatchObject({ cause: REASON });
    expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted" });
    await vi.waitFor(() => expect(server.stats().peers).toBe(0));
  });
});

describeClients("connect with a signal", (connect: Connect) => {
  it.each([undefined, { initial: true }])(
    "disconnects from a server that never answers (reconnect: %j)",
    async (reconnect) => {
      const controller = new AbortController();
      const { signal } = controller;
      const listener = createTcpServer();
      await using silent = await listening(listener);
      const arrival = once(listener, "connection");
      const connecting = rejection(connect(silent.url, { signal, reconnect }));
      const [socket] = (await arrival) as [Socket];
      socket.resume();
      socket.on("error", () => {});
      const gone = once(socket, "close");
      controller.abort(REASON);
      expect(await connecting).toBe(REASON);
      await gone;
      expect(getEventListeners(signal, "abort")).toEqual([]);
    },
  );

  it.each([
    [null, "`null`"],
    [true, "`true` (boolean)"],
    [new AbortController(), "an object"],
  ])("refuses %s as a signal, whatever the other options are", async (signal, shown) => {
    const error = await rejection(connect("ws://127.0.0.1:9", { signal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`signal\` to be an AbortSignal, got ${shown}`);
  });
});
