import { describe, expect, it } from "vitest";
import { ConnectError, type AnyPeer, type CloseInfo } from "../../src/index.js";
import { open as openNode } from "../../src/node.js";
import { countedSignal, pass, rejection, timersSet, useVirtualClock } from "../support/time.js";
import { dismiss, hang, HELLO, network, openPage, refuse, says, useNetwork, type Script } from "./attempts.js";
import { record } from "./clients.js";

const REASON = new Error("the user went elsewhere");
const FAILS = (): Promise<never> => Promise.reject(REASON);
const ABORTED = { code: 1000, reason: "aborted" };
const TRIES = { reconnect: { initial: true } };

async function expectNeverOpen(peer: AnyPeer, cause: unknown): Promise<void> {
  expect(await rejection(peer.opened)).toBe(cause);
  expect(peer.state).toBe("closed");
  expect(network.openCount).toBe(0);
  await pass(1000);
  expect(timersSet()).toBe(0);
}

useVirtualClock();

describe("a peer that is connecting", () => {
  useNetwork();

  it.each<[string, Script | undefined, object, CloseInfo]>([
    ["cannot be opened", refuse, { reconnect: true }, { code: 1006, reason: expect.any(String) }],
    ["is refused with 401", dismiss(4401, "not you"), TRIES, { code: 4401, reason: expect.any(String) }],
    ["fails in `onOpen`", undefined, { onOpen: FAILS, reconnect: true }, { code: 1000, reason: "`onOpen` failed" }],
    ["has a signal that is aborted", undefined, { signal: AbortSignal.abort(REASON) }, ABORTED],
  ])("closes if it %s, with the error of `opened` as the cause of its calls", async (what, script, options, info) => {
    network.script = script;
    const peer = openPage(options);
    // Reading it makes the promise, which nothing awaits until it has rejected.
    void peer.opened;
    const call = rejection(peer.request("echo", []));
    await pass(10);
    const error = (await peer.closed).error!;
    if (info.code === 1000) expect(error).toBe(REASON);
    else expect(error).toBeInstanceOf(ConnectError);
    expect(await peer.closed).toMatchObject(info);
    expect((await call).cause).toBe(error);
    expect(peer.notify("note", [])).toBe(false);
    expect(peer.reconnect()).toBe(false);
    await expectNeverOpen(peer, error);
    expect(network.attempts.length).toBe(what.startsWith("has") ? 0 : what.startsWith("cannot") ? 2 : 1);
  });

  const GREETS = { onOpen: (remote: any) => remote.request("never") };
  it("closes if the connection is lost while `onOpen` runs", async () => {
    const peer = openPage({ link: "plain", ...GREETS });
    const emitted = record(peer);
    await pass(10);
    network.cut();
    await pass(60_000);
    expect(await rejection(peer.opened)).toMatchObject({ message: expect.stringContaining("1006") });
    expect(emitted).toEqual(["close 1006"]);
    expect(network.attempts).toHaveLength(1);
  });

  it.each<[string, Script | undefined, object, boolean]>([
    ["closed during an attempt", hang, {}, false],
    ["closed between two attempts", refuse, {}, false],
    ["aborted during an attempt", hang, {}, true],
    ["aborted during an attempt without a timeout", hang, { openTimeoutMs: Infinity }, true],
    ["aborted between two attempts", refuse, {}, true],
    ["aborted while its server says nothing", says(), { auth: "token" }, true],
    ["aborted while `onOpen` runs", undefined, GREETS, true],
  ])("can be %s, and makes no attempt after that", async (_when, script, options, isAborted) => {
    const { controller, signal, listeners } = countedSignal();
    network.script = script;
    const peer = openPage({ ...TRIES, ...options, signal });
    const emitted = record(peer);
    const call = rejection(peer.request("echo", []));
    await pass(1000);
    // One listener, however many attempts there were.
    expect(listeners()).toBe(1);
    if (isAborted) controller.abort(REASON);
    else await peer.close(3000, "enough");
    await pass(0);
    const { cause } = await call;
    await expectNeverOpen(peer, cause);
    if (isAborted) expect(await peer.closed).toMatchObject({ ...ABORTED, error: REASON });
    else expect(cause).toMatchObject({ message: expect.stringMatching(/3000.*enough/) });
    expect(emitted).toEqual([isAborted ? "close 1000" : "close 3000"]);
    expect(listeners()).toBe(0);
    const { length } = network.attempts;
    await pass(60_000);
    expect(network.attempts).toHaveLength(length);
  });

  it("throws a TypeError for bad options at once, and makes no attempt", () => {
    expect(() => openPage({}, "ftp://x")).toThrow(TypeError);
    expect(() => openPage({ reconect: true })).toThrow("`reconect`");
    const signals = [null, new AbortController()].map((signal) => ({ signal }));
    for (const options of [{ timeoutMs: -1 }, { headers: new Map() }, { headers: "a: b" }, { tls: 5 }, ...signals])
      expect(() => openNode("ws://server.test/", options as never)).toThrow(`\`${Object.keys(options)[0]}\``);
    expect(network.attempts).toEqual([]);
  });

  it.each(["open", "suspended"])("ends when its signal aborts while it is %s", async (state) => {
    const { controller, signal, listeners } = countedSignal();
    const peer = openPage({ signal });
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
    expect(await call).toMatchObject({ name: "ConnectionLostError", cause: REASON });
    expect(await peer.closed).toMatchObject({ code: 1000, reason: "aborted" });
    await peer.opened;
    expect(listeners()).toBe(0);
    expect(network.openCount).toBe(0);
  });

  it("emits `attempt` after `suspend` and `lost`, with the close and the server's delay, which `reconnect()` skips", async () => {
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
    // Skips the delay.
    expect(peer.reconnect()).toBe(true);
    await pass(1);
    const again = "suspend, lost, attempt 1 after 2000, resume";
    expect(emitted.join(", ")).toBe(`suspend, attempt 1 after 0, lost, resume, ${again}`);
    expect(errors).toEqual([expect.stringContaining("1006"), expect.stringMatching(/1001.*restarting/)]);
  });
});
