/**
 * Which servers a client can meet when it reconnects: silent or changed ones. And what it offers and sends at each
 * attempt.
 */
import type { IncomingMessage } from "node:http";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { mcp, Peer, type AnyPeer } from "../../src/index.js";
import { connect as connectNode, serve, type Server } from "../../src/node.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { plain } from "../../src/link/plain.js";
import { pass, useFakeClock } from "../support/clock.js";
import { rejection } from "../support/turns.js";
import { bareServer, confirmed, describeClients, event, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";
import {
  type Answer,
  connectVirtual,
  expectEcho,
  HELLO,
  live,
  network,
  says,
  server as virtualServer,
  URL,
  useVirtualServer,
} from "./virtual.js";

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
    await server.close();
    expect(countDeadlines().waiting).toBe(0);
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
    relay.redirect(bare.url);
    relay.cut();
    expect(await lost).toMatchObject({ message: "the server keeps no sessions any more" });
    await back;
    expect(await peer.request("echo", [1])).toEqual([1]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    expect(bare.offers).toEqual(["reciproc.v1,reciproc.resume"]);
    // Then a reciproc server again.
    relay.redirect(server.url);
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
    relay.redirect(bare.url);
    relay.cut();
    await expect.poll(() => bare.offers.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(2);
    expect(new Set(bare.offers)).toEqual(new Set(["reciproc.v1,reciproc.resume"]));
    const back = event(peer, "resume");
    relay.redirect(server.url);
    await back;
    expect(emitted).toEqual(["suspend", "resume"]);
  });
});

it.each([
  [{ headers: new Map([["a", "b"]]) }, "Expected `headers` to be a plain object or a function, got"],
  [{ headers: "a: b" }, "Expected `headers` to be a plain object or a function, got `a: b`"],
  [{ tls: 5 }, "Expected `tls` to be a plain object, got `5`"],
])("a client in Node refuses %j", async (options, message) => {
  const error = await rejection(connectNode("ws://localhost:1", options as never));
  expect(error).toBeInstanceOf(TypeError);
  expect(error.message).toContain(message);
});

it("a client in Node sends its `headers` with each attempt", async () => {
  const seen: unknown[] = [];
  await using server = await serveEcho({
    authenticate: ({ headers }: IncomingMessage) => (seen.push(headers.authorization), "me"),
  });
  await using relay = await Relay.to(server.url);
  await using peer = await confirmed(connectNode as Connect, relay.url, { headers: { authorization: "Bearer t" } });
  const back = event(peer, "resume");
  relay.cut();
  await back;
  expect(seen).toEqual(["Bearer t", "Bearer t"]);
});

describe("a socket on which no messages begin to flow", () => {
  useFakeClock();

  useVirtualServer(echo);
  beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0.5));

  const silent: Record<string, Answer> = {
    "never opens": () => {},
    "opens and sends nothing": says(),
    "sends only hello": says(HELLO),
  };

  it.each(Object.entries(silent))("is replaced after openTimeoutMs: %s", async (_name, answer) => {
    const { peer, emitted } = await live({ openTimeoutMs: 2000 });
    network.answer = answer;
    const from = performance.now();
    network.cut();
    await pass(2299);
    expect(network.times(from)).toEqual([0]);
    network.answer = virtualServer.answer;
    await pass(10);
    expect(network.times(from)).toEqual([0, 2300]);
    expect(emitted).toEqual(["suspend", "resume"]);
    // The abandoned socket is gone.
    expect(network.lines.size).toBe(1);
    await expectEcho(peer);
  });

  it("is replaced at once if it is lost before the server has sent a frame", async () => {
    const { peer, emitted } = await live();
    network.answer = ({ line }) => {
      line.accept("reciproc.v1");
      network.answer = virtualServer.answer;
      void Promise.resolve().then(() => line.cut());
    };
    const { length } = network.attempts;
    network.cut();
    await pass(500);
    expect(network.attempts).toHaveLength(length + 2);
    expect(emitted).toEqual(["suspend", "resume"]);
    await expectEcho(peer);
  });

  it("offers its dialect's subprotocol each time", async () => {
    const { peer, emitted } = await live({ dialect: mcp });
    network.cut();
    await pass(10);
    // A server of the dialect that is not reciproc.
    network.answer = ({ line }) => void new Peer(plain(line.accept("mcp")), { methods: echo });
    network.cut();
    await pass(500);
    expect(network.attempts.map(({ protocols }) => protocols)).toEqual([
      ["reciproc.v1", "mcp"],
      ["reciproc.v1", "reciproc.resume", "mcp"],
      ["reciproc.v1", "reciproc.resume", "mcp"],
    ]);
    expect(emitted).toEqual(["suspend", "resume", "suspend", "lost", "resume"]);
    await expectEcho(peer);
  });

  it("continues as a new session if the old one is refused, whatever the server sends after that", async () => {
    const { emitted } = await live({ openTimeoutMs: 2000, onOpen: () => {} });
    network.answer = ({ line }) => {
      const socket = line.accept("reciproc.v1");
      socket.send(HELLO);
      socket.start({
        frame: (text) => text.startsWith('{"resume"') && socket.send('{"resumed":{"refused":"unknown-session"}}'),
        closed() {},
      });
    };
    network.cut();
    await pass(2299);
    // No other frame is due before messages flow.
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    expect(network.last.line.sent.map((frame) => Object.keys(JSON.parse(frame) as object)[0])).toEqual([
      "resume",
      "hello",
    ]);
    expect(network.lines.size).toBe(1);
  });

  it("starts a session even if it is lost right after the hello, and another server does not know that session", async () => {
    network.answer = silent["sends only hello"]!;
    const peer = await connectVirtual();
    const emitted = record(peer);
    const call = rejection(peer.request("echo", [1]));
    await pass(10);
    network.answer = virtualServer.answer;
    network.cut();
    await pass(10);
    expect(await call).toMatchObject({ outcome: "unknown" });
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    await expectEcho(peer);
  });

  it("has no timeout if openTimeoutMs is Infinity", async () => {
    const peer: AnyPeer = await connectVirtual({ openTimeoutMs: Infinity });
    await pass(10);
    network.answer = silent["opens and sends nothing"]!;
    const { length } = network.attempts;
    network.cut();
    await pass(50_000);
    expect(network.attempts).toHaveLength(length + 1);
    expect(peer.state).toBe("suspended");
  });

  it("rejects connect if it is the first, and leaves nothing", async () => {
    network.answer = silent["never opens"]!;
    const failed = rejection(connectVirtual({ openTimeoutMs: 2000 }));
    await pass(2000);
    expect(await failed).toMatchObject({ message: `could not connect to ${URL}: not open within 2000 ms` });
    await pass(1);
    expect(network.attempts).toHaveLength(1);
    expect([network.lines.size, countDeadlines().waiting]).toEqual([0, 0]);
  });
});
