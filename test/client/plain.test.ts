/** A client of a plain server reconnects only if `onOpen` is set or `reconnect` is true. */
import { expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import type { Caller } from "../../src/index.js";
import { gate, rejection } from "../support/turns.js";
import { bareServer, describeClients, event, record, type Connect } from "./clients.js";
import { Relay } from "./relay.js";

/** Returns the calls that the server got from one moment on. */
function since(heard: [string, unknown][]): () => string[] {
  const from = heard.length;
  return () => heard.slice(from).map(([method]) => method);
}

async function logIn(server: Caller<any>): Promise<void> {
  await server.request("login", ["me"]);
  server.notify("ready");
}

describeClients("a client of a plain server with onOpen", (connect: Connect, isNode) => {
  it("runs it on the first open and after each loss, before queued calls and notifications", async () => {
    await using bare = await bareServer();
    await using relay = await Relay.to(bare.url);
    await using peer = await connect(relay.url, { onOpen: logIn });
    const told = record(peer);
    expect(await peer.request("a", [1])).toEqual([1]);
    expect(bare.heard.map(([method]) => method)).toEqual(["login", "ready", "a"]);
    for (let round = 0; round < 2; round++) {
      const heard = since(bare.heard);
      const unanswered = rejection(peer.request("never"));
      await peer.request("flushed", []);
      const lost = event(peer, "lost");
      await relay.close();
      await lost;
      expect(await unanswered).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      expect(peer.state).toBe("suspended");
      const calls = [peer.request("b", [2]), peer.request("c", [3])];
      expect(peer.notify("d")).toBe(true);
      const back = event(peer, "resume");
      await relay.open();
      expect(await Promise.all(calls)).toEqual([[2], [3]]);
      await back;
      expect(peer.state).toBe("open");
      await peer.request("e", []);
      expect(heard()).toEqual(["never", "flushed", "login", "ready", "b", "c", "d", "e"]);
    }
    expect(told).toEqual(["suspend", "lost", "resume", "suspend", "lost", "resume"]);
  });

  it("queues calls until a slow one is done, but answers calls of the server", async () => {
    await using bare = await bareServer();
    await using relay = await Relay.to(bare.url);
    const [begun, go] = [gate(), gate()];
    let runs = 0;
    const onOpen = async (server: Caller<any>): Promise<void> => {
      if (++runs === 1) return;
      await server.request("login", []);
      begun.resolve();
      await go.promise;
      server.notify("done");
    };
    await using peer = await connect(relay.url, { onOpen, methods: { ask: () => "answered" } });
    const told = record(peer);
    relay.cut();
    await event(peer, "lost");
    const call = peer.request("a", []);
    await begun.promise;
    expect(peer.state).toBe("suspended");
    const [webSocket] = bare.webSockets;
    const answered = new Promise((resolve) => webSocket!.prependListener("message", (data) => resolve(String(data))));
    webSocket!.send('{"jsonrpc":"2.0","id":7,"method":"ask"}');
    expect(JSON.parse((await answered) as string)).toEqual({ jsonrpc: "2.0", id: 7, result: "answered" });
    expect(bare.heard.map(([method]) => method)).toEqual(["login", undefined]);
    go.resolve();
    expect(await call).toEqual([]);
    expect(bare.heard.map(([method]) => method).slice(2)).toEqual(["done", "a"]);
    expect(told).toEqual(["suspend", "lost", "resume"]);
  });

  it("rejects if the first one fails, with its error, and leaves nothing", async () => {
    await using bare = await bareServer();
    const failure = new Error("who are you?");
    const error = await rejection(connect(bare.url, { onOpen: () => Promise.reject(failure) }));
    expect(error).toBe(failure);
    await expect.poll(() => [bare.webSockets.size, countDeadlines().waiting]).toEqual([0, 0]);
    expect(bare.offers).toHaveLength(2);
  });

  it("retries without an event if the socket is lost during one", async () => {
    await using bare = await bareServer();
    await using relay = await Relay.to(bare.url);
    let runs = 0;
    const onOpen = async (server: Caller<any>): Promise<void> => {
      if (++runs === 2) relay.cut();
      await server.request("login", [runs]);
    };
    await using peer = await connect(relay.url, { onOpen });
    const told = record(peer);
    const back = event(peer, "resume");
    relay.cut();
    await back;
    expect(told).toEqual(["suspend", "lost", "lost", "resume"]);
    expect(runs).toBe(3);
  });

  it("makes the same offer at each attempt", async () => {
    await using bare = await bareServer();
    await using peer = await connect(bare.url, { onOpen: () => {} });
    const back = event(peer, "resume");
    for (const webSocket of bare.webSockets) webSocket.terminate();
    await back;
    // A server that has never sent hello can do so after an update.
    expect(bare.offers).toEqual(["reciproc.v1", "", "reciproc.v1", ""]);
    expect(isNode || bare.requests.length === 4).toBe(true);
  });
});

describeClients("a client of a plain server", (connect: Connect) => {
  it("ends with its socket without `onOpen` and `reconnect`", async () => {
    await using bare = await bareServer();
    await using relay = await Relay.to(bare.url);
    const peer = await connect(relay.url);
    const told = record(peer);
    await peer.request("a", []);
    const call = rejection(peer.request("never"));
    relay.cut();
    expect(await call).toMatchObject({ outcome: "unknown" });
    await peer.closed;
    expect(told).toEqual(["close 1006"]);
    expect(relay.accepted).toBe(2);
  });

  it("reconnects with `reconnect: true`, and reports that it lost its pending calls", async () => {
    await using bare = await bareServer();
    await using relay = await Relay.to(bare.url);
    await using peer = await connect(relay.url, { reconnect: true });
    const told = record(peer);
    await peer.request("a", []);
    const call = rejection(peer.request("never"));
    await peer.request("flushed", []);
    const back = event(peer, "resume");
    relay.cut();
    expect(await call).toMatchObject({ outcome: "unknown" });
    await back;
    expect(await peer.request("b", [1])).toEqual([1]);
    expect(told).toEqual(["suspend", "lost", "resume"]);
  });
});
