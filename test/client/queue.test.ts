import { beforeEach, describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { gate, Outcomes, pass, useVirtualClock } from "../support/time.js";
import { connectPage, expectEcho, live, network, openPage, refuse, test, useNetwork } from "./attempts.js";

useVirtualClock();

const heard: unknown[] = [];
useNetwork({
  echo: (params: unknown) => (heard.push(params), params),
  note: (params: unknown) => void heard.push(params),
});
beforeEach(() => void (heard.length = 0));

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

it.each<[string, object | undefined, boolean]>([
  ["before it is open", undefined, true],
  ["before it is open, with onOpen", { onOpen: () => {} }, true],
  ["with a session", undefined, false],
  ["without a session", { reconnect: true, link: "plain" }, false],
  ["with onOpen", { onOpen: () => {}, link: "plain" }, false],
])("sends queued calls and notifications in order, once it has connected: %s", async (_when, options, isNew) => {
  if (isNew) test.network.stop();
  const peer = isNew ? openPage(options) : await down(options);
  expect(peer.state).toBe(isNew ? "connecting" : "suspended");
  const outcomes = new Outcomes();
  for (let i = 0; i < 10; i += 2) {
    outcomes.watch(`call ${i}`, peer.request("echo", [i]));
    expect(peer.notify("note", [i + 1])).toBe(true);
  }
  const streamed = peer.request("echo", { values: peer.offer([1]) });
  expect(heard).toEqual([]);
  test.network.start();
  await pass(600);
  expect(peer.state).toBe("open");
  expect(heard.slice(0, 10)).toEqual(Array.from({ length: 10 }, (_, i) => [i]));
  expect(outcomes.names).toEqual([0, 2, 4, 6, 8].map((i) => `call ${i}`));
  expect(await streamed).toMatchObject({ values: { token: expect.anything() } });
});

describe("a client whose server has stopped reading", () => {
  it.each([
    ["eight times `maxUnsentBytes`, at once", Infinity, 700],
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
    expect(taken).toBeGreaterThanOrEqual(Math.min(most, 140));
    expect(taken).toBeLessThan(200);
    await pass(ms - 700);
    if (ms > 700) expect(closes).toEqual([]);
    await pass(700);
    // A page cannot send 1013.
    expect(closes).toEqual([4429]);
    expect(emitted).toEqual(["suspend", "lost", "resume"]);
    await expectEcho(peer);
  });
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
