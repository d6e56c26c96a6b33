/** `onOpen`: what it precedes, when it fails, and when it takes too long. Clients of plain servers reconnect if they have it. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConnectError, type AnyPeer, type Caller, type Context } from "../../src/index.js";
import { pass, timersSet, useVirtualClock } from "../support/time.js";
import { gate, rejection } from "../support/turns.js";
import { record } from "./clients.js";
import {
  connectPage,
  draw,
  expectEcho,
  live,
  METHODS,
  network,
  openPage,
  plainEcho,
  refuse,
  says,
  served,
  test,
  URL,
  useNetwork,
} from "./attempts.js";

const never = (caller: any): unknown => caller.request("never");

const REASON = new Error("the broker is down");

useVirtualClock();
const heard: unknown[] = [];
const note = (params: unknown): void => void heard.push(params);
const report = (_params: unknown, { progress }: Context): void => progress(1);
const named = (_params: unknown, { method }: Context): void => void heard.push(method);
useNetwork({
  ...METHODS,
  note,
  report,
  ...Object.fromEntries(["login", "ready", "done", "a", "b", "c", "d"].map((method) => [method, named])),
});
beforeEach(() => {
  heard.length = 0;
  draw(0.5);
});

describe("an `onOpen` that fails on the first connection", () => {
  it.each(["packed", "plain"])(
    "tries again with `initial` if `onOpen` fails, as after an attempt that failed, and keeps what is queued (%s)",
    async (link) => {
      const runs: unknown[] = [];
      const onOpen = async (caller: any): Promise<void> => {
        runs.push(await caller.request("echo", []));
        if (runs.length < 4) throw REASON;
      };
      const peer = openPage({ link, onOpen, reconnect: { initial: true } });
      const emitted = record(peer);
      const attempts: unknown[] = [];
      peer.on("attempt", ({ number, delayMs, error }) => attempts.push([number, delayMs, error]));
      const calls: unknown[] = [];
      for (const i of [0, 1, 2]) {
        peer.request("echo", [i]).then(
          (result: unknown) => calls.push(result),
          (error: unknown) => calls.push(error),
        );
        peer.notify("note", [i]);
      }
      const onProgress = vi.fn<(value: unknown) => void>();
      const reported = peer.request("report", undefined, { onProgress });
      while (runs.length < 3) await pass(10);
      expect([peer.state, calls]).toEqual(["connecting", []]);
      while (runs.length < 4) await pass(10);
      await reported;
      expect([peer.state, calls]).toEqual(["open", [[0], [1], [2]]]);
      // With a plain link, the other side is not asked for reports.
      expect(onProgress).toHaveBeenCalledTimes(link === "packed" ? 1 : 0);
      expect(heard).toEqual([[0], [1], [2]]);
      expect(emitted).toEqual(Array(3).fill(`error ${REASON.message}`));
      expect(attempts).toEqual([
        [2, 300, REASON],
        [3, 550, REASON],
        [4, 1050, REASON],
      ]);
      // The first loss of an open peer has no delay.
      network.cut();
      await pass(0);
      expect(attempts.at(-1)).toMatchObject([1, 0, { message: "the connection ended with 1006" }]);
      await peer.close();
    },
  );

  it.each(["packed", "plain"])("does not try again with `initial` if `onOpen` closes the peer (%s)", async (link) => {
    const onOpen = vi.fn<(caller: any) => Promise<void>>((caller) =>
      caller.request("missing").catch(() => void peer.close(4000, "refused")),
    );
    const peer = openPage({ link, onOpen, reconnect: { initial: true } });
    const emitted = record(peer);
    const failed = rejection(peer.opened);
    const queued = rejection(peer.request("echo"));
    await failed;
    expect(await queued).toMatchObject({ outcome: "not-sent" });
    expect(await peer.closed).toMatchObject({ code: 4000, reason: "refused" });
    await pass(60_000);
    expect(onOpen).toHaveBeenCalledTimes(1);
    expect(emitted).toEqual(["close 4000"]);
  });

  it.each<[string, string, object]>([
    ["onOpen", REASON.message, { onOpen: () => Promise.reject(REASON) }],
    [
      "connect",
      `could not connect to ${URL}: \`url\`, \`headers\` or \`auth\` failed`,
      { auth: () => Promise.reject(REASON) },
    ],
  ])(
    "warns once if nothing listens for `error`, as with `connect`, which has no peer yet (%s)",
    async (name, message, options) => {
      const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
      const stop = new AbortController();
      const failed = rejection(connectPage({ ...options, reconnect: { initial: true }, signal: stop.signal }));
      await pass(5000);
      stop.abort();
      await failed;
      expect(warn.mock.calls).toEqual([
        [
          expect.objectContaining({
            message: `"${name}" failed, and nothing listens for \`error\``,
            cause: expect.objectContaining({ message }) as Error,
          }),
        ],
      ]);
    },
  );

  it("delays its attempts if each connection is lost while the first `onOpen` runs", async () => {
    const peer = openPage({ onOpen: never, link: "plain", reconnect: { initial: true } });
    const delays: number[] = [];
    peer.on("attempt", ({ delayMs }) => delays.push(delayMs));
    while (delays.length < 4) {
      await pass(10);
      network.cut();
    }
    expect(delays).toEqual([300, 550, 1050, 2050]);
    await peer.close();
  });
});

describe("an `onOpen` that does not end within `openTimeoutMs`", () => {
  const LATE = `could not connect to ${URL}: not open within 2000 ms: \`onOpen\` has not ended`;

  it("rejects `connect`, and leaves nothing", async () => {
    const failed = rejection(connectPage({ onOpen: never, openTimeoutMs: 2000 }));
    await pass(1999);
    expect(network.openCount).toBe(1);
    await pass(1);
    const error = await failed;
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ message: LATE, status: undefined });
    await pass(1);
    await pass(1000);
    expect([network.attempts.length, network.openCount, timersSet()]).toEqual([1, 0, 0]);
  });

  it("says what to call instead if it waits for a call of the peer that it opens", async () => {
    const peer = openPage({ onOpen: () => peer.request("echo", []), openTimeoutMs: 2000 });
    await pass(2001);
    expect(await rejection(peer.opened)).toMatchObject({ message: `${LATE}; call by its parameter, not by the peer` });
    expect(await peer.closed).toMatchObject({ code: 1000 });
  });

  it("has the time of the whole attempt, of which the handshake takes a part", async () => {
    test.network.stop();
    const failed = rejection(connectPage({ onOpen: never, openTimeoutMs: 2000 }));
    await pass(1500);
    test.network.start();
    await pass(500);
    expect(await failed).toMatchObject({ message: LATE });
    await pass(1);
  });

  it("is an attempt that failed with `initial`", async () => {
    let runs = 0;
    const onOpen = (caller: any): unknown => (++runs === 1 ? never(caller) : undefined);
    const peer = openPage({ onOpen, openTimeoutMs: 2000, reconnect: { initial: true } });
    const emitted = record(peer);
    const call = peer.request("echo", ["queued"]);
    await pass(2310);
    await pass(1);
    // It is not known whether `onOpen` waits for a call that is queued, so the error names the possible cause.
    expect(emitted).toEqual([`error ${LATE}; call by its parameter, not by the peer`]);
    expect([peer.state, await call]).toEqual(["open", ["queued"]]);
    await peer.close();
  });

  it("fails on a later connection too: the peer emits `error`, and the client connects again", async () => {
    let runs = 0;
    const onOpen = (caller: any): unknown => (++runs === 2 ? never(caller) : undefined);
    const { peer, emitted } = await live({ onOpen, openTimeoutMs: 2000 });
    network.lose();
    await pass(2010);
    await pass(310);
    expect(emitted).toEqual(["suspend", "lost", `error ${LATE}`, "lost", "resume"]);
    await expectEcho(peer);
    expect(runs).toBe(3);
  });

  it("is awaited without end if that is `Infinity`, and its end ends the timeout", async () => {
    let end!: () => void;
    const onOpen = (): Promise<void> => new Promise((resolve) => (end = resolve));
    const endless = connectPage({ onOpen, openTimeoutMs: Infinity });
    await pass(100_000);
    end();
    await pass(1);
    await expectEcho(await endless);
    const timed = connectPage({ onOpen, openTimeoutMs: 2000 });
    await pass(1900);
    end();
    await pass(1000);
    await expectEcho(await timed);
  });

  it("continues if its session is resumed, and has the time of the new attempt", async () => {
    const runs = vi.fn<(caller: any) => unknown>(never);
    const peer = openPage({ onOpen: runs, openTimeoutMs: 2000, reconnect: { initial: true } });
    await pass(1500);
    network.cut();
    // The second attempt begins after 300 ms, and resumes the session.
    await pass(2200);
    expect([network.attempts.length, network.openCount, runs.mock.calls.length]).toEqual([2, 1, 1]);
    await pass(110);
    await pass(560);
    expect([network.attempts.length, runs.mock.calls.length]).toEqual([3, 2]);
    await peer.close();
  });
});

async function logIn(remote: Caller<any>): Promise<void> {
  await remote.request("login", ["me"]);
  remote.notify("ready");
}

describe("a client of a plain server with onOpen", () => {
  it("runs it on the first open and after each loss, before queued calls and notifications", async () => {
    const { peer, emitted } = await live({ link: "plain", onOpen: logIn });
    await Promise.all([peer.request("a"), pass(1)]);
    expect(heard).toEqual(["login", "ready", "a"]);
    for (let round = 0; round < 2; round++) {
      heard.length = 0;
      const unanswered = rejection(peer.request("never"));
      await pass(1);
      network.script = refuse;
      network.cut();
      expect(await unanswered).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
      expect(peer.state).toBe("suspended");
      const calls = [peer.request("b"), peer.request("c")];
      expect(peer.notify("d")).toBe(true);
      network.script = undefined;
      await pass(1000);
      await Promise.all(calls);
      expect(peer.state).toBe("open");
      expect(heard).toEqual(["login", "ready", "b", "c", "d"]);
      await pass(6000);
    }
    expect(emitted).toEqual(["suspend", "lost", "resume", "suspend", "lost", "resume"]);
  });

  it("queues calls until a slow one is done, but answers calls of the server", async () => {
    const go = gate();
    let runs = 0;
    const onOpen = async (remote: Caller<any>): Promise<void> => {
      if (++runs === 1) return;
      await remote.request("login");
      await go.promise;
      remote.notify("done");
    };
    const { peer, emitted } = await live({ link: "plain", onOpen, methods: { ask: () => "answered" } });
    network.cut();
    const call = peer.request("a");
    await pass(1);
    expect(peer.state).toBe("suspended");
    expect(await Promise.all([served[1]!.request("ask"), pass(1)])).toEqual(["answered", undefined]);
    expect(heard).toEqual(["login"]);
    go.resolve();
    await Promise.all([call, pass(1)]);
    expect(heard).toEqual(["login", "done", "a"]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
  });

  it("retries without an event if the socket is lost during one", async () => {
    let runs = 0;
    const onOpen = async (remote: Caller<any>): Promise<void> => {
      if (++runs === 2) network.cut();
      await remote.request("login");
    };
    const { emitted } = await live({ link: "plain", onOpen });
    network.cut();
    await pass(1000);
    expect(emitted).toEqual(["suspend", "lost", "lost", "resume"]);
    expect(runs).toBe(3);
  });
});

it.each([
  ["ends with its socket without `onOpen` and `reconnect`", {}, ["close 1006"]],
  // A server that has never sent hello can do so after an update.
  ["makes the same offer again with `reconnect: true`", { reconnect: true }, ["suspend", "lost", "resume"]],
  ["makes the same offer again with `onOpen`", { onOpen: () => {} }, ["suspend", "lost", "resume"]],
])("a client of a plain server %s", async (_what, options, events) => {
  network.script = plainEcho;
  const { peer, emitted } = await live(options);
  const call = rejection(peer.request("never"));
  await pass(1);
  network.cut();
  expect(await call).toMatchObject({ outcome: "unknown" });
  await pass(1000);
  expect(emitted).toEqual(events);
  const offers = [["reciproc.v1"], []];
  expect(network.attempts.map(({ protocols }) => protocols)).toEqual(
    events.length > 1 ? [...offers, ...offers] : offers,
  );
});

it.each(['{"jsonrpc":"2.0","method":"hi"}', '{"hello":{}}'])(
  "a client without `onOpen` and `reconnect` ends with its socket if the server's first frame is %s",
  async (frame) => {
    network.script = says(frame);
    const { emitted } = await live();
    network.cut();
    await pass(1000);
    expect(emitted).toEqual(["close 1006"]);
  },
);

describe("an `onOpen` of a later connection", () => {
  it("is followed by `resume` after the next socket if its session was suspended when it ended", async () => {
    const [opening, go] = [gate(), gate()];
    let runs = 0;
    const onOpen = async (): Promise<void> => {
      if (++runs === 1) return;
      opening.resolve();
      await go.promise;
    };
    const peer = await connectPage({ onOpen });
    const emitted = record(peer);
    await pass(10_000);
    network.lose();
    await pass(10);
    await opening.promise;
    network.script = refuse;
    network.cut();
    await pass(10);
    const call = peer.request("echo", [1]);
    go.resolve();
    await pass(10);
    expect(peer.state).toBe("suspended");
    expect(emitted).toEqual(["suspend", "lost"]);
    network.script = undefined;
    await pass(2000);
    expect(await call).toEqual([1]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    expect(runs).toBe(2);
  });

  it("that fails after the loss of the socket on which it began closes the connection that it was to open, and begins on another", async () => {
    const go = gate();
    const called: Promise<unknown>[] = [];
    const onOpen = (remote: Caller<any>): unknown => {
      called.push(rejection(remote.request("never", [], { timeoutMs: Infinity })));
      return called.length === 2 ? go.promise : undefined;
    };
    const { emitted } = await live({ onOpen });
    network.lose();
    await pass(10);
    expect(called).toHaveLength(2);
    network.script = refuse;
    network.cut();
    go.reject(new Error("not now"));
    await pass(10);
    expect(await called[1]).toMatchObject({ outcome: "unknown" });
    network.script = undefined;
    await pass(2000);
    expect(called).toHaveLength(3);
    expect(emitted).toEqual(["suspend", "lost", "error not now", "lost", "resume"]);
  });

  it("deadlocks if it calls on the peer itself: its call times out as not sent", async () => {
    network.script = plainEcho;
    let peer: AnyPeer | undefined;
    const errors: unknown[] = [];
    const onOpen = async (): Promise<void> => {
      if (peer !== undefined) await peer.request("echo", [1], { timeoutMs: 50 });
    };
    peer = await connectPage({ link: "plain", onOpen });
    peer.on("error", (error) => errors.push(error));
    await pass(10);
    network.cut();
    await pass(60);
    expect(errors).toEqual([expect.objectContaining({ code: "TIMEOUT", outcome: "not-sent" })]);
  });
});
