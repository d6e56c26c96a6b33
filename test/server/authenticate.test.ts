import { describe, expect, it, vi } from "vitest";
import { connect, serve, type Server } from "../../src/node.js";
import { sendUpgrade, upgrade } from "../support/network.js";
import { gate, rejection, turn } from "../support/turns.js";

type Anyone = Server;

/** Records a server's refusals and errors. */
function listen(server: Anyone): { refusals: string[]; errors: unknown[] } {
  const refusals: string[] = [];
  const errors: unknown[] = [];
  server.on("refuse", ({ status, reason }) => refusals.push(`${status} ${reason}`));
  server.on("error", (error) => errors.push(error));
  return { refusals, errors };
}

describe("authenticate", () => {
  it("gets the request, and its result becomes peer.data", async () => {
    await using server = await serve({
      port: 0,
      authenticate: ({ headers }) => ({ user: headers.cookie }),
      methods: { who: (_params, { peer }) => (peer.data as { user: string }).user },
    });
    await using peer = await connect(server.url, { headers: { cookie: "alice" } });
    expect(await peer.request("who")).toBe("alice");
  });

  it.each([0, ""])("admits a client if it returns %j: any value admits", async (data) => {
    await using server = await serve({
      port: 0,
      authenticate: async () => data,
      methods: { who: (_params, { peer }) => [peer.data] },
    });
    await using peer = await connect(server.url);
    expect(await peer.request("who")).toEqual([data]);
  });

  it("leaves data undefined if it is not set", async () => {
    await using server = await serve({ port: 0, methods: { who: (_params, { peer }) => typeof peer.data } });
    await using peer = await connect(server.url);
    expect(await peer.request("who")).toBe("undefined");
  });

  it.each<[string, () => unknown, number]>([
    ["null", () => null, 0],
    ["undefined", () => undefined, 0],
    ["false", () => false, 0],
    ["a promise of null", async () => null, 0],
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
    const { refusals, errors } = listen(server);
    const answer = await upgrade(server.url);
    expect(answer).toMatchObject({ status: 401, body: "authentication failed\n" });
    expect(answer.headers["connection"]).toBe("close");
    expect(refusals).toEqual(["401 authentication failed"]);
    expect(errors).toHaveLength(thrown);
    expect(server.peers.size).toBe(0);
  });

  it("is refused with 503 if it takes too long, and its late result makes no peer", async () => {
    const late = gate<object>();
    await using server = await serve({ port: 0, authenticate: () => late.promise, limits: { handshakeTimeoutMs: 20 } });
    const { refusals } = listen(server);
    const answer = await upgrade(server.url);
    expect(answer.status).toBe(503);
    expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
    expect(refusals).toEqual(["503 authentication took longer than 20 ms"]);
    late.resolve({});
    await turn();
    expect(server.peers.size).toBe(0);
  });

  it("can take longer than the longest delay of setTimeout if the limit allows it", async () => {
    const open = gate<object>();
    const asked = gate();
    const authenticate = (): Promise<object> => (asked.resolve(), open.promise);
    await using server = await serve({ port: 0, authenticate, limits: { handshakeTimeoutMs: 2 ** 31 } });
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

  it("has no timeout if handshakeTimeoutMs is Infinity", async () => {
    const open = gate<object>();
    const asked = gate();
    const authenticate = (): Promise<object> => (asked.resolve(), open.promise);
    await using server = await serve({ port: 0, authenticate, limits: { handshakeTimeoutMs: Infinity } });
    const answer = upgrade(server.url);
    await asked.promise;
    open.resolve({});
    expect((await answer).status).toBe(101);
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

  it("runs concurrently for several clients", async () => {
    const slow = gate<string>();
    await using server = await serve({
      port: 0,
      authenticate: ({ headers }) => (headers.cookie === "slow" ? slow.promise : "quick"),
      methods: { who: (_params, { peer }) => peer.data },
    });
    const first = connect(server.url, { headers: { cookie: "slow" } });
    await using second = await connect(server.url);
    expect(await second.request("who")).toBe("quick");
    slow.resolve("slow");
    await using peer = await first;
    expect(await peer.request("who")).toBe("slow");
  });

  it("can be slow while the client already sends: no message is lost", async () => {
    const open = gate<object>();
    await using server = await serve({ port: 0, authenticate: () => open.promise, methods: { m: () => "heard" } });
    const socket = await sendUpgrade(server.url);
    socket.write(maskedFrame('{"jsonrpc":"2.0","id":1,"method":"m"}'));
    open.resolve({});
    let text = "";
    for await (const chunk of socket) {
      text += String(chunk);
      if (text.includes("result")) break;
    }
    expect(text).toContain('{"jsonrpc":"2.0","id":1,"result":"heard"}');
  });

  it("reports its status to the client when it refuses", async () => {
    await using server = await serve({ port: 0, authenticate: () => null });
    expect(await rejection(connect(server.url))).toMatchObject({ name: "ConnectError", status: 401 });
  });
});

/** Makes a short text frame of a client (RFC 6455, section 5.2). A mask of zeros changes nothing. */
function maskedFrame(text: string): Buffer {
  return Buffer.concat([Buffer.of(0x81, 0x80 | text.length, 0, 0, 0, 0), Buffer.from(text)]);
}
