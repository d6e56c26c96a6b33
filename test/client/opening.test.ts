/** A peer that `open` returns before it is connected: its queue, its attempts, and how it ends. */
import { getEventListeners } from "node:events";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConnectError, ConnectionLostError, open, TimeoutError, type AnyPeer } from "../../src/index.js";
import { open as openNode, serve } from "../../src/node.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { pair } from "../../src/pair.js";
import { pass, useFakeClock } from "../support/clock.js";
import { gate, rejection } from "../support/turns.js";
import { event, record } from "./clients.js";
import { dismiss, METHODS, network, plainEcho, refuse, server, URL, useVirtualServer, type Answer } from "./virtual.js";

/** `open` of the standard entry, untyped. */
const openVirtual = open as (url: string, options?: object) => AnyPeer;

const REASON = new Error("the user went elsewhere");

/** Asserts that a peer that never opened has ended for `cause`, and leaves nothing. */
async function expectNeverOpen(peer: AnyPeer, cause: unknown): Promise<void> {
  expect(await rejection(peer.opened)).toBe(cause);
  expect(peer.state).toBe("closed");
  expect(network.lines.size).toBe(0);
  expect(countDeadlines().waiting).toBe(0);
}

/** Opens a peer, and records its events. Its server accepts it when the test calls the result's `accept`. */
function connecting(options?: object): { peer: AnyPeer; emitted: string[]; accept: () => void } {
  const { answer } = network;
  network.answer = () => {};
  const peer = openVirtual(URL, options);
  return { peer, emitted: record(peer), accept: () => answer(network.last) };
}

/** Returns a controller, and a function that counts the listeners of its signal. */
function stopper(): { controller: AbortController; listeners: () => number } {
  const controller = new AbortController();
  return { controller, listeners: () => getEventListeners(controller.signal, "abort").length };
}

const add = ([a, b]: [number, number]): number => a + b;

