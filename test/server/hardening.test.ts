import { once } from "node:events";
import { describe, expect, it, vi } from "vitest";
import { serve } from "../../src/node.js";
import { refuseOrigin } from "../../src/server/origin.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { plain } from "../../src/link/plain.js";
import { bareHttp, sendUpgrade, plainPeer, upgrade } from "../support/network.js";
import { gate, rejection } from "../support/turns.js";

describe("a listener of a server", () => {
  it("is reported to `error` if it rejects, and does not end the process", async () => {
    await using server = await serve({ port: 0 });
    server.on("peer", async (peer) => {
      await peer.request("whoAreYou");
    });
    const failed = new Promise((resolve) => server.on("error", resolve));
    using client = await plainPeer(server.url);
    client.webSocket.terminate();
    expect(await failed).toMatchObject({ code: "CONNECTION_LOST", method: "whoAreYou" });
  });
});

describe("limits.maxConnections", () => {
  it("counts a connection that does not answer its close until its socket is gone", async () => {
    await using server = await serve({ port: 0, limits: { maxConnections: 1, maxMalformedPerMinute: 1 } });
    using first = await plainPeer(server.url);
    first.webSocket.pause();
    first.webSocket.send("garbage");
    first.webSocket.send("garbage");
    await vi.waitFor(() => expect(server.peers.size).toBe(0));
    expect(await upgrade(server.url)).toMatchObject({ status: 503 });
    first.webSocket.terminate();
    await vi.waitFor(async () => expect(await upgrade(server.url)).toMatchObject({ status: 101 }));
  });

  it("counts an authentication that still runs after its timeout, and reports its late error", async () => {
    const late = gate();
    await using server = await serve({
      port: 0,
      authenticate: async () => {
        await late.promise;
        throw new Error("the database is down");
      },
      limits: { maxConnections: 1, handshakeTimeoutMs: 500 },
    });
    expect(await upgrade(server.url)).toMatchObject({
      status: 503,
      body: expect.stringContaining("longer than 500 ms"),
    });
    expect(await upgrade(server.url)).toMatchObject({ status: 503, body: expect.stringContaining("maxConnections") });
    const failed = new Promise((resolve) => server.on("error", resolve));
    late.resolve();
    expect(await failed).toMatchObject({ message: "the database is down" });
  });
});

describe("two servers on one HTTP server", () => {
  it.each([
    ["/rpc", "/rpc"],
    [undefined, "/rpc"],
    ["/rpc", undefined],
  ])("throws if both serve the same path: %s and %s", async (one, other) => {
    await using http = await bareHttp();
    await using first = await serve({ server: http.server, path: one });
    const error = await rejection(serve({ server: http.server, path: other }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain(`at \`path\` "${one ?? "(any)"}" already`);
    expect(first.url).toContain("ws://");
  });
});

describe("handleUpgrade", () => {
  it("reports a socket that is already in use, and does not throw", async () => {
    await using http = await bareHttp();
    await using server = await serve({ noServer: true });
    const errors: unknown[] = [];
    server.on("error", (error) => errors.push(error));
    http.server.on("upgrade", (request, socket, head) => {
      server.handleUpgrade(request, socket, head);
      server.handleUpgrade(request, socket, head);
    });
    using client = await plainPeer(http.url);
    expect(client.webSocket.readyState).toBe(client.webSocket.OPEN);
    expect(errors).toHaveLength(1);
  });
});

describe("close", () => {
  it("resolves although a client resets its connection meanwhile", async () => {
    const server = await serve({ port: 0 });
    const socket = await sendUpgrade(server.url);
    await once(socket, "data");
    await vi.waitFor(() => expect(server.peers.size).toBe(1));
    const closed = server.close();
    socket.resetAndDestroy();
    await closed;
    expect(server.peers.size).toBe(0);
  });
});

describe("accept", () => {
  it("makes a peer that is closed at once after close()", async () => {
    const server = await serve({ noServer: true });
    await server.close();
    const [socket] = memorySockets(1000, 1000);
    const peer = server.accept(plain(socket), undefined);
    expect(peer.state).toBe("closed");
    expect(await peer.closed).toEqual({ code: 1001, reason: "the server is closing" });
  });
});

describe("a page loaded without TLS", () => {
  const rules = { hosts: undefined, origins: undefined };

  it("cannot connect to the TLS server of the same name", () => {
    expect(refuseOrigin("http://bank.example", "bank.example", true, rules)).toContain("origins");
    expect(refuseOrigin("https://bank.example", "bank.example", true, rules)).toBeUndefined();
    expect(refuseOrigin("http://bank.example", "bank.example", false, rules)).toBeUndefined();
  });

  it("can connect if it is listed, and on loopback", () => {
    const listed = { ...rules, origins: ["http://bank.example"] };
    expect(refuseOrigin("http://bank.example", "bank.example", true, listed)).toBeUndefined();
    expect(refuseOrigin("http://localhost:5173", "localhost:3000", true, rules)).toBeUndefined();
  });
});
