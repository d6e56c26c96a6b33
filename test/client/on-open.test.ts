/** `onOpen`: when it fails, and when it takes too long. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import { ConnectError, open, type AnyPeer, type Context } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { pass, useFakeClock } from "../support/clock.js";
import { rejection } from "../support/turns.js";
import { record } from "./clients.js";
import { connectVirtual, expectEcho, live, METHODS, network, server, URL, useVirtualServer } from "./virtual.js";

/** `open` of the standard entry, untyped. */
const openVirtual = open as (url: string, options?: object) => AnyPeer;

const never = (caller: any): unknown => caller.request("never");

const REASON = new Error("the broker is down");

useFakeClock();
const heard: unknown[] = [];
const note = (params: unknown): void => void heard.push(params);
const report = (_params: unknown, { progress }: Context): void => progress(1);
useVirtualServer({ ...METHODS, note, report });
beforeEach(() => {
  heard.length = 0;
  vi.spyOn(Math, "random").mockReturnValue(0.5);
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
      const peer = openVirtual(URL, { link, onOpen, reconnect: { initial: true } });
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
    const peer = openVirtual(URL, { link, onOpen, reconnect: { initial: true } });
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
      const failed = rejection(connectVirtual({ ...options, reconnect: { initial: true }, signal: stop.signal }));
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
    const peer = openVirtual(URL, { onOpen: never, link: "plain", reconnect: { initial: true } });
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
    const failed = rejection(connectVirtual({ onOpen: never, openTimeoutMs: 2000 }));
    await pass(1999);
    expect(network.lines.size).toBe(1);
    await pass(1);
    const error = await failed;
    expect(error).toBeInstanceOf(ConnectError);
    expect(error).toMatchObject({ message: LATE, status: undefined });
    await pass(1);
    expect([network.attempts.length, network.lines.size, countDeadlines().waiting]).toEqual([1, 0, 0]);
  });

  it("says what to call instead if it waits for a call of the peer that it opens", async () => {
    const peer = openVirtual(URL, { onOpen: () => peer.request("echo", []), openTimeoutMs: 2000 });
    await pass(2001);
    expect(await rejection(peer.opened)).toMatchObject({ message: `${LATE}; call by its parameter, not by the peer` });
    expect(await peer.closed).toMatchObject({ code: 1000 });
  });

  it("has the time of the whole attempt, of which the handshake takes a part", async () => {
    network.answer = (attempt) => void setTimeout(() => server.answer(attempt), 1500);
    const failed = rejection(connectVirtual({ onOpen: never, openTimeoutMs: 2000 }));
    await pass(2000);
    expect(await failed).toMatchObject({ message: LATE });
    await pass(1);
  });

  it("is an attempt that failed with `initial`", async () => {
    let runs = 0;
    const onOpen = (caller: any): unknown => (++runs === 1 ? never(caller) : undefined);
    const peer = openVirtual(URL, { onOpen, openTimeoutMs: 2000, reconnect: { initial: true } });
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
    server.restart();
    network.cut();
    await pass(2010);
    await pass(310);
    expect(emitted).toEqual(["suspend", "lost", `error ${LATE}`, "lost", "resume"]);
    await expectEcho(peer);
    expect(runs).toBe(3);
  });

  it("is awaited without end if that is `Infinity`, and its end ends the timeout", async () => {
    let end!: () => void;
    const onOpen = (): Promise<void> => new Promise((resolve) => (end = resolve));
    const endless = connectVirtual({ onOpen, openTimeoutMs: Infinity });
    await pass(100_000);
    end();
    await pass(1);
    await expectEcho(await endless);
    const timed = connectVirtual({ onOpen, openTimeoutMs: 2000 });
    await pass(1900);
    end();
    await pass(1000);
    await expectEcho(await timed);
  });

  it("continues if its session is resumed, and has the time of the new attempt", async () => {
    const runs = vi.fn<(caller: any) => unknown>(never);
    const peer = openVirtual(URL, { onOpen: runs, openTimeoutMs: 2000, reconnect: { initial: true } });
    await pass(1500);
    network.cut();
    // The second attempt begins after 300 ms, and resumes the session.
    await pass(2200);
    expect([network.attempts.length, network.lines.size, runs.mock.calls.length]).toEqual([2, 1, 1]);
    await pass(110);
    await pass(560);
    expect([network.attempts.length, runs.mock.calls.length]).toEqual([3, 2]);
    await peer.close();
  });
});