describe("a peer that is connecting", () => {
  useFakeClock();
  const heard: unknown[] = [];
  beforeEach(() => void (heard.length = 0));
  const note = (params: unknown): void => void heard.push(params);
  useVirtualServer({ ...METHODS, note });

  it.each([undefined, { link: "plain" }, { onOpen: () => {} }])(
    "is returned at once, and queues calls and notifications in order until it is open (options: %j)",
    async (options) => {
      const { peer, emitted, accept } = connecting(options);
      expect(peer.state).toBe("connecting");
      const calls = [0, 2].map((i) => {
        const call = peer.request("echo", [i]);
        expect(peer.notify("note", [i])).toBe(true);
        return call;
      });
      await pass(1000);
      expect(peer.state).toBe("connecting");
      accept();
      await peer.opened;
      expect(peer.state).toBe("open");
      await pass(1);
      expect(await Promise.all(calls)).toEqual([[0], [2]]);
      expect(heard).toEqual([[0], [2]]);
      expect(emitted).toEqual([]);
      await peer.close();
    },
  );

  it("delivers the server's first messages to listeners that are added right after `opened`", async () => {
    const hi = '{"jsonrpc":"2.0","method":"hi","params":[1]}';
    network.answer = ({ line }) => void line.accept("").send(hi);
    const peer = openVirtual(URL, { link: "plain" });
    await peer.opened;
    peer.on("notification", (method, params) => heard.push([method, params]));
    await pass(1);
    expect(heard).toEqual([["hi", [1]]]);
    await peer.close();
  });

  it("sends what was queued after `onOpen`, and is connecting until that is done", async () => {
    const go = gate();
    const onOpen = async (remote: { notify: (method: string, params: unknown) => void }): Promise<void> => {
      remote.notify("note", ["first"]);
      await go.promise;
    };
    const peer = openVirtual(URL, { onOpen });
    peer.notify("note", ["queued"]);
    await pass(10);
    expect(peer.state).toBe("connecting");
    expect(heard).toEqual([["first"]]);
    go.resolve();
    await peer.opened;
    await pass(1);
    expect(heard).toEqual([["first"], ["queued"]]);
    await peer.close();
  });

  it("refuses what exceeds half of `maxUnsentBytes`, with an error", async () => {
    const { peer, accept } = connecting({ limits: { maxUnsentBytes: 20_000, maxMessageBytes: 5000 } });
    const taken = Array.from({ length: 20 }, () => peer.notify("note", ["x".repeat(1000)]));
    expect(taken.filter(Boolean).length).toBe(9);
    expect(taken.lastIndexOf(true)).toBe(8);
    const refused = await rejection(peer.request("echo", ["x".repeat(1000)]));
    expect(refused).toBeInstanceOf(ConnectionLostError);
    expect(refused).toMatchObject({ outcome: "not-sent", cause: { message: "the queue is full" } });
    accept();
    await peer.opened;
    await pass(1);
    expect(heard).toHaveLength(9);
    await peer.close();
  });

  it("keeps the timeouts and the signals of its calls, and the server never gets such a call", async () => {
    const { peer, accept } = connecting();
    const controller = new AbortController();
    const aborted = rejection(peer.request("echo", [1], { signal: controller.signal }));
    const late = rejection(peer.request("echo", [2], { timeoutMs: 1000 }));
    const other = peer.request("echo", [3]);
    controller.abort(REASON);
    expect(await aborted).toBe(REASON);
    await pass(1000);
    expect(await late).toBeInstanceOf(TimeoutError);
    expect(await late).toMatchObject({ outcome: "not-sent" });
    accept();
    await pass(10);
    expect(await other).toEqual([3]);
    expect(network.last.line.sent.join()).not.toMatch(/\[1\]|\[2\]|cancel/);
    await peer.close();
  });

  it("sends a stream that it offered while it was connecting", async () => {
    const peer = openVirtual(URL);
    const call = peer.request("echo", { values: peer.offer([1, 2, 3]) });
    await pass(10);
    expect(await call).toMatchObject({ values: { token: expect.anything() } });
    await peer.close();
  });

  it("closes if it cannot be opened, with the error of `opened` as the cause of its calls", async () => {
    network.answer = refuse;
    const peer = openVirtual(URL, { reconnect: true });
    const emitted = record(peer);
    const failed = rejection(peer.opened);
    const call = rejection(peer.request("echo", []));
    await pass(10);
    const error = await failed;
    expect(error).toBeInstanceOf(ConnectError);
    expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "not-sent", cause: error });
    expect((await call).cause).toBe(error);
    expect(await peer.closed).toMatchObject({ code: 1006, error });
    expect(emitted).toEqual(["close 1006"]);
    expect(peer.notify("note", [])).toBe(false);
    expect(peer.reconnect()).toBe(false);
    await expectNeverOpen(peer, error);
  });

  it("closes with 4401 if the server refuses it with 401", async () => {
    network.answer = dismiss(4401, "not you");
    const peer = openVirtual(URL, { reconnect: { initial: true } });
    await pass(10);
    expect(await peer.closed).toMatchObject({ code: 4401, error: { status: 401 } });
    expect(network.attempts).toHaveLength(1);
    expect(await rejection(peer.opened)).toMatchObject({ name: "ConnectError", status: 401 });
  });

  it("closes if `onOpen` fails, with what that failed with", async () => {
    const peer = openVirtual(URL, { onOpen: () => Promise.reject(REASON), reconnect: true });
    const call = rejection(peer.request("echo", []));
    await pass(10);
    expect(await call).toMatchObject({ outcome: "not-sent", cause: REASON });
    await expectNeverOpen(peer, REASON);
    expect(await peer.closed).toMatchObject({ code: 1000, reason: "`onOpen` failed" });
  });

  it("closes if the connection is lost while `onOpen` runs", async () => {
    const peer = openVirtual(URL, { link: "plain", onOpen: (remote: any) => remote.request("never") });
    const emitted = record(peer);
    await pass(10);
    network.cut();
    await pass(60_000);
    expect(await rejection(peer.opened)).toMatchObject({ message: "closed with 1006" });
    expect(emitted).toEqual(["close 1006"]);
    expect(network.attempts).toHaveLength(1);
  });

  it("begins again with `initial` if the connection is lost while `onOpen` runs", async () => {
    let runs = 0;
    const onOpen = (remote: any): unknown => (++runs === 1 ? remote.request("never") : undefined);
    const peer = openVirtual(URL, { link: "plain", onOpen, reconnect: { initial: true } });
    await pass(10);
    network.cut();
    await pass(1000);
    await peer.opened;
    expect([runs, peer.state]).toEqual([2, "open"]);
    await peer.close();
  });

  it.each<[string, Answer]>([
    ["during an attempt", () => {}],
    ["between two attempts", refuse],
  ])("can be closed %s", async (_when, answer) => {
    network.answer = answer;
    const peer = openVirtual(URL, { reconnect: { initial: true } });
    const emitted = record(peer);
    const call = rejection(peer.request("echo", []));
    await pass(50);
    await peer.close(3000, "enough");
    await pass(0);
    expect(await call).toMatchObject({ outcome: "not-sent" });
    await expectNeverOpen(peer, (await call).cause);
    expect((await call).cause).toMatchObject({ message: "closed on this side with 3000 (enough)" });
    expect(emitted).toEqual(["close 3000"]);
    const { length } = network.attempts;
    await pass(60_000);
    expect(network.attempts).toHaveLength(length);
  });

  it("rejects `opened` also if it is read after the end, and resolves it for a peer that needs no opening", async () => {
    const { peer } = connecting();
    await peer.close();
    expect(await rejection(peer.opened)).toMatchObject({ message: "closed on this side with 1000" });
    const [near] = pair<any, any>({}, {});
    await near.opened;
    expect(near.state).toBe("open");
    expect(near.reconnect()).toBe(false);
    await near.close();
    await near.opened;
  });

  it("throws a TypeError for bad options at once, and makes no attempt", () => {
    expect(() => openVirtual("ftp://x")).toThrow(TypeError);
    expect(() => openVirtual(URL, { reconect: true })).toThrow(/^Unknown name `reconect`/);
    expect(() => openNode(URL, { timeoutMs: -1 })).toThrow(TypeError);
    expect(network.attempts).toEqual([]);
  });

  describe("with a signal", () => {
    it("that is already aborted opens nothing", async () => {
      const { controller, listeners } = stopper();
      controller.abort(REASON);
      const peer = openVirtual(URL, { signal: controller.signal });
      expect(peer.state).toBe("closed");
      await expectNeverOpen(peer, REASON);
      expect(network.attempts).toEqual([]);
      expect(listeners()).toBe(0);
    });

    it.each<[string, Answer]>([
      ["during an attempt", () => {}],
      ["between two attempts", refuse],
    ])("ends %s, with its reason as the cause of the calls", async (_when, answer) => {
      const { controller, listeners } = stopper();
      network.answer = answer;
      const peer = openVirtual(URL, { signal: controller.signal, reconnect: { initial: true } });
      const call = rejection(peer.request("echo", []));
      await pass(1000);
      expect(listeners()).toBe(1);
      controller.abort(REASON);
      await pass(0);
      await expectNeverOpen(peer, REASON);
      expect(await call).toMatchObject({ outcome: "not-sent", cause: REASON });
      expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted", error: REASON });
      expect(listeners()).toBe(0);
    });

    it.each(["open", "suspended"])("ends when it is %s, and has no listener after that", async (state) => {
      const { controller, listeners } = stopper();
      const peer = openVirtual(URL, { signal: controller.signal });
      await peer.opened;
      await pass(10);
      const call = rejection(peer.request("never"));
      await pass(1);
      if (state === "suspended") {
        network.answer = refuse;
        network.cut();
      }
      expect(peer.state).toBe(state);
      controller.abort(REASON);
      await pass(1);
      expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown", cause: REASON });
      expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted" });
      await peer.opened;
      expect(listeners()).toBe(0);
      expect(network.lines.size).toBe(0);
    });
  });

  describe("event `attempt`", () => {
    beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0.5));

    it("reports each retry of the first connection, before its delay", async () => {
      network.answer = refuse;
      const peer = openVirtual(URL, { reconnect: { initial: true } });
      const attempts: any[] = [];
      peer.on("attempt", (attempt) => attempts.push([performance.now(), attempt]));
      const from = performance.now();
      await pass(1000);
      expect(attempts.map(([at, { number, delayMs }]) => [at - from, number, delayMs])).toEqual([
        [0, 2, 300],
        [300, 3, 550],
        [850, 4, 1050],
      ]);
      for (const [, { error }] of attempts) expect(error).toBeInstanceOf(ConnectError);
      await peer.close();
    });

    it("reports each attempt after a loss, after `suspend` and `lost`, with the close and the server's delay", async () => {
      const peer = openVirtual(URL);
      await peer.opened;
      await pass(6000);
      const emitted = record(peer);
      const errors: unknown[] = [];
      peer.on("attempt", ({ number, delayMs, error }) => {
        emitted.push(`attempt ${number} after ${delayMs}`);
        errors.push(error.message);
      });
      network.cut();
      await pass(10);
      network.answer = refuse;
      const { line } = network.last;
      line.near.message('{"bye":{"code":1001,"reason":"restarting","retryMs":4000}}');
      line.end({ code: 1001, reason: "restarting" });
      await pass(1);
      network.answer = server.answer;
      await pass(2000);
      expect(emitted).toEqual([
        "suspend",
        "attempt 1 after 0",
        "resume",
        "suspend",
        "lost",
        "attempt 1 after 2000",
        "resume",
      ]);
      expect(errors).toEqual(["the connection ended with 1006", "the connection ended with 1001 (restarting)"]);
      await peer.close();
    });

    it("emits `error` for a listener that throws, and goes on", async () => {
      network.answer = refuse;
      const peer = openVirtual(URL, { reconnect: { initial: true } });
      const emitted = record(peer);
      peer.on("attempt", () => {
        throw REASON;
      });
      await pass(10);
      network.answer = server.answer;
      await pass(1000);
      await peer.opened;
      expect(emitted).toEqual([`error ${REASON.message}`]);
      await peer.close();
    });
  });

  describe("`reconnect()`", () => {
    beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0.5));

    it("skips the delay between two attempts", async () => {
      network.answer = refuse;
      const peer = openVirtual(URL, { reconnect: { initial: true } });
      await pass(3000);
      network.answer = server.answer;
      expect(peer.reconnect()).toBe(true);
      await pass(1);
      await peer.opened;
      expect(peer.state).toBe("open");
      await peer.close();
    });

    it("skips the delay that the server asked for", async () => {
      const peer = openVirtual(URL);
      await peer.opened;
      await pass(10);
      const { line } = network.last;
      line.near.message('{"bye":{"code":1001,"reason":"restarting","retryMs":60000}}');
      line.end({ code: 1001, reason: "restarting" });
      await pass(1000);
      expect(peer.state).toBe("suspended");
      expect(peer.reconnect()).toBe(true);
      await pass(1);
      expect(peer.state).toBe("open");
      await peer.close();
    });

    it("makes the next attempt follow at once if it is called in `suspend`, or during an attempt", async () => {
      const peer = openVirtual(URL);
      await peer.opened;
      peer.on("suspend", () => peer.reconnect());
      for (let i = 0; i < 3; i++) {
        await pass(10);
        const from = performance.now();
        network.cut();
        await pass(1);
        expect(network.times(from)).toEqual([0]);
        expect(peer.state).toBe("open");
      }
      await peer.close();
    });

    it("drops nothing of an open connection whose server answers", async () => {
      const peer = openVirtual(URL);
      await peer.opened;
      await pass(10);
      const emitted = record(peer);
      expect(peer.reconnect()).toBe(true);
      await pass(10_000);
      expect(emitted).toEqual([]);
      expect(network.attempts).toHaveLength(1);
      await peer.close();
    });

    it("drops the socket of a server that does not answer within 5 s", async () => {
      const peer = openVirtual(URL);
      await peer.opened;
      await pass(10);
      const emitted = record(peer);
      network.last.line.freeze();
      expect(peer.reconnect()).toBe(true);
      await pass(4999);
      expect(emitted).toEqual([]);
      await pass(2);
      expect(emitted).toEqual(["suspend", "resume"]);
      await peer.close();
    });

    it("does nothing on a closed peer", async () => {
      const peer = openVirtual(URL);
      await pass(10);
      await peer.close();
      expect(peer.reconnect()).toBe(false);
      await pass(1000);
      expect(network.attempts).toHaveLength(1);
    });
  });

  it("reports nothing as unhandled if nothing awaits `opened`", async () => {
    const unhandled: unknown[] = [];
    const listen = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", listen);
    network.answer = plainEcho;
    const peer = openVirtual(URL, { onOpen: () => Promise.reject(REASON) });
    // Reading it makes the promise.
    void peer.opened;
    await pass(10);
    expect(peer.state).toBe("closed");
    await pass(1);
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });
});

