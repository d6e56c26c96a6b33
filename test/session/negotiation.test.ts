import { once } from "node:events";
import { createServer } from "node:http";
import { describe, expect, it, vi } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { connect as connectStandard, type Peer } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { bareServer } from "../client/clients.js";
import { connect as connectNode } from "../support/connect.js";
import { bareHttp, listening } from "../support/network.js";
import { rejection } from "../support/turns.js";

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
    const limits = { maxMessageBytes: 100 };
    await using server = await serve({ port: 0, limits, methods: { echo: (params: unknown) => params } });
    await using peer = await connect(server.url, { limits, reconnect: false, openTimeoutMs: Infinity });
    await calls(peer);
    void rejection(peer.request("echo", ["x".repeat(100)]));
    expect((await peer.closed).code).toBe(1009);
  });

  it.each<[string, (() => boolean) | undefined, string[], string | undefined]>([
    ["second attempt if the server ignores subprotocols", () => false, ["reciproc.v1", ""], undefined],
    ["first attempt if the server accepts any subprotocol", undefined, ["reciproc.v1"], undefined],
    ["first attempt if such a server sends first", undefined, ["reciproc.v1"], '{"jsonrpc":"2.0","method":"welcome"}'],
  ])("falls back to a plain link at the %s, and loses no message", async (_what, handleProtocols, offers, greeting) => {
    prepare();
    await using bare = await bareServer({ handleProtocols }, greeting);
    await using peer = await connect(bare.url, { openTimeoutMs: Infinity });
    if (greeting !== undefined)
      expect(await new Promise((resolve) => peer.on("notification", resolve))).toBe("welcome");
    await calls(peer);
    expect(bare.offers).toEqual(offers);
  });
});

it("a refused upgrade gets 101, `bye` and a close with its own code if it offered reciproc.v1; no peer is made, and none of its frames is read", async () => {
  const peers: unknown[] = [];
  await using server = await serve({ port: 0, origins: [], authenticate: () => null });
  server.on("peer", (peer) => peers.push(peer));
  const refused = new Promise((resolve) => server.once("refuse", (refusal) => resolve(refusal)));
  const webSocket = new WebSocket(server.url, ["reciproc.v1"]);
  const frames: string[] = [];
  webSocket.on("message", (data: Buffer) => frames.push(data.toString()));
  webSocket.on("open", () => webSocket.send('{"jsonrpc":"2.0","id":1,"method":"x"}'));
  expect(await once(webSocket, "close")).toEqual([4401, expect.any(Buffer)]);
  expect(frames.map((frame) => JSON.parse(frame))).toEqual([{ bye: { code: 4401, reason: expect.any(String) } }]);
  expect(await refused).toMatchObject({ status: 401 });
  expect(peers).toEqual([]);
});

it.each([
  [400, ["reciproc.v1", ""]],
  [426, ["reciproc.v1", ""]],
  ...[200, 302, 401, 404, 500, 503].map((status): [number, string[]] => [status, ["reciproc.v1"]]),
])("a refused upgrade with %i is reported, after the offers %j", async (status, offers) => {
  const asked: string[] = [];
  await using http = await listening(createServer());
  http.server.on("upgrade", ({ headers }, socket) => {
    asked.push(headers["sec-websocket-protocol"] ?? "");
    socket.end(`HTTP/1.1 ${status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`);
  });
  expect(await rejection(connectNode(http.url))).toMatchObject({
    name: "ConnectError",
    status,
    cause: expect.any(Error),
  });
  expect(asked).toEqual(offers);
});

it("a server that sends bye is disconnected by the client if the close does not follow", async () => {
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
