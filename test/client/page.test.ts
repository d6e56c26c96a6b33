/** How a page detects that its server is gone without a close: by its heartbeat, and at once when the machine or the page wakes. */
import { beforeEach, describe, expect, it, vi } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { pass, rejection, useVirtualClock } from "../support/time.js";
import { closeAll, connectPage, expectEcho, live, network, plainEcho, refuse, test, useNetwork } from "./attempts.js";

useVirtualClock();

const PING = '{"ping":1}';

type Listener = (event: object) => void;

/** The listeners of the page's global object and of its document, by the place and type of their events. */
const listeners = new Map<string, Listener>();

function partOf(place: "window" | "document"): object {
  return {
    addEventListener: (type: string, listener: Listener) => listeners.set(`${place} ${type}`, listener),
    removeEventListener: (type: string) => listeners.delete(`${place} ${type}`),
  };
}

function emit(type: string, members: object = {}): void {
  listeners.get(`${type === "visibilitychange" ? "document" : "window"} ${type}`)!(members);
}

useNetwork();
beforeEach(() => {
  listeners.clear();
  vi.stubGlobal("document", { ...partOf("document"), visibilityState: "visible" });
  for (const [name, value] of Object.entries(partOf("window"))) vi.stubGlobal(name, value);
});

const pings = (): number => network.last.sent.filter((frame) => frame === PING).length;

describe("the heartbeat of a client by a standard WebSocket", () => {
  it("pings a server that was silent for 25 s, disconnects after 45 s of silence, and then reconnects", async () => {
    const { peer, emitted } = await live({ openTimeoutMs: Infinity });
    await pass(31_000);
    expect(pings()).toBe(1);
    await pass(300_000);
    // Each ping is answered, and there is at most one in each interval.
    expect(emitted).toEqual([]);
    expect(pings()).toBeGreaterThanOrEqual(9);
    expect(pings()).toBeLessThanOrEqual(13);
    const tries = network.attempts.length;
    test.network.stop();
    // The last frame arrived up to 25 s ago, and the check runs every 5 s.
    await pass(19_900);
    expect(emitted).toEqual([]);
    await pass(35_200);
    expect(emitted).toEqual(["suspend"]);
    expect(network.attempts).toHaveLength(tries + 1);
    test.network.start();
    await pass(1);
    expect(emitted).toEqual(["suspend", "resume"]);
    await expectEcho(peer);
  });

  it("uses the configured times, or is off", async () => {
    const { emitted: ended } = await live({ heartbeat: { intervalMs: 100, deadAfterMs: 200 } });
    test.network.stop();
    await pass(300);
    expect(ended).toEqual(["suspend"]);
    await closeAll();
    test.network.start();
    const { emitted } = await live({ heartbeat: false });
    test.network.stop();
    await pass(600_000);
    expect(emitted).toEqual([]);
    expect(pings()).toBe(0);
  });

  it("cannot ping over a plain link, and disconnects no server there", async () => {
    network.script = plainEcho;
    const { peer, emitted } = await live({ reconnect: true });
    await pass(600_000);
    expect(emitted).toEqual([]);
    expect(network.last.sent).toEqual([]);
    await expectEcho(peer);
  });
});

const WAKES = ["online", "pageshow", "visibilitychange", "reconnect()"];

function wake(peer: AnyPeer, type: string): void {
  if (type === "reconnect()") peer.reconnect();
  else emit(type);
}

describe.each(WAKES)("%s", (type) => {
  it("pings at once, and disconnects if the server does not answer within 5 s", async () => {
    const { peer, emitted } = await live();
    test.network.stop();
    const tries = network.attempts.length;
    wake(peer, type);
    expect(pings()).toBe(1);
    await pass(3000);
    // A further event does not prolong the wait.
    wake(peer, type);
    await pass(1999);
    expect(emitted).toEqual([]);
    await pass(10);
    test.network.start();
    await pass(1);
    expect(emitted).toEqual(["suspend", "resume"]);
    expect(network.attempts).toHaveLength(tries + 1);
  });

  it("keeps a server that answers, however long it was silent", async () => {
    const { peer, emitted } = await live({ heartbeat: { intervalMs: 3_600_000 } });
    await pass(3_000_000);
    wake(peer, type);
    await pass(10_000);
    expect(pings()).toBe(1);
    expect(emitted).toEqual([]);
  });
});

it("offline suspends a peer that reconnects at once, and its session is resumed when the network is back", async () => {
  const { peer, emitted } = await live();
  const call = peer.request("echo", [1]);
  network.script = refuse;
  emit("offline");
  expect(emitted).toEqual(["suspend"]);
  await pass(30_000);
  network.script = undefined;
  emit("online");
  await pass(1);
  expect(emitted).toEqual(["suspend", "resume"]);
  expect(await call).toEqual([1]);
});

it("offline only pings if the client would not connect again, and ends no peer whose first `onOpen` runs", async () => {
  const { emitted } = await live({ reconnect: false });
  const plain = connectPage({ link: "plain", reconnect: true, onOpen: () => pass(2000) });
  await pass(1);
  emit("offline");
  await pass(60_000);
  expect([emitted, (await plain).state]).toEqual([[], "open"]);
});

describe("a page", () => {
  it("has listeners until the peer is closed, and no longer", async () => {
    const { peer } = await live();
    const types = ["online", "offline", "pageshow", "pagehide"];
    const all = ["document visibilitychange", ...types.map((one) => `window ${one}`)];
    expect(new Set(listeners.keys())).toEqual(new Set(all));
    await peer.close();
    expect(listeners.size).toBe(0);
    network.script = refuse;
    await rejection(connectPage());
    expect(listeners.size).toBe(0);
    const tries = network.attempts.length;
    expect(peer.reconnect()).toBe(false);
    await pass(10_000);
    expect(network.attempts).toHaveLength(tries);
  });

  it.each(WAKES)("starts a delayed connection attempt at once, and once only, at %s", async (type) => {
    const { peer, emitted } = await live();
    network.script = refuse;
    network.cut();
    await pass(3000);
    const tries = network.attempts.length;
    emit("offline");
    await pass(0);
    expect(network.attempts).toHaveLength(tries);
    network.script = undefined;
    wake(peer, type);
    wake(peer, type);
    await pass(1);
    expect(network.attempts).toHaveLength(tries + 1);
    expect(emitted).toEqual(["suspend", "resume"]);
    expect(peer.state).toBe("open");
  });

  it("sends no ping when it becomes hidden", async () => {
    await live();
    Object.assign(globalThis.document, { visibilityState: "hidden" });
    emit("visibilitychange");
    await pass(10);
    expect(pings()).toBe(0);
  });

  it("sends bye when the user leaves it, so that the server keeps no session, but not for the back-forward cache", async () => {
    const { peer } = await live();
    emit("pagehide", { persisted: true });
    await pass(10);
    expect([network.last.sent.join().includes("bye"), peer.state]).toEqual([false, "open"]);
    emit("pagehide", { persisted: false });
    await pass(10);
    expect(network.last.sent.at(-1)).toBe('{"bye":{"code":1001,"reason":"the page is left"}}');
    expect(peer.state).toBe("closed");
  });
});