describe("a peer that is opened over real sockets", () => {
  it("queues what is sent before the server listens, and is open when it does", async () => {
    const taken = await serve({ port: 0 });
    const { url } = taken;
    const { port } = new globalThis.URL(url);
    await taken.close();
    const peer = openNode(url, { reconnect: { initial: true } }) as AnyPeer;
    const sum = peer.request("add", [2, 3]);
    await event(peer, "attempt");
    expect(peer.state).toBe("connecting");
    await using late = await serve({ port: Number(port), methods: { add } });
    expect(late.url).toBe(url);
    peer.reconnect();
    expect(await sum).toBe(5);
    await peer.opened;
    expect(peer.state).toBe("open");
    await peer.close();
  });

  it("makes a call with `retry` again at a restarted server, and rejects one that was sent", async () => {
    const methods = { add, never: () => new Promise(() => {}) };
    const first = await serve({ port: 0, methods });
    const { url } = first;
    const peer = openNode(url, { retry: "not-sent" }) as AnyPeer;
    const emitted = record(peer);
    await peer.opened;
    await peer.request("add", [1, 1]);
    const sent = rejection(peer.request("never"));
    await peer.request("add", [1, 1]);
    const suspended = event(peer, "suspend");
    await first.close();
    await suspended;
    const again = peer.request("add", [2, 3]);
    const once = rejection(peer.request("add", [2, 3], { retry: false, timeoutMs: 1 }));
    expect(await sent).toMatchObject({ outcome: "unknown" });
    expect(await once).toMatchObject({ outcome: "not-sent" });
    await using second = await serve({ port: Number(new globalThis.URL(url).port), methods });
    expect(second.url).toBe(url);
    peer.reconnect();
    expect(await again).toBe(5);
    expect(emitted.slice(0, 3)).toEqual(["suspend", "lost", "resume"]);
    await peer.close();
  });

  it("hangs up and rejects when its signal aborts", async () => {
    await using listening = await serve({ port: 0, methods: { never: () => new Promise(() => {}) } });
    const controller = new AbortController();
    const peer = openNode(listening.url, { signal: controller.signal }) as AnyPeer;
    await peer.opened;
    const call = rejection(peer.request("never"));
    controller.abort(REASON);
    expect(await call).toMatchObject({ cause: REASON });
    expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted" });
    await vi.waitFor(() => expect(listening.stats().peers).toBe(0));
  });
});
