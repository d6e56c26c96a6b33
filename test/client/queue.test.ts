/** Calls and notifications without a connection: they are queued in order, within limits, and can be cancelled. */
import { beforeEach, describe, expect, it } from "vitest";
import { ConnectionLostError, TimeoutError, type AnyPeer } from "../../src/index.js";
import { pass, timersSet, useVirtualClock } from "../support/time.js";
import { gate, Outcomes, rejection } from "../support/turns.js";
import { connectPage, expectEcho, live, network, plainEcho, refuse, test, useNetwork } from "./attempts.js";
import { record } from "./clients.js";

useVirtualClock();

const heard: unknown[] = [];
useNetwork({
  echo: (params: unknown) => (heard.push(params), params),
  note: (params: unknown) => void heard.push(params),
  never: (_params: unknown, { signal }: { signal: AbortSignal }) =>
    new Promise(() => signal.addEventListener("abort", () => heard.push("aborted"))),
  steps: (_params: unknown, { progress }: { progress: (value: unknown) => void }) => {
    for (const step of [1, 2, 3]) progress(step);
    return "done";
  },
});
beforeEach(() => void (heard.length = 0));

/** Connects a client that has then lost its socket, and whose attempts fail. */
async function down(options?: object): Promise<AnyPeer> {
  const peer = await connectPage(options);
  await pass(10);
  network.script = refuse;
  network.cut();
  await pass(10);
  expect(peer.state).toBe("suspended");
  network.script = undefined;
  return peer;
}

describe.each([
  ["with a session", undefined],
  ["without a session", { reconnect: true, link: "plain" }],
  ["with onOpen", { onOpen: () => {}, link: "plain" }],
])("a disconnected client, %s", (name, options) => {
  it("sends queued calls and notifications in order, once it has reconnected", async () => {
    const peer = await down(options);
    const outcomes = new Outcomes();
    for (let i = 0; i < 10; i += 2) {
      outcomes.watch(`call ${i}`, peer.request("echo", [i]));
      expect(peer.notify("note", [i + 1])).toBe(true);
    }
    expect(heard).toEqual([]);
    await pass(600);
    expect(peer.state).toBe("open");
    expect(heard).toEqual(Array.from({ length: 10 }, (_, i) => [i]));
    expect(outcomes.names).toEqual([0, 2, 4, 6, 8].map((i) => `call ${i}`));
  });

  it("refuses messages beyond its queue limit, with an error", async () => {
    const maxUnsentBytes = 20_000;
    const peer = await down({ ...options, limits: { maxUnsentBytes, maxMessageBytes: 5000 } });
    const emitted = record(peer);
    // With its params, and the overhead of each message.
    const padding = "x".repeat(1000 - 64 - JSON.stringify({ jsonrpc: "2.0", method: "note", params: [0, ""] }).length);
    const taken = Array.from({ length: 30 }, (_, i) => peer.notify("note", [i % 10, padding]));
    const fit = maxUnsentBytes / 2 / 1000;
    expect(taken.filter(Boolean)).toHaveLength(fit);
    expect(taken.lastIndexOf(true)).toBe(fit - 1);
    const refused = await rejection(peer.request("echo", [padding]));
    expect(refused).toBeInstanceOf(ConnectionLostError);
    expect(refused).toMatchObject({ outcome: "not-sent" });
    await pass(600);
    expect(peer.state).toBe("open");
    if (name === "with a session") {
      // Its server would wait for a message that no longer exists: the session has ended.
      expect(emitted).toEqual(["lost", "resume"]);
      expect(heard).toEqual([]);
    } else {
      expect((refused.cause as Error).message).toBe("the queue is full");
      expect(emitted).toEqual(["resume"]);
      expect(heard).toHaveLength(fit);
    }
    await expectEcho(peer);
  });

  it("drops a queued call that times out, which the server never gets", async () => {
    const peer = await down(options);
    network.script = refuse;
    const late = rejection(peer.request("echo", [1], { timeoutMs: 1000 }));
    const other = peer.request("echo", [2]);
    await pass(1000);
    expect(await late).toBeInstanceOf(TimeoutError);
    expect(await late).toMatchObject({ outcome: "not-sent", message: '"echo" was not sent within 1000 ms' });
    network.script = undefined;
    await pass(5000);
    expect(await other).toEqual([2]);
    expect(heard).toEqual([[2]]);
  });

  it("drops a queued call that is aborted, so that the server gets neither it nor its cancel", async () => {
    const peer = await down(options);
    const controller = new AbortController();
    const aborted = rejection(peer.request("echo", [1], { signal: controller.signal }));
    const calls = [peer.request("echo", [0]), peer.request("echo", [2])];
    controller.abort("never mind");
    expect(await aborted).toBe("never mind");
    await pass(600);
    expect(await Promise.all(calls)).toEqual([[0], [2]]);
    expect(heard).toEqual([[0], [2]]);
    expect(network.last.sent.join()).not.toContain("$/cancelRequest");
  });

  it("rejects queued calls as not sent when it is closed, and leaves nothing", async () => {
    const peer = await down(options);
    const emitted = record(peer);
    const calls = [1, 2, 3].map((i) => rejection(peer.request("echo", [i])));
    await peer.close();
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ outcome: "not-sent" });
    expect(peer.notify("note", [])).toBe(false);
    expect(emitted).toEqual(["close 1000"]);
    const { length } = network.attempts;
    await test.server.close();
    await pass(60_000);
    expect(timersSet()).toBe(0);
    expect(network.attempts).toHaveLength(length);
    expect(network.openCount).toBe(0);
  });
});

