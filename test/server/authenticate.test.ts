import type { IncomingMessage } from "node:http";
import { describe, expect, it, vi } from "vitest";
import { connect, serve, type AnyPeer } from "../../src/node.js";
import { sendUpgrade, upgrade } from "../support/network.js";
import { maskedFrames } from "../../src/sockets/frames.js";
import { gate, turn } from "../support/turns.js";
import { recorded } from "./by-hand.js";

describe("authenticate", () => {
  it.each<[string, object, unknown]>([
    ["its result", { authenticate: ({ headers }: IncomingMessage) => headers.cookie }, "alice"],
    ["the value of its promise", { authenticate: async () => "bob" }, "bob"],
    ["undefined if it is not set", {}, undefined],
  ])("gets the request, and peer.auth is %s", async (_what, options, auth) => {
    await using server = await serve({ port: 0, ...options });
    const coming = new Promise<AnyPeer>((resolve) => server.on("peer", resolve));
    await using client = await connect(server.url, { headers: { cookie: "alice" } });
    expect((await coming).auth).toBe(auth);
    expect(client.state).toBe("open");
  });

  it.each<[string, () => unknown, number]>([
    ["null", () => null, 0],
    ["undefined", () => undefined, 0],
    ["false", () => false, 0],
    ["an empty string: `auth && verify(auth)`", () => "", 0],
    ["0", () => 0, 0],
    ["0n", () => 0n, 0],
    ["NaN", () => NaN, 0],
    ["a promise of null", async () => null, 0],
    ["a promise of an empty string", async () => "", 0],
    [
      "a throw",
      () => {
        throw new Error("secret");
      },
      1,
    ],
    ["a rejection", () => Promise.reject(new Error("secret")), 1],
    ["a rejection with null", () => Promise.reject(null), 1],
  ])("refuses with 401 for %s, without a reason", async (_name, authenticate, thrown) => {
    await using server = await serve({ port: 0, authenticate });
    const { refusals, errors } = recorded(server);
    const answer = await upgrade(server.url);
    expect(answer).toMatchObject({ status: 401, body: "authentication failed\n" });
    expect(answer.headers["connection"]).toBe("close");
    expect(refusals).toEqual(["401 authentication failed"]);
    expect(errors).toHaveLength(thrown);
    expect(server.peers.size).toBe(0);
  });

  it("is refused with 503 if it takes too long, and its late result makes no peer", async () => {
    const late = gate<object>();
    await using server = await serve({
      port: 0,
      authenticate: () => late.promise,
      limits: { handshakeTimeoutMs: 500 },
    });
    const { refusals } = recorded(server);
    const answer = await upgrade(server.url);
    expect(answer.status).toBe(503);
    expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
    expect(refusals).toEqual(["503 authentication took longer than 500 ms"]);
    late.resolve({});
    await turn();
    expect(server.peers.size).toBe(0);
  });

  it.each([2 ** 31, Infinity])("can take as long as handshakeTimeoutMs allows: %d", async (handshakeTimeoutMs) => {
    const open = gate<object>();
    const asked = gate();
    const authenticate = (): Promise<object> => (asked.resolve(), open.promise);
    await using server = await serve({ port: 0, authenticate, limits: { handshakeTimeoutMs } });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const answer = upgrade(server.url);
      await asked.promise;
      await vi.advanceTimersByTimeAsync(60_000);
      open.resolve({});
      expect((await answer).status).toBe(101);
    } finally {
      vi.useRealTimers();
    }
  });

  it.each([
    ["lets them in", {}],
    ["refuses them", null],
  ])("makes no peer for a client that disconnected, and serves others, if it %s", async (_name, verdict) => {
    const gates = [gate<object | null>(), gate<object | null>()];
    const asked = [gate(), gate()];
    let count = 0;
    const authenticate = (): Promise<object | null> => {
      const i = count++;
      asked[i]?.resolve();
      return gates[i]?.promise ?? Promise.resolve({});
    };
    await using server = await serve({ port: 0, authenticate, methods: { fine: () => true } });
    const politely = await sendUpgrade(server.url);
    await asked[0]!.promise;
    politely.destroy();
    const rudely = await sendUpgrade(server.url);
    await asked[1]!.promise;
    rudely.resetAndDestroy();
    for (const { resolve } of gates) resolve(verdict);
    await using peer = await connect(server.url);
    expect(await peer.request("fine")).toBe(true);
    expect(server.peers.size).toBe(1);
  });

  it("runs only for clients that passed the other rules", async () => {
    let asked = 0;
    await using server = await serve({ port: 0, path: "/rpc", authenticate: () => ++asked });
    await upgrade(server.url, { Origin: "https://evil.example" });
    await upgrade(server.url, { Host: "evil.example" });
    await upgrade(server.url.replace("/rpc", "/other"));
    expect(asked).toBe(0);
    expect((await upgrade(server.url)).status).toBe(101);
    expect(asked).toBe(1);
  });

  it("can be slow while the client already sends: no message is lost", async () => {
    const open = gate<object>();
    await using server = await serve({ port: 0, authenticate: () => open.promise, methods: { m: () => "heard" } });
    const socket = await sendUpgrade(server.url);
    socket.write(maskedFrames(['{"jsonrpc":"2.0","id":1,"method":"m"}']));
    open.resolve({});
    let text = "";
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.includes("result")) break;
    }
    expect(text).toContain('{"jsonrpc":"2.0","id":1,"result":"heard"}');
  });
});
