import { once } from "node:events";
import { connect as connectTcp } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { connect, serve } from "../../src/node.js";
import { bareHttp, portOf, sendUpgrade, plainPeer, upgrade } from "../support/network.js";
import { gate, rejection, turn } from "../support/turns.js";

describe("server.close()", () => {
  it("closes every peer with 1001, settles pending calls, and frees the port", async () => {
    const aborted = gate<unknown>();
    const server = await serve({
      port: 0,
      methods: {
        slow: (_params, { signal }) =>
          new Promise((resolve) => signal.addEventListener("abort", () => resolve(aborted.resolve(signal.reason)))),
        ask: (_params, { peer }) => peer.request("never"),
      },
    });
    const client = await connect(server.url, { reconnect: false, methods: { never: () => new Promise(() => {}) } });
    const asked = rejection(client.request("ask"));
    const slow = rejection(client.request("slow"));
    using other = await plainPeer(server.url);
    const ready = client.request("ready").catch(() => {});
    await ready;
    await server.close();
    expect(await client.closed).toMatchObject({ code: 1001, reason: "the server is closing" });
    expect(await other.closed).toEqual({ code: 1001, reason: "the server is closing" });
    expect(await asked).toMatchObject({ outcome: "unknown" });
    expect(await slow).toMatchObject({ outcome: "unknown" });
    expect(await aborted.promise).toMatchObject({ message: "closed on this side with 1001 (the server is closing)" });
    expect(server.peers.size).toBe(0);
    await using again = await serve({ port: portOf(other.webSocket.url) });
    expect(again.url).not.toBe("");
  });

  it("closes once, however often it is called, and `await using` calls it too", async () => {
    const server = await serve({ port: 0 });
    await using client = await connect(server.url, { reconnect: false });
    const closing = server.close();
    expect(server.close()).toBe(closing);
    await closing;
    await server.close();
    await server[Symbol.asyncDispose]();
    expect((await client.closed).code).toBe(1001);
  });

  it("cuts a client that never answers the close after 5 s", async () => {
    const server = await serve({ port: 0 });
    const mute = await sendUpgrade(server.url);
    await once(mute, "data");
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const goodbye = once(mute, "data");
      let closed = false;
      const closing = server.close().then(() => (closed = true));
      // A close frame: 1001, then the reason.
      const [frame] = (await goodbye) as [Buffer];
      expect([frame[0], frame.readUInt16BE(2)]).toEqual([0x88, 1001]);
      await vi.advanceTimersByTimeAsync(4_900);
      await turn();
      expect(closed).toBe(false);
      const cut = once(mute, "close");
      await vi.advanceTimersByTimeAsync(100);
      await Promise.all([cut, closing]);
    } finally {
      vi.useRealTimers();
    }
  });

  it("does not wait for a running authenticate, whose result then makes no peer", async () => {
    const open = gate<object>();
    const asked = gate();
    const server = await serve({ port: 0, authenticate: () => (asked.resolve(), open.promise) });
    let peers = 0;
    server.on("peer", () => peers++);
    const socket = await sendUpgrade(server.url);
    const ended = once(socket, "close");
    socket.on("error", () => {});
    await asked.promise;
    await server.close();
    await ended;
    open.resolve({});
    await turn();
    expect(peers).toBe(0);
  });

  it.each([
    ["sends nothing", ""],
    ["stops within its request", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow:"],
    ["keeps its connection alive", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"],
  ])("does not wait for an HTTP client that %s", async (_what, text) => {
    const server = await serve({ port: 0 });
    const socket = connectTcp(portOf(server.url), "127.0.0.1");
    socket.on("error", () => {});
    await once(socket, "connect");
    socket.write(text);
    // The server has accepted the connection: it answers a later one.
    expect((await upgrade(server.url)).status).toBe(101);
    socket.resume();
    const ended = once(socket, "close");
    await server.close();
    await ended;
  });

  it("refuses new clients with 503 and Retry-After while peers are closing", async () => {
    await using http = await bareHttp();
    for (const server of [await serve({ port: 0 }), await serve({ server: http.server })]) {
      const mute = await sendUpgrade(server.url);
      await once(mute, "data");
      const { url } = server;
      const goodbye = once(mute, "data");
      const closing = server.close();
      await goodbye;
      const answer = await upgrade(url);
      expect(answer.status).toBe(503);
      expect(Number(answer.headers["retry-after"])).toBeGreaterThan(0);
      mute.destroy();
      await closing;
    }
  });
});
