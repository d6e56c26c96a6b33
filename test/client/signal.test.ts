/** `connect` with a `signal`: an abort ends it at once in any state, and leaves nothing. */
import { getEventListeners, once } from "node:events";
import { createServer as createTcpServer, type Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { pass, useFakeClock } from "../support/clock.js";
import { listening } from "../support/network.js";
import { Outcomes, rejection } from "../support/turns.js";
import { describeClients, type Connect } from "./clients.js";
import { type Answer, connectVirtual, METHODS, network, refuse, says, server, useVirtualServer } from "./virtual.js";

const REASON = new Error("the user went elsewhere");

/** Makes a signal, a function that aborts it, and one that counts its listeners. */
function stopper(): { signal: AbortSignal; abort: () => void; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  return {
    signal,
    abort: () => controller.abort(REASON),
    listeners: () => getEventListeners(signal, "abort").length,
  };
}

function expectNothingLeft(): void {
  expect(network.lines.size).toBe(0);
  expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
}

describe("connect with a signal", () => {
  useFakeClock();
  useVirtualServer(METHODS);

  it("rejects with its reason if it is already aborted, and opens nothing", async () => {
    const { signal, abort, listeners } = stopper();
    abort();
    for (const reconnect of [undefined, { initial: true }])
      expect(await rejection(connectVirtual({ signal, reconnect }))).toBe(REASON);
    expect(network.attempts).toEqual([]);
    expect(listeners()).toBe(0);
  });

  it.each<[string, Answer, object]>([
    ["that does not open", () => {}, {}],
    ["that does not open, and has for ever to do so", () => {}, { openTimeoutMs: Infinity }],
    ["whose server agrees and says nothing", says(), {}],
  ])("stops an attempt %s", async (_name, answer, options) => {
    const { signal, abort, listeners } = stopper();
    network.answer = answer;
    const outcomes = new Outcomes().watch("connect", connectVirtual({ ...options, signal }));
    await pass(50);
    expect(outcomes.list).toEqual([]);
    abort();
    await pass(0);
    expect(outcomes.list).toEqual([{ name: "connect", reason: REASON }]);
    expect(listeners()).toBe(0);
    expectNothingLeft();
    await pass(60_000);
    expect(network.attempts).toHaveLength(1);
  });

  it("stops the delay between two attempts of `initial`, and the attempts", async () => {
    const { signal, abort, listeners } = stopper();
    network.answer = refuse;
    const connecting = rejection(connectVirtual({ signal, reconnect: { initial: true } }));
    await pass(100_000);
    const { length } = network.attempts;
    expect(length).toBeGreaterThan(3);
    // One listener, however many attempts there were.
    expect(listeners()).toBe(1);
    abort();
    await pass(0);
    expect(await connecting).toBe(REASON);
    expect(listeners()).toBe(0);
    expectNothingLeft();
    await pass(100_000);
    expect(network.attempts).toHaveLength(length);
  });

  it("rejects or resolves with an open peer, whichever microtask aborts it", async () => {
    const ends = new Set<string>();
    for (let moment = 0; moment < 60; moment++) {
      const { signal, abort, listeners } = stopper();
      const connecting = connectVirtual({ signal }).then(
        (peer) => peer,
        (reason: unknown) => reason,
      );
      for (let i = 0; i < moment; i++) await Promise.resolve();
      abort();
      await pass(0);
      const end: any = await connecting;
      ends.add(end === REASON ? "rejects" : "resolves");
      if (end !== REASON) {
        expect(end.state).toBe("open");
        expect(network.lines.size).toBe(1);
        await end.close();
        await pass(0);
      }
      expect(listeners()).toBe(0);
      expect(network.lines.size).toBe(0);
    }
    expect(ends).toEqual(new Set(["rejects", "resolves"]));
  });

  it("ends a running `onOpen`, and closes its connection", async () => {
    const { signal, abort, listeners } = stopper();
    const calls: Promise<unknown>[] = [];
    const onOpen = async (remote: any): Promise<void> => {
      calls.push(rejection(remote.request("never")));
      await new Promise(() => {});
    };
    const connecting = rejection(connectVirtual({ signal, onOpen }));
    await pass(1000);
    expect(calls).toHaveLength(1);
    abort();
    await pass(0);
    expect(await connecting).toBe(REASON);
    expect(await calls[0]).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(server.peers.map(({ state }) => state)).toEqual(["closed"]);
    expect(listeners()).toBe(0);
    expectNothingLeft();
  });

  it("has no effect once it has resolved, and has no listener after it has settled", async () => {
    const { signal, abort, listeners } = stopper();
    const peer = await connectVirtual({ signal, onOpen: () => {} });
    expect(listeners()).toBe(0);
    await pass(10);
    abort();
    network.cut();
    await pass(1000);
    expect(peer.state).toBe("open");
    const other = stopper();
    network.answer = refuse;
    expect(await rejection(connectVirtual({ signal: other.signal }))).toMatchObject({ code: "CONNECT_FAILED" });
    const failing = { signal: other.signal, onOpen: () => Promise.reject(REASON) };
    network.answer = server.answer;
    expect(await rejection(connectVirtual(failing))).toBe(REASON);
    expect(other.listeners()).toBe(0);
    await pass(1);
    // That of the peer.
    expect(network.lines.size).toBe(1);
  });
});

describeClients("connect with a signal", (connect: Connect) => {
  it.each([undefined, { initial: true }])(
    "disconnects from a server that never answers (reconnect: %j)",
    async (reconnect) => {
      const { signal, abort, listeners } = stopper();
      const listener = createTcpServer();
      await using silent = await listening(listener);
      const arrival = once(listener, "connection");
      const connecting = rejection(connect(silent.url, { signal, reconnect }));
      const [socket] = (await arrival) as [Socket];
      socket.resume();
      socket.on("error", () => {});
      const gone = once(socket, "close");
      abort();
      expect(await connecting).toBe(REASON);
      await gone;
      expect(listeners()).toBe(0);
      expect(countDeadlines().waiting).toBe(0);
    },
  );

  it.each([
    [null, "`null`"],
    [true, "`true` (boolean)"],
    [new AbortController(), "an object"],
  ])("refuses %s as a signal, whatever the other options are", async (signal, shown) => {
    const error = await rejection(connect("ws://127.0.0.1:9", { signal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`signal\` to be an AbortSignal, got ${shown}`);
  });
});
