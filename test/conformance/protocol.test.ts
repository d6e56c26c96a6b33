/** Requirements of docs/PROTOCOL.md over a WebSocket that no other test proves. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { expect, it } from "vitest";
import { mcp, pair } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { ByHand, LIMITS, RESUMED, serving, suspended } from "../server/by-hand.js";
import { HANDSHAKE, upgrade } from "../support/network.js";
import { notification } from "../support/raw.js";
import { turn } from "../support/turns.js";

it.each([
  ["other,reciproc.v1,mcp", "reciproc.v1"],
  ["other,mcp,reciproc.v1", "mcp"],
  ["reciproc.resume,reciproc.v1", "reciproc.v1"],
])("the subprotocol is the first that a server supports, without the offer to resume: %s", async (offer, protocol) => {
  await using kit = testServer({ dialect: mcp });
  const webSocket = new kit.WebSocket(kit.server.url, { protocols: offer.split(",") });
  await kit.network.settle();
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
  const world = await serving();
  const { peer, token } = await suspended(world);
  peer.notify("before");
  const next = await ByHand.open(world.url, { returns: true });
  peer.notify("after");
  world.server.peers.notify("to all");
  for (let i = 0; i < 5; i++) await turn();
  expect(next.unread).toMatchObject([{ hello: {} }]);
  next.say({ resume: { token, received: 0, attempt: 1, limits: LIMITS } });
  await next.next();
  expect(await next.next()).toEqual(RESUMED);
  const messages: unknown[] = [];
  while (messages.length < 3) messages.push(...((await next.next()) as unknown[]));
  expect(messages).toEqual(["before", "after", "to all"].map((method) => notification(method)));
});

it("a token has 22 random characters of an alphabet of 64: 132 bits", async () => {
  const { url } = await serving();
  const sessions = await Promise.all(Array.from({ length: 50 }, () => ByHand.begin(url)));
  const tokens = sessions.map(({ token }) => token);
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
