/** How a client and a server choose the subprotocol, over real sockets. */
import { once } from "node:events";
import { createServer } from "node:http";
import { afterEach, describe, expect, it, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { connect as connectStandard, ConnectError, type Peer } from "../../src/index.js";
import { connect as connectNode, serve } from "../../src/node.js";
import { bareServer } from "../client/clients.js";
import { bareHttp, listening, plainPeer, type Listening } from "../support/network.js";
import { rejection } from "../support/turns.js";

/** Answers every upgrade with an HTTP status. */
async function refusingServer(...statuses: string[]): Promise<Listening<any> & { asked: string[] }> {
  const asked: string[] = [];
  const http = await listening(createServer());
  http.server.on("upgrade", (request, socket) => {
    asked.push(request.headers["sec-websocket-protocol"] ?? "");
    socket.end(`HTTP/1.1 ${statuses[asked.length - 1]}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
  });
  return Object.assign(http, { asked });
}

afterEach(() => {
  vi.unstubAllGlobals();
});

/** Makes twenty calls in one tick, each with a different result. */
async function calls(peer: Peer): Promise<void> {
  const echoed = await Promise.all(Array.from({ length: 20 }, (_, i) => peer.request("echo", [i])));
  expect(echoed).toEqual(Array.from({ length: 20 }, (_, i) => [i]));
}

describe.each([
  ["from Node", connectNode, () => {}],
  ["by a standard WebSocket", connectStandard, () => vi.stubGlobal("WebSocket", WebSocket)],
])("%s, reciproc.v1", (_name, connect, prepare) => {
  it("accepts packs that are longer than the longest message", async () => {
    prepare();
    const methods = { echo: (params: unknown) => params };
    await using server = await serve({ port: 0, limits: { maxMessageBytes: 100 }, methods });
    await using peer = await connect(server.url, { limits: { maxMessageBytes: 100 }, reconnect: false });
    await calls(peer);
    void rejection(peer.request("echo", ["x".repeat(100)]));
    expect((await peer.closed).code).toBe(1009);
  });

  it("is not offered with a plain link, and is refused by a plain server", async () => {
    prepare();
    await using bare = await bareServer();
    await using peer = await connect(bare.url, { link: "plain" });
    await calls(peer);
    expect(bare.offers).toEqual([""]);
    await using server = await serve({ port: 0, link: "plain", methods: { echo: (params: unknown) => params } });
    await using other = await connect(server.url);
    await calls(other);
  });

  it.each([
    ["second attempt if the server ignores subprotocols", () => false, ["reciproc.v1", ""]],
    ["first attempt if the server accepts any subprotocol", undefined, ["reciproc.v1"]],
  ])("falls back to a plain link at the %s", async (_what, handleProtocols, offers) => {
    prepare();
    await using bare = await bareServer({ handleProtocols });
    await using peer = await connect(bare.url);
    await calls(peer);
    expect(bare.offers).toEqual(offers);
  });

  it("falls back to a plain link if such a server sends first, and loses no message", async () => {
    prepare();
    await using bare = await bareServer(
      { handleProtocols: undefined },
      '{"jsonrpc":"2.0","method":"welcome","params":[1]}',
    );
    await using peer = await connect(bare.url);
    const [method, params] = (await new Promise((resolve) =>
      peer.on("notification", (...args) => resolve(args)),
    )) as unknown[];
    expect([method, params]).toEqual(["welcome", [1]]);
    await calls(peer);
  });

  it.each([
    [401, { authenticate: (): unknown => null }, "authentication failed"],
    [503, { limits: { maxConnections: 1 } }, "`limits.maxConnections`, 1, is reached"],
  ])("reports why a server refuses with %i", async (status, options, reason) => {
    prepare();
    await using server = await serve({ port: 0, ...options });
    const first = "limits" in options ? await connect(server.url) : undefined;
    const error = await rejection(connect(server.url));
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ status, message: expect.stringContaining(reason) });
    expect(server.peers.size).toBe(first === undefined ? 0 : 1);
    await first?.close();
  });
});

describe("a refused upgrade", () => {
  it("gets 101, `bye` and a close with its own code if it offered reciproc.v1; no peer is made, and none of its frames is read", async () => {
    const peers: unknown[] = [];
    await using server = await serve({ port: 0, origins: [], authenticate: () => null });
    server.on("peer", (peer) => peers.push(peer));
    const refused = new Promise((resolve) => server.once("refuse", (refusal) => resolve(refusal)));
    const webSocket = new WebSocket(server.url, ["reciproc.v1"]);
    const frames: string[] = [];
    webSocket.on("message", (data: Buffer) => frames.push(data.toString()));
    webSocket.on("open", () => webSocket.send('{"jsonrpc":"2.0","id":1,"method":"x"}'));
    const [code, reason] = (await once(webSocket, "close")) as [number, Buffer];
    expect([code, reason.toString()]).toEqual([4401, "authentication failed"]);
    expect(frames).toEqual(['{"bye":{"code":4401,"reason":"authentication failed"}}']);
    expect(await refused).toMatchObject({ status: 401 });
    expect(peers).toEqual([]);
  });

  it("gets the HTTP status if it did not offer reciproc.v1", async () => {
    await using server = await serve({ port: 0, authenticate: () => null });
    await expect(plainPeer(server.url)).rejects.toThrow("401");
    await expect(rejection(connectNode(server.url, { link: "plain" }))).resolves.toMatchObject({ status: 401 });
  });

  it.each(["400 Bad Request", "426 Upgrade Required"])("is retried without the offer after %s", async (status) => {
    await using http = await refusingServer(status, "403 Forbidden");
    await expect(rejection(connectNode(http.url))).resolves.toMatchObject({ status: 403 });
    expect(http.asked).toEqual(["reciproc.v1", ""]);
  });

  it.each(["401 Unauthorized", "404 Not Found", "500 Oops"])("is reported, not retried, after %s", async (status) => {
    await using http = await refusingServer(status);
    await expect(rejection(connectNode(http.url))).resolves.toMatchObject({ status: Number(status.slice(0, 3)) });
    expect(http.asked).toEqual(["reciproc.v1"]);
  });
});

describe("a server that sends bye", () => {
  it("is disconnected by the client if the close does not follow", async () => {
    await using http = await bareHttp();
    const left = new Promise<void>((resolve) =>
      new WebSocketServer({ server: http.server }).on("connection", (webSocket) => {
        webSocket.on("close", () => resolve());
        webSocket.send('{"bye":{"code":4403,"reason":"not you"}}');
      }),
    );
    await expect(rejection(connectNode(http.url))).resolves.toMatchObject({ status: 403 });
    await left;
  });
});
