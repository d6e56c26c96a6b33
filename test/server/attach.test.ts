import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { type Duplex } from "node:stream";
import { describe, expect, it, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { serve } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { bareHttp, listening, sendUpgrade, upgrade, portOf } from "../support/network.js";
import { call } from "../support/post.js";
import { result } from "../support/raw.js";
import { gate, rejection } from "../support/turns.js";
import { recorded, serving, statusOf } from "./by-hand.js";

const methods = { where: () => "reciproc" };

describe("serve on an existing HTTP server", () => {
  it("can be attached before that server listens", async () => {
    const http = createServer();
    await using server = await serve({ server: http, methods });
    expect(server.url).toBe("");
    await using where = await listening(http);
    expect(server.url).toBe(`${where.url}/`);
    await using peer = await connect(server.url);
    expect(await peer.request("where")).toBe("reciproc");
  });

  it("answers another path with 404 if it is the only upgrade listener, and its own with any query", async () => {
    await using http = await bareHttp();
    await using server = await serve({ server: http.server, path: "/rpc" });
    for (const path of ["/rpc/", "/rpc/x", "/rpcx", "/", "/RPC"])
      expect([path, (await upgrade(http.url + path)).status]).toEqual([path, 404]);
    for (const path of ["/rpc", "/rpc?a=1", "/rpc?"]) expect((await upgrade(http.url + path)).status).toBe(101);
    await server.close();
  });

  it("leaves other paths to other upgrade listeners", async () => {
    await using http = await bareHttp();
    const theirs = new WebSocketServer({ noServer: true });
    http.server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      if (request.url === "/theirs")
        theirs.handleUpgrade(request, socket, head, (webSocket) => webSocket.close(4000, "theirs"));
    });
    await using server = await serve({ server: http.server, path: "/rpc", methods });
    const webSocket = new WebSocket(`${http.url}/theirs`);
    const [code, reason] = (await once(webSocket, "close")) as [number, Buffer];
    expect([code, String(reason)]).toEqual([4000, "theirs"]);
    await using peer = await connect(server.url);
    expect(await peer.request("where")).toBe("reciproc");
  });

  it("warns once, without `path`, that another listener takes the same upgrades", async () => {
    await using http = await listening(createServer());
    const taken: (string | undefined)[] = [];
    http.server.on("upgrade", ({ url }: IncomingMessage) => taken.push(url));
    const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    for (const path of ["/rpc", undefined]) {
      await using server = await serve({ server: http.server, path });
      expect(server.peers.size).toBe(0);
      for (const peer of [await connect(`${http.url}/rpc`), await connect(`${http.url}/rpc`)]) await peer.close();
      expect(warnings.mock.calls.map(([text]) => String(text))).toEqual(
        path === undefined ? [expect.stringContaining("another listener for `upgrade`")] : [],
      );
    }
    expect(taken).toHaveLength(4);
  });

  it("shares the server with another serve on another path, and a third path is refused once", async () => {
    await using http = await bareHttp();
    await using one = await serve({ server: http.server, path: "/one", methods: { where: () => 1 } });
    await using two = await serve({ server: http.server, path: "/two", methods: { where: () => 2 } });
    await using toOne = await connect(one.url);
    await using toTwo = await connect(two.url);
    expect(await Promise.all([toOne.request("where"), toTwo.request("where")])).toEqual([1, 2]);
    expect([await call(one, "where"), await call(two, "where")]).toEqual([
      [200, result(1, 1)],
      [200, result(1, 2)],
    ]);
    const [{ refusals }, { refusals: none }] = [recorded(one), recorded(two)];
    const three = { url: `${http.url}/three` };
    expect([(await upgrade(three.url)).status, (await call(three, "where"))[0]]).toEqual([404, 404]);
    expect([refusals, none]).toEqual([Array(2).fill(expect.stringMatching(/^404 /)), []]);
  });

  it("detaches from the server on close(), without closing it", async () => {
    await using http = await bareHttp();
    const server = await serve({ server: http.server, methods });
    const counts = (): number[] => ["upgrade", "request"].map((name) => http.server.listenerCount(name));
    expect(counts()).toEqual([1, 1]);
    await server.close();
    expect(counts()).toEqual([0, 0]);
    expect(http.server.listening).toBe(true);
    await using again = await serve({ server: http.server, methods });
    await using peer = await connect(again.url);
    expect(await peer.request("where")).toBe("reciproc");
    expect(await call(again, "where")).toEqual([200, result(1, "reciproc")]);
  });
});

