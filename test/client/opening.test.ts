/** A peer that `open` returns before it is connected: its queue, its attempts, and how it ends. */
import { getEventListeners } from "node:events";
import { beforeEach, describe, expect, it } from "vitest";
import { ConnectError, ConnectionLostError, pair, TimeoutError, type AnyPeer } from "../../src/index.js";
import { open as openNode } from "../../src/node.js";
import { pass, timersSet, useVirtualClock } from "../support/time.js";
import { gate, rejection } from "../support/turns.js";
import {
  dismiss,
  draw,
  hang,
  HELLO,
  METHODS,
  network,
  openPage,
  plainEcho,
  refuse,
  says,
  test,
  useNetwork,
  type Script,
} from "./attempts.js";
import { record } from "./clients.js";

const REASON = new Error("the user went elsewhere");

/** Asserts that a peer that never opened has ended for `cause`, and leaves nothing. */
async function expectNeverOpen(peer: AnyPeer, cause: unknown): Promise<void> {
  expect(await rejection(peer.opened)).toBe(cause);
  expect(peer.state).toBe("closed");
  expect(network.openCount).toBe(0);
  await pass(1000);
  expect(timersSet()).toBe(0);
}

/** Opens a peer, and records its events. Its server accepts it when the test calls the result's `accept`. */
function connecting(options?: object): { peer: AnyPeer; emitted: string[]; accept: () => void } {
  test.network.stop();
  const peer = openPage(options);
  return { peer, emitted: record(peer), accept: () => test.network.start() };
}

/** Returns a controller, and a function that counts the listeners of its signal. */
function stopper(): { controller: AbortController; listeners: () => number } {
  const controller = new AbortController();
  return { controller, listeners: () => getEventListeners(controller.signal, "abort").length };
}

useVirtualClock();

