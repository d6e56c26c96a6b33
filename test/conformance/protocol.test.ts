/** Requirements of docs/PROTOCOL.md over a WebSocket that no other test proves. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import { mcp, pair } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { testServer, type TestServer } from "../../src/testing/index.js";
import { HANDSHAKE, upgrade } from "../support/network.js";
import { notification } from "../support/raw.js";

const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 4096, logLength: 2 ** 22 };

function serving(options: object = {}): TestServer<any, any, any> {
  const test = testServer<any, any>(options);
  onTestFinished(() => test.server.close());
  return test;
}

async function opened({ server, network, WebSocket }: TestServer<any, any, any>, protocols: string[]) {
  const webSocket = new WebSocket(server.url, { protocols });
  const frames: any[] = [];
  webSocket.addEventListener("message", ({ data }) => frames.push(JSON.parse(String(data))));
  await network.settle();
  return { webSocket, frames, say: (frame: object) => webSocket.send(JSON.stringify(frame)) };
}

it.each([
  ["other,reciproc.v1,mcp", "reciproc.v1"],
  ["other,mcp,reciproc.v1", "mcp"],
  ["reciproc.resume,reciproc.v1", "reciproc.v1"],
])("the subprotocol is the first that a server supports, without the offer to resume: %s", async (offer, protocol) => {
  const { webSocket } = await opened(serving({ dialect: mcp }), offer.split(","));
  expect(webSocket.protocol).toBe(protocol);
});

it("a handshake that breaks RFC 6455 is refused with the status of its rule: a subprotocol that is offered twice, and another method", async () => {
  await using server = await serve({ port: 0 });
  expect(await upgrade(server.url, { "Sec-WebSocket-Protocol": "mcp, mcp" })).toMatchObject({ status: 400 });
  const sent = httpRequest(server.url.replace("ws:", "http:"), { method: "PUT", headers: HANDSHAKE }).end();
  const [{ statusCode }] = (await once(sent, "response")) as [{ statusCode: number }];
  sent.destroy();
  expect(statusCode).toBe(405);
});

it("a client that offers to resume is sent nothing between the hello and its own first frame", async () => {
  const test = serving();
  const { webSocket, frames, say } = await opened(test, ["reciproc.v1"]);
  const [{ hello }] = frames;
  say({ hello: { session: true, limits: LIMITS } });
  await test.network.settle();
  const [peer] = test.server.peers;
  test.network.of(webSocket).cut();
  await test.network.settle();
  peer!.notify("before");
  const next = await opened(test, ["reciproc.v1", "reciproc.resume"]);
  peer!.notify("after");
  test.server.peers.notify("to all");
  await test.network.settle();
  expect(next.frames).toMatchObject([{ hello: {} }]);
  next.say({ resume: { token: hello.session.token, received: 0, attempt: 1, limits: LIMITS } });
  await test.network.settle();
  const [, resumed, ...packs] = next.frames;
  expect(resumed).toEqual({ resumed: { token: expect.any(String), received: 0 } });
  expect(packs.flat()).toEqual(["before", "after", "to all"].map((method) => notification(method)));
});

it("a token has 22 random characters of an alphabet of 64: 132 bits", async () => {
  const test = serving();
  const all = await Promise.all(Array.from({ length: 50 }, () => opened(test, ["reciproc.v1"])));
  const tokens = all.map(({ frames: [{ hello }] }) => hello.session.token as string);
  for (const token of tokens) expect(token).toMatch(/^[\w-]{22}$/);
  expect(new Set(tokens).size).toBe(50);
  // At each position many different characters occur. For 50 draws of 64, fewer than 15 have a probability below 1e-12.
  for (let place = 0; place < 22; place++)
    expect(new Set(tokens.map((token) => token[place])).size).toBeGreaterThanOrEqual(15);
});

it("a value in the shape of a stream is plain data for a caller that does not read it", async () => {
  const value = { token: 7, values: [1, 2] };
  const [, peer] = pair({ methods: { m: () => ({ whole: value, deep: [value] }) } }, {});
  expect(await peer.request("m")).toEqual({ whole: value, deep: [value] });
  await peer.close();
});