describe("serve without a server of its own", () => {
  it("accepts the upgrades that the application passes to it, and neither counts nor awaits a client that hung up before the application passed its upgrade", async () => {
    await using http = await bareHttp();
    const server = await serve({ noServer: true, path: "/rpc", limits: { maxConnections: 1 }, methods });
    const first = gate();
    http.server.once("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on("error", () => {});
      socket.once("close", () => {
        server.handleUpgrade(request, socket, head);
        first.resolve();
      });
      client.resetAndDestroy();
    });
    const client = await sendUpgrade(`${http.url}/rpc`);
    await first.promise;
    http.server.on("upgrade", (...given) => server.handleUpgrade(...given));
    expect((await upgrade(`${http.url}/other`)).status).toBe(404);
    // The address is loopback: the rules against DNS rebinding hold here too.
    expect((await upgrade(`${http.url}/rpc`, { Host: "evil.example" })).status).toBe(403);
    await using peer = await connect(`${http.url}/rpc`);
    expect(await peer.request("where")).toBe("reciproc");
    await server.close();
  });

  it("does not wait for a WebSocket that another listener upgraded", async () => {
    await using http = await bareHttp();
    const theirs = new WebSocketServer({ noServer: true });
    const server = await serve({ noServer: true });
    const failed = new Promise((resolve) => server.on("error", resolve));
    http.server.on("upgrade", (request: IncomingMessage, socket: Duplex, head: Buffer) => {
      theirs.handleUpgrade(request, socket, head, (webSocket) =>
        webSocket.on("message", () => webSocket.send("theirs")),
      );
      server.handleUpgrade(request, socket, head);
    });
    const webSocket = new WebSocket(http.url);
    await once(webSocket, "open");
    expect(await failed).toMatchObject({ message: expect.stringContaining("called more than once") });
    await server.close();
    webSocket.send("still open?");
    expect(String((await once(webSocket, "message"))[0])).toBe("theirs");
    webSocket.terminate();
  });
});

describe("a bad handshake", () => {
  it("is refused, and other clients are served", async () => {
    await using server = await serve({ port: 0, methods });
    expect((await upgrade(server.url, { "Sec-WebSocket-Key": "short" })).status).toBe(400);
    expect((await upgrade(server.url, { Upgrade: "h2c" })).status).toBe(400);
    const old = await upgrade(server.url, { "Sec-WebSocket-Version": "1" });
    expect(old).toMatchObject({ status: 426, headers: { "sec-websocket-version": "13" } });
    expect(server.peers.size).toBe(0);
    await using peer = await connect(server.url);
    expect(await peer.request("where")).toBe("reciproc");
  });

  it("is checked in linear time, whatever blanks its subprotocols have", async () => {
    const { server, url } = await serving();
    // Quadratic time would be many minutes.
    for (const blank of [" ", "\t"])
      expect(await statusOf(url, { "Sec-WebSocket-Protocol": `a${blank.repeat(2 ** 20)}b` })).toBe(400);
    expect(await statusOf(url, { "Sec-WebSocket-Protocol": "a \t,\tb,c " })).toBe(101);
    for (const offer of ["a b", "a,,b", "", "a, a\t"])
      expect(await statusOf(url, { "Sec-WebSocket-Protocol": offer })).toBe(400);
    expect(server.stats().refused).toEqual({ 400: 6 });
  });

  it("does not end the process if it is refused while its sender hangs up", async () => {
    await using server = await serve({ port: 0, path: "/rpc", methods });
    const other = server.url.replace("/rpc", "/other");
    for (let i = 0; i < 20; i++) {
      const socket = await sendUpgrade(other);
      socket.on("error", () => {});
      socket.resetAndDestroy();
    }
    expect(await rejection(connect(other))).toMatchObject({ status: 404 });
  });
});

it.each([
  [{}, /^ws:\/\/127\.0\.0\.1:\d+\/$/],
  [{ host: "0.0.0.0" }, /^ws:\/\/localhost:\d+\/$/],
])("serve on a port picks a free port for 0, and reports an address that can be reached: %j", async (options, url) => {
  await using server = await serve({ port: 0, ...options, methods });
  expect(server.url).toMatch(url);
  await using peer = await connect(`ws://127.0.0.1:${portOf(server.url)}`);
  expect(await peer.request("where")).toBe("reciproc");
});

it("serve on a port chooses none of the subprotocols that are offered, and no compression", async () => {
  await using server = await serve({ port: 0 });
  const answer = await upgrade(server.url, {
    "Sec-WebSocket-Protocol": "mcp, anything",
    "Sec-WebSocket-Extensions": "permessage-deflate",
  });
  expect(answer.status).toBe(101);
  expect(answer.headers).not.toHaveProperty("sec-websocket-protocol");
  expect(answer.headers).not.toHaveProperty("sec-websocket-extensions");
});

it("refuses a second server of the same path on one HTTP server", async () => {
  for (const [one, other] of [
    ["/rpc", "/rpc"],
    [undefined, "/rpc"],
    ["/rpc", undefined],
  ]) {
    await using http = await bareHttp();
    await using first = await serve({ server: http.server, path: one });
    const error = await rejection(serve({ server: http.server, path: other }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain("`path`");
    expect(first.url).toContain("ws://");
  }
});