describe("a client whose server has stopped reading", () => {
  it.each([
    ["eight times `maxUnsentBytes`, at once", Infinity, 600],
    ["more than `maxUnsentBytes`, after 10 s", 60, 10_600],
  ])("loses a session whose queue is over its limit, and begins a new one: %s", async (_what, most, ms) => {
    const limits = { maxUnsentBytes: 20_000, maxReplyBytes: 20_000, maxMessageBytes: 5000 };
    const { peer, emitted } = await live({ limits });
    // Its messages are neither read nor acked, and fill its replay log.
    const closes: unknown[] = [];
    test.network.stop();
    network.onClose = (code) => {
      closes.push(code);
      test.network.start();
    };
    let taken = 0;
    while (taken < most && peer.notify("note", [taken, "x".repeat(1000)])) taken++;
    if (most === Infinity) {
      expect(taken).toBeGreaterThan(140);
      expect(taken).toBeLessThan(200);
    } else {
      await pass(9_900);
      expect(closes).toEqual([]);
    }
    await pass(ms - (most === Infinity ? 0 : 9_900));
    // A page cannot send 1013.
    expect(closes).toEqual([4429]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    await expectEcho(peer);
  });

  it("rejects queued calls as not sent when it is closed, and they never run, but queued notifications are sent", async () => {
    const peer = await connectPage();
    await pass(10);
    network.unsentBytes = 2 ** 20;
    const batch = peer.batch();
    const sent = rejection(peer.request("echo", ["sent"]));
    await pass(0);
    const calls = [rejection(peer.request("note", ["call"])), rejection(batch.request("note", ["batch"]))];
    batch.send();
    peer.notify("note", ["notification"]);
    await peer.close();
    await pass(0);
    expect(await sent).toMatchObject({ outcome: "unknown" });
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ outcome: "not-sent" });
    expect(heard).toEqual([["sent"], ["notification"]]);
  });
});

describe("a disconnected client whose session expires", () => {
  it("reports the loss at the timeout, rejects queued calls as not sent, and sends later ones", async () => {
    const { peer, emitted } = await live();
    network.script = refuse;
    const sent = rejection(peer.request("never", [], { timeoutMs: Infinity }));
    await pass(1);
    network.cut();
    const waiting = rejection(peer.request("echo", [1], { timeoutMs: Infinity }));
    await pass(59_999);
    expect(emitted).toEqual(["suspend"]);
    await pass(2);
    expect(emitted).toEqual(["suspend", "lost"]);
    expect(await sent).toMatchObject({ outcome: "unknown", cause: { message: expect.stringContaining("60000 ms") } });
    expect(await waiting).toMatchObject({ outcome: "not-sent" });
    const later = peer.request("echo", [2]);
    network.script = undefined;
    await pass(20_000);
    expect(await later).toEqual([2]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
  });
});

it("cancels a running call that was aborted while it was suspended, once it has resumed", async () => {
  const { peer, emitted } = await live();
  const controller = new AbortController();
  const call = rejection(peer.request("never", [], { signal: controller.signal }));
  await pass(1);
  network.cut();
  controller.abort("enough");
  expect(await call).toBe("enough");
  expect(heard).toEqual([]);
  await pass(1);
  expect(heard).toEqual(["aborted"]);
  expect(emitted).toEqual(["suspend", "resume"]);
});

it("asks for progress when it has reconnected, also if the previous server was plain", async () => {
  network.script = plainEcho;
  const peer = await down({ reconnect: true });
  const emitted: unknown[] = [];
  const call = peer.request("steps", { a: 1 }, { onProgress: (value) => emitted.push(value) });
  network.script = undefined;
  await pass(20_000);
  expect(await call).toBe("done");
  expect(emitted).toEqual([1, 2, 3]);
});

it("sends after `onOpen` no more than a full socket accepts: the session lasts", async () => {
  const go = gate<void>();
  let runs = 0;
  const onOpen = (): unknown => (runs++ === 0 ? undefined : go.promise);
  const { peer, emitted } = await live({ onOpen, limits: { maxUnsentBytes: 20_000, maxMessageBytes: 5000 } });
  network.lose();
  await pass(10);
  let taken = 0;
  while (taken < 100 && peer.notify("note", [taken, "x".repeat(1000)])) taken++;
  network.unsentBytes = 6000;
  go.resolve();
  await pass(10);
  network.unsentBytes = undefined;
  await pass(100);
  expect(emitted).toEqual(["suspend", "lost", "resume"]);
  expect(taken).toBeGreaterThan(5);
  expect(heard).toHaveLength(taken);
});