describe("a peer that is connecting", () => {
  const heard: unknown[] = [];
  beforeEach(() => void (heard.length = 0));
  const note = (params: unknown): void => void heard.push(params);
  useNetwork({ ...METHODS, note });

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
    network.script = (webSocket) => webSocket.accept("", hi);
    const peer = openPage({ link: "plain" });
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
    const peer = openPage({ onOpen });
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
    expect(network.last.sent.join()).not.toMatch(/\[1\]|\[2\]|cancel/);
    await peer.close();
  });

  it("sends a stream that it offered while it was connecting", async () => {
    const peer = openPage();
    const call = peer.request("echo", { values: peer.offer([1, 2, 3]) });
    await pass(10);
    expect(await call).toMatchObject({ values: { token: expect.anything() } });
    await peer.close();
  });

  it("closes if it cannot be opened, with the error of `opened` as the cause of its calls", async () => {
    network.script = refuse;
    const peer = openPage({ reconnect: true });
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
    network.script = dismiss(4401, "not you");
    const peer = openPage({ reconnect: { initial: true } });
    await pass(10);
    expect(await peer.closed).toMatchObject({ code: 4401, error: { status: 401 } });
    expect(network.attempts).toHaveLength(1);
    expect(await rejection(peer.opened)).toMatchObject({ name: "ConnectError", status: 401 });
  });

  it("closes if `onOpen` fails, with what that failed with", async () => {
    const peer = openPage({ onOpen: () => Promise.reject(REASON), reconnect: true });
    const call = rejection(peer.request("echo", []));
    await pass(10);
    expect(await call).toMatchObject({ outcome: "not-sent", cause: REASON });
    await expectNeverOpen(peer, REASON);
    expect(await peer.closed).toMatchObject({ code: 1000, reason: "`onOpen` failed" });
  });

  it("closes if the connection is lost while `onOpen` runs", async () => {
    const peer = openPage({ link: "plain", onOpen: (remote: any) => remote.request("never") });
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
    const peer = openPage({ link: "plain", onOpen, reconnect: { initial: true } });
    await pass(10);
    network.cut();
    await pass(1000);
    await peer.opened;
    expect([runs, peer.state]).toEqual([2, "open"]);
    await peer.close();
  });

  it.each<[string, Script]>([
    ["during an attempt", hang],
    ["between two attempts", refuse],
  ])("can be closed %s", async (_when, script) => {
    network.script = script;
    const peer = openPage({ reconnect: { initial: true } });
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
    expect(() => openPage({}, "ftp://x")).toThrow(TypeError);
    expect(() => openPage({ reconect: true })).toThrow(/^Unknown name `reconect`/);
    expect(() => openNode("ws://server.test/", { timeoutMs: -1 })).toThrow(TypeError);
    expect(network.attempts).toEqual([]);
  });

  describe("with a signal", () => {
    it("that is already aborted opens nothing", async () => {
      const { controller, listeners } = stopper();
      controller.abort(REASON);
      const peer = openPage({ signal: controller.signal });
      expect(peer.state).toBe("closed");
      await expectNeverOpen(peer, REASON);
      expect(network.attempts).toEqual([]);
      expect(listeners()).toBe(0);
    });

    it.each<[string, Script]>([
      ["during an attempt", hang],
      ["between two attempts", refuse],
    ])("ends %s, with its reason as the cause of the calls", async (_when, script) => {
      const { controller, listeners } = stopper();
      network.script = script;
      const peer = openPage({ signal: controller.signal, reconnect: { initial: true } });
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
      const peer = openPage({ signal: controller.signal });
      await peer.opened;
      await pass(10);
      const call = rejection(peer.request("never"));
      await pass(1);
      if (state === "suspended") {
        network.script = refuse;
        network.cut();
      }
      expect(peer.state).toBe(state);
      controller.abort(REASON);
      await pass(1);
      expect(await call).toMatchObject({ name: "ConnectionLostError", outcome: "unknown", cause: REASON });
      expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted" });
      await peer.opened;
      expect(listeners()).toBe(0);
      expect(network.openCount).toBe(0);
    });
  });

  describe("event `attempt`", () => {
    beforeEach(() => draw(0.5));

    it("reports each retry of the first connection, before its delay", async () => {
      network.script = refuse;
      const peer = openPage({ reconnect: { initial: true } });
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
      const peer = openPage();
      await peer.opened;
      await pass(6000);
      const emitted = record(peer);
      const errors: unknown[] = [];
      peer.on("attempt", ({ number, delayMs, error }) => {
        emitted.push(`attempt ${number} after ${delayMs}`);
        errors.push(error.message);
      });
      network.script = says(HELLO, '{"resumed":{"refused":"unknown-session"}}');
      network.lose();
      await pass(10);
      network.dismiss({ code: 1001, reason: "restarting" }, 4000);
      await pass(1);
      network.script = undefined;
      await pass(2000);
      expect(emitted).toEqual([
        "suspend",
        "attempt 1 after 0",
        "lost",
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
      network.script = refuse;
      const peer = openPage({ reconnect: { initial: true } });
      const emitted = record(peer);
      peer.on("attempt", () => {
        throw REASON;
      });
      await pass(10);
      network.script = undefined;
      await pass(1000);
      await peer.opened;
      expect(emitted).toEqual([`error ${REASON.message}`]);
      await peer.close();
    });
  });

  describe("`reconnect()`", () => {
    beforeEach(() => draw(0.5));

    it("skips the delay between two attempts", async () => {
      network.script = refuse;
      const peer = openPage({ reconnect: { initial: true } });
      await pass(3000);
      network.script = undefined;
      expect(peer.reconnect()).toBe(true);
      await pass(1);
      await peer.opened;
      expect(peer.state).toBe("open");
      await peer.close();
    });

    it("skips the delay that the server asked for", async () => {
      network.script = says(HELLO);
      const peer = openPage();
      await peer.opened;
      await pass(10);
      network.dismiss({ code: 1001, reason: "restarting" }, 60_000);
      network.script = undefined;
      await pass(1000);
      expect(peer.state).toBe("suspended");
      expect(peer.reconnect()).toBe(true);
      await pass(1);
      expect(peer.state).toBe("open");
      await peer.close();
    });

    it("makes the next attempt follow at once if it is called in `suspend`, or during an attempt", async () => {
      const peer = openPage();
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
      const peer = openPage();
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
      const peer = openPage();
      await peer.opened;
      await pass(10);
      const emitted = record(peer);
      test.network.stop();
      expect(peer.reconnect()).toBe(true);
      await pass(4999);
      expect(emitted).toEqual([]);
      await pass(2);
      test.network.start();
      await pass(1);
      expect(emitted).toEqual(["suspend", "resume"]);
      await peer.close();
    });

    it("does nothing on a closed peer", async () => {
      const peer = openPage();
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
    network.script = plainEcho;
    const peer = openPage({ onOpen: () => Promise.reject(REASON) });
    // Reading it makes the promise.
    void peer.opened;
    await pass(10);
    expect(peer.state).toBe("closed");
    await pass(1);
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });
});
