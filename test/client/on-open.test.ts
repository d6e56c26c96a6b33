import { beforeEach, describe, expect, it, vi } from "vitest";
import type { Caller, Context } from "../../src/index.js";
import { gate, Outcomes, pass, rejection, timersSet, useVirtualClock } from "../support/time.js";
import { record } from "./clients.js";
import {
  connectPage,
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
  type Script,
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
beforeEach(() => void (heard.length = 0));

describe("an `onOpen` that fails on the first connection", () => {
  it.each(["packed", "plain"])("retries with `initial` if `onOpen` fails, and keeps its queue (%s)", async (link) => {
    const runs: unknown[] = [];
    const onOpen = async (caller: any): Promise<void> => {
      runs.push(await caller.request("echo", []));
      if (runs.length < 4) throw REASON;
    };
    const peer = openPage({ link, onOpen, reconnect: { initial: true } });
    const emitted = record(peer);
    const attempts: unknown[] = [];
    peer.on("attempt", ({ number, delayMs, error }) => attempts.push([number, delayMs, error]));
    const calls = new Outcomes();
    for (const i of [0, 1, 2]) {
      calls.watch(`echo ${i}`, peer.request("echo", [i]));
      peer.notify("note", [i]);
    }
    const onProgress = vi.fn<(value: unknown) => void>();
    const reported = peer.request("report", undefined, { onProgress });
    while (runs.length < 3) await pass(10);
    expect([peer.state, calls.list]).toEqual(["connecting", []]);
    while (runs.length < 4) await pass(10);
    await reported;
    expect(peer.state).toBe("open");
    expect(calls.list).toMatchObject([{ value: [0] }, { value: [1] }, { value: [2] }]);
    // With a plain link, the other side is not asked for reports.
    expect(onProgress).toHaveBeenCalledTimes(link === "packed" ? 1 : 0);
    expect(heard).toEqual([[0], [1], [2]]);
    expect(emitted).toEqual(Array(3).fill(`error ${REASON.message}`));
    expect(attempts).toEqual([
      [2, 380, REASON],
      [3, 750, REASON],
      [4, 1500, REASON],
    ]);
    // The first loss of an open peer has no delay.
    network.cut();
    await pass(0);
    expect(attempts.at(-1)).toMatchObject([1, 0, { message: expect.stringContaining("1006") }]);
  });

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

  it.each<[string, object, object]>([
    ["onOpen", REASON, { onOpen: () => Promise.reject(REASON) }],
    [
      "connect",
      expect.objectContaining({ code: "CONNECT_FAILED", url: URL, cause: REASON }) as object,
      { auth: () => Promise.reject(REASON) },
    ],
  ])("warns once if nothing listens for `error`, as `connect` has no peer yet (%s)", async (name, cause, options) => {
    const warn = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const stop = new AbortController();
    const failed = rejection(connectPage({ ...options, reconnect: { initial: true }, signal: stop.signal }));
    await pass(5000);
    stop.abort();
    await failed;
    expect(warn.mock.calls).toEqual([
      [expect.objectContaining({ message: expect.stringContaining(`"${name}"`) as string, cause })],
    ]);
  });
});

describe("an `onOpen` that does not end within `openTimeoutMs`", () => {
  const LATE: unknown = expect.stringContaining("`onOpen`");

  it.each([0, 1500])("rejects `connect`, and leaves nothing, after a handshake of %i ms", async (handshakeMs) => {
    test.network.stop();
    const failed = rejection(connectPage({ onOpen: never, openTimeoutMs: 2000 }));
    await pass(handshakeMs);
    test.network.start();
    await pass(1999 - handshakeMs);
    expect(network.openCount).toBe(1);
    await pass(1);
    expect(await failed).toMatchObject({ name: "ConnectError", message: LATE, status: undefined });
    await pass(1000);
    expect([network.attempts.length, network.openCount, timersSet()]).toEqual([1, 0, 0]);
  });

  it("is an attempt that failed with `initial`, and on a later connection too", async () => {
    const onOpen = vi.fn<(caller: any) => unknown>().mockImplementationOnce(never);
    const peer = openPage({ onOpen, openTimeoutMs: 2000, reconnect: { initial: true } });
    const emitted = record(peer);
    const call = peer.request("echo", ["queued"]);
    await pass(2390);
    await pass(1);
    expect(emitted.splice(0)).toEqual([LATE]);
    expect([peer.state, await call]).toEqual(["open", ["queued"]]);
    onOpen.mockImplementationOnce(never);
    await pass(10_000);
    network.lose();
    await pass(2010);
    await pass(390);
    expect(emitted).toEqual(["suspend", "lost", LATE, "lost", "resume"]);
    await expectEcho(peer);
    expect(onOpen).toHaveBeenCalledTimes(4);
  });

  it("is awaited without end if that is `Infinity`, and its end ends the timeout", async () => {
    for (const [openTimeoutMs, ms] of [
      [Infinity, 100_000],
      [2000, 1900],
    ] as const) {
      const { promise, resolve } = gate();
      const connecting = connectPage({ onOpen: () => promise, openTimeoutMs });
      await pass(ms);
      resolve();
      await pass(1000);
      await expectEcho(await connecting);
    }
  });

  it("continues if its session is resumed, and has the time of the new attempt", async () => {
    const runs = vi.fn<(caller: any) => unknown>(never);
    openPage({ onOpen: runs, openTimeoutMs: 2000, reconnect: { initial: true } });
    await pass(1500);
    network.cut();
    // The second attempt begins after 380 ms, and resumes the session.
    await pass(2200);
    expect([network.attempts.length, network.openCount, runs.mock.calls.length]).toEqual([2, 1, 1]);
    await pass(1000);
    expect([network.attempts.length, runs.mock.calls.length]).toEqual([3, 2]);
  });
});

it("a client of a plain server with onOpen runs it on the first open and after each loss, before queued calls, and answers calls of the server meanwhile", async () => {
  let go = gate();
  go.resolve();
  const onOpen = async (remote: Caller<any>): Promise<void> => {
    await remote.request("login", ["me"]);
    await go.promise;
    remote.notify("ready");
  };
  const { peer, emitted } = await live({ link: "plain", onOpen, methods: { ask: () => "answered" } });
  await Promise.all([peer.request("a"), pass(1)]);
  expect(heard).toEqual(["login", "ready", "a"]);
  for (let round = 1; round <= 2; round++) {
    heard.length = 0;
    go = gate();
    network.cut();
    const calls = [peer.request("b"), peer.request("c")];
    expect(peer.notify("d")).toBe(true);
    await pass(1);
    expect(peer.state).toBe("suspended");
    expect(await Promise.all([served[round]!.request("ask"), pass(1)])).toEqual(["answered", undefined]);
    expect(heard).toEqual(["login"]);
    go.resolve();
    await Promise.all([...calls, pass(1)]);
    expect(peer.state).toBe("open");
    expect(heard).toEqual(["login", "ready", "b", "c", "d"]);
    await pass(6000);
  }
  expect(emitted).toEqual(["suspend", "lost", "resume", "suspend", "lost", "resume"]);
});

const ENDS = ["close 1006"];
const RETURNS = ["suspend", "lost", "resume"];
it.each<[string, Script, object, string[]]>([
  ["is plain, without `onOpen` and `reconnect`, and ends with its socket", plainEcho, {}, ENDS],
  ["sends no hello, and ends with its socket", says('{"jsonrpc":"2.0","method":"hi"}'), {}, ENDS],
  ["keeps no session, and ends with its socket", says('{"hello":{}}'), {}, ENDS],
  // A server that has never sent hello can do so after an update.
  ["is plain, and makes the same offer again with `reconnect: true`", plainEcho, { reconnect: true }, RETURNS],
  ["is plain, and makes the same offer again with `onOpen`", plainEcho, { onOpen: () => {} }, RETURNS],
])("a client has a server that %s", async (_what, script, options, events) => {
  network.script = script;
  const { peer, emitted } = await live(options);
  const call = rejection(peer.request("never"));
  await pass(1);
  const first = network.attempts.map(({ protocols }) => protocols);
  network.cut();
  expect(await call).toMatchObject({ outcome: "unknown" });
  await pass(1000);
  expect(emitted).toEqual(events);
  expect(first[0]).toEqual(["reciproc.v1"]);
  expect(network.attempts.map(({ protocols }) => protocols)).toEqual(events === RETURNS ? [...first, ...first] : first);
});

describe("an `onOpen` of a later connection", () => {
  it.each<[string, string[], boolean]>([
    ["is followed by `resume` after the next socket", ["resume"], true],
    ["closes its connection, and begins on another, if it fails", ["error not now", "lost", "resume"], false],
  ])("whose session is suspended when it ends %s", async (_what, events, succeeds) => {
    const go = gate();
    const called: Promise<unknown>[] = [];
    const onOpen = (remote: Caller<any>): unknown => {
      called.push(rejection(remote.request("never", [], { timeoutMs: Infinity })));
      return called.length === 2 ? go.promise : undefined;
    };
    const { peer, emitted } = await live({ onOpen });
    network.lose();
    await pass(10);
    expect(called).toHaveLength(2);
    network.script = refuse;
    network.cut();
    const call = new Outcomes().watch("echo", peer.request("echo", [1]));
    if (succeeds) go.resolve();
    else go.reject(new Error("not now"));
    await pass(10);
    expect(peer.state).toBe("suspended");
    if (!succeeds) expect(await called[1]).toMatchObject({ outcome: "unknown" });
    network.script = undefined;
    await pass(2000);
    expect(call.list).toMatchObject([succeeds ? { value: [1] } : { reason: { outcome: "not-sent" } }]);
    expect(called).toHaveLength(succeeds ? 2 : 3);
    expect(emitted).toEqual(["suspend", "lost", ...events]);
  });

  it("releases nothing of the next connection if it ends only then", async () => {
    const runs = Array.from({ length: 3 }, () => gate());
    runs[0]!.resolve();
    let begun = 0;
    const { peer } = await live({ onOpen: () => runs[begun++]!.promise });
    // Each loses its session with its socket.
    for (const run of [1, 2]) {
      network.lose();
      await pass(1000);
      expect(begun).toBe(run + 1);
    }
    const call = new Outcomes().watch("a", peer.request("a"));
    runs[1]!.resolve();
    await pass(10);
    expect([heard, call.list]).toEqual([[], []]);
    runs[2]!.resolve();
    await pass(10);
    expect(heard).toEqual(["a"]);
  });

  it("leaves no session on a server on which it fails", async () => {
    let runs = 0;
    const onOpen = (): void => {
      if (++runs === 2 || runs === 3) throw new Error("not now");
    };
    const { emitted } = await live({ onOpen });
    void served[0]!.close(4000);
    await pass(2000);
    expect(emitted).toEqual(["suspend", "lost", "error not now", "lost", "error not now", "lost", "resume"]);
    expect(served.map(({ state }) => state)).toEqual(["closed", "closed", "closed", "open"]);
  });
});
