import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { connect, serve } from "../../src/node.js";
import { refuseOrigin } from "../../src/server/origin.js";
import { memorySockets } from "../../src/sockets/memory.js";
import { plain } from "../../src/link/plain.js";
import { bareHttp, portOf, sendUpgrade, plainPeer, upgrade } from "../support/network.js";
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

  it("does not prevent the next listener if it throws", async () => {
    await using server = await serve({ port: 0 });
    const told: string[] = [];
    server.on("peer", (peer) => {
      peer.once("close", () => {
        told.push("first");
        throw new Error("oops");
      });
      peer.on("close", () => told.push("second"));
    });
    const failed = new Promise((resolve) => server.on("error", resolve));
    const peer = await connect(server.url);
    await peer.close();
    expect(await failed).toMatchObject({ message: "oops" });
    expect(told).toEqual(["first", "second"]);
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
      limits: { maxConnections: 1, handshakeTimeoutMs: 20 },
    });
    expect(await upgrade(server.url)).toMatchObject({
      status: 503,
      body: expect.stringContaining("longer than 20 ms"),
    });
    expect(await upgrade(server.url)).toMatchObject({ status: 503, body: expect.stringContaining("maxConnections") });
    const failed = new Promise((resolve) => server.on("error", resolve));
    late.resolve();
    expect(await failed).toMatchObject({ message: "the database is down" });
  });
});

describe("limits.handshakeTimeoutMs", () => {
  it("cuts connections that never finish their request", async () => {
    await using server = await serve({ port: 0, limits: { handshakeTimeoutMs: 200 } });
    const open = async (text: string): Promise<Socket> => {
      const socket = connectTcp(portOf(server.url), "127.0.0.1");
      await once(socket, "connect");
      socket.write(text);
      return socket.resume();
    };
    const sockets = await Promise.all([open("GET / HTTP/1.1\r\nHost: x\r\n"), open("G")]);
    await Promise.all(sockets.map((socket) => once(socket, "close")));
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

  it("refuses a third path once if each has its own path", async () => {
    await using http = await bareHttp();
    await using a = await serve({ server: http.server, path: "/a" });
    await using b = await serve({ server: http.server, path: "/b" });
    expect(await upgrade(`${http.url}/c`)).toMatchObject({ status: 404 });
    expect((await upgrade(a.url)).status).toBe(101);
    expect((await upgrade(b.url)).status).toBe(101);
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

describe("an option that can never match", () => {
  it.each<[string, string[]]>([
    ["origins", ["localhost:5173"]],
    ["origins", ["example.org:443"]],
    ["origins", ["mailto:x"]],
    ["origins", ["https://*.example.org"]],
    ["origins", ["https://example.org/"]],
    ["hosts", ["https://example.org"]],
    ["hosts", ["example.org/"]],
    ["hosts", ["*/"]],
    ["hosts", [""]],
  ])("is refused: %s: %j", async (name, value) => {
    const error = await rejection(serve({ port: 0, [name]: value }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain(`\`${name}[0]\``);
  });
});
