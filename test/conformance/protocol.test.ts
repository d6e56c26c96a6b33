/** Requirements of docs/PROTOCOL.md over a real WebSocket that no other test proves. */
import { once } from "node:events";
import { request as httpRequest } from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { WebSocket } from "ws";
import { mcp, pair } from "../../src/index.js";
import { serve } from "../../src/node.js";
import { ByHand, LIMITS, nextPeer, servingOnPort, emitted } from "../server/by-hand.js";
import { upgrade } from "../support/network.js";

/** Opens a WebSocket that offers `protocols`, and resolves with the one that the server chose. */
async function chosen(url: string, protocols: string[]): Promise<string> {
  const webSocket = new WebSocket(url, protocols);
  onTestFinished(() => webSocket.terminate());
  await once(webSocket, "open");
  return webSocket.protocol;
}

describe("the subprotocol that a server chooses", () => {
  it.each([
    ["other,reciproc.v1,mcp", "reciproc.v1"],
    ["other,mcp,reciproc.v1", "mcp"],
    ["mcp", "mcp"],
  ])("is the first that a server supports: %s", async (offer, protocol) => {
    const { url } = await servingOnPort({ dialect: mcp });
    expect(await chosen(url, offer.split(","))).toBe(protocol);
  });

  it.each([
    ["reciproc.v1,reciproc.resume", "reciproc.v1"],
    ["reciproc.resume,reciproc.v1", "reciproc.v1"],
  ])("is agreed on without the offer to resume: %s", async (offer, protocol) => {
    const { url } = await servingOnPort();
    expect(await chosen(url, offer.split(","))).toBe(protocol);
  });
});

describe("a handshake that breaks RFC 6455", () => {
  it.each<[string, Record<string, string>, number]>([
    ["another upgrade", { Upgrade: "h2c" }, 400],
    ["a key of another length", { "Sec-WebSocket-Key": "short" }, 400],
    ["a subprotocol that is offered twice", { "Sec-WebSocket-Protocol": "mcp, mcp" }, 400],
    ["another version", { "Sec-WebSocket-Version": "8" }, 426],
  ])("is refused with the status of its rule: %s", async (_what, headers, status) => {
    await using server = await serve({ port: 0 });
    expect(await upgrade(server.url, headers)).toMatchObject({ status });
  });

  it("by its method is refused with 405", async () => {
    await using server = await serve({ port: 0 });
    const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13" };
    const sent = httpRequest(server.url.replace("ws:", "http:"), { method: "PUT", headers }).end();
    const [{ statusCode }] = (await once(sent, "response")) as [{ statusCode: number }];
    sent.destroy();
    expect(statusCode).toBe(405);
  });
});

describe("a session", () => {
  it("counts packs and no control frames", async () => {
    const { server, url } = await servingOnPort({ methods: { add: ([a, b]: [number, number]) => a + b } });
    const coming = nextPeer(server);
    const { byHand, token } = await ByHand.begin(url);
    const peer = await coming;
    byHand.say([{ jsonrpc: "2.0", id: 1, method: "add", params: [1, 2] }]);
    for (const frame of [{ ping: 1 }, { ack: 0 }, { later: true }, { ping: 2 }]) byHand.say(frame);
    const answers: unknown[] = [];
    while (!answers.some((frame) => (frame as { pong?: number }).pong === 2)) answers.push(await byHand.next());
    const gone = emitted(peer, "suspend");
    byHand.cut();
    await gone;
    const { byHand: next, answer } = await ByHand.resume(url, token, 1);
    expect(answer).toEqual({ resumed: { token: expect.any(String), received: 1 } });
    // The response is replayed, and none of the pongs and acks sent with it.
    expect(await next.next()).toEqual([{ jsonrpc: "2.0", id: 1, result: 3 }]);
    next.say({ ping: 3 });
    expect(await next.next()).toEqual({ pong: 3 });
  });
});

describe("a client that offers to resume", () => {
  it("is sent nothing between the hello and its own first frame", async () => {
    const { server, url } = await servingOnPort();
    const coming = nextPeer(server);
    const { byHand, token } = await ByHand.begin(url);
    const peer = await coming;
    const gone = emitted(peer, "suspend");
    byHand.cut();
    await gone;
    peer.notify("before", {});
    const returning = await ByHand.open(url, { returns: true });
    expect(await returning.next()).toEqual({
      hello: { session: { token: expect.any(String), ttlMs: 60_000, limits: expect.any(Object) }, bytes: true },
    });
    peer.notify("after", {});
    server.peers.notify("to all", {});
    returning.say({ resume: { token, received: 0, attempt: 1, limits: LIMITS } });
    expect(await returning.next()).toEqual({ resumed: { token: expect.any(String), received: 0 } });
    const methods: string[] = [];
    while (methods.length < 3) methods.push(...(await returning.next()).map((one: { method: string }) => one.method));
    expect(methods).toEqual(["before", "after", "to all"]);
  });
});

describe("a token", () => {
  it("has 22 random characters of an alphabet of 64: 132 bits", async () => {
    const { url } = await servingOnPort();
    const tokens: string[] = [];
    for (let i = 0; i < 50; i++) tokens.push((await ByHand.begin(url)).token);
    for (const token of tokens) expect(token).toMatch(/^[\w-]{22}$/);
    expect(new Set(tokens).size).toBe(50);
    // At each position many different characters occur. For 50 draws of 64, fewer than 15 have a probability below 1e-12.
    for (let place = 0; place < 22; place++) {
      expect(new Set(tokens.map((token) => token[place])).size).toBeGreaterThanOrEqual(15);
    }
  });
});

describe("a value in the shape of a stream", () => {
  it("is plain data for a caller that does not read it", async () => {
    const value = { token: 7, values: [1, 2] };
    const [, peer] = pair({ methods: { whole: () => value, inside: () => ({ deep: [value] }) } }, {});
    expect(await peer.request("whole")).toEqual(value);
    expect(await peer.request("inside")).toEqual({ deep: [value] });
    await peer.close();
  });
});
