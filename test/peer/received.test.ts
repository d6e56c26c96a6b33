import { describe, expect, it } from "vitest";
import type { AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { pass, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

it("malformed messages are counted from zero after a minute", async () => {
  await pass(60_001);
  const raw = rawPeer({ limits: { maxMalformedPerMinute: 2 } });
  for (let i = 0; i < 2; i++) raw.feed("{");
  await pass(60_001);
  for (let i = 0; i < 2; i++) raw.feed("{");
  expect(raw.peer.state).toBe("open");
  await pass(59_000);
  raw.feed("{");
  expect(raw.closes).toEqual([{ code: 1008, reason: "more than 2 malformed messages in a minute" }]);
});

describe("limits.maxMessagesPerSecond", () => {
  const limits = { maxMessagesPerSecond: 5 };

  it("refuses the requests beyond it with -32009, and runs none of them, alone or in a batch", () => {
    let ran = 0;
    const raw = rawPeer({ limits, methods: { m: () => ++ran } });
    raw.feed([1, 2, 3, 4, 5, 6].map((id) => request(id, "m")));
    raw.feed(request(7, "m"));
    expect(ran).toBe(5);
    const refused = [6, 7].map((id) => failure(id, -32009, "Too many messages", { maxMessagesPerSecond: 5 }));
    expect(raw.messages().flat().slice(5)).toEqual(refused);
    expect(raw.peer.stats()).toMatchObject({ requestsReceived: 7, refusedRate: 2 });
  });

  it("drops the notifications beyond it and counts them, and accepts more as time passes, never more than in one second", async () => {
    let ran = 0;
    const raw = rawPeer({ limits, methods: { m: () => void ran++ } });
    const flood = (): void => {
      for (let i = 0; i < 20; i++) raw.feed(notification("m"));
    };
    flood();
    expect(ran).toBe(5);
    await pass(400);
    flood();
    expect(ran).toBe(7);
    await pass(60_000);
    flood();
    expect([ran, raw.sent]).toEqual([12, []]);
    expect(raw.peer.stats()).toMatchObject({ notificationsReceived: 60, refusedRate: 48 });
  });

  it("does not count answers, because they settle this side's own calls", async () => {
    const raw = rawPeer({ limits });
    const calls = Array.from({ length: 20 }, () => raw.peer.request("m"));
    for (let id = 1; id <= 20; id++) raw.feed(result(id, id));
    expect(await Promise.all(calls)).toHaveLength(20);
  });
});

/** Makes a peer that takes messages of another protocol. The table `foreign` of test/conformance says which these are. */
function listening(options: AnyOptions = {}): RawPeer & { foreign: unknown[] } {
  const foreign: unknown[] = [];
  const raw = rawPeer({
    methods: { m: () => 1 },
    onForeignMessage: (message, peer) => void (expect(peer).toBe(raw.peer), foreign.push(message)),
    ...options,
  });
  return { ...raw, foreign };
}

describe("onForeignMessage", () => {
  it("is limited by maxMessagesPerSecond", () => {
    const raw = listening({ limits: { maxMessagesPerSecond: 3 } });
    raw.feed(notification("m"));
    for (let i = 0; i < 5; i++) raw.feed({ event: i });
    expect([raw.foreign, raw.sent]).toEqual([[{ event: 0 }, { event: 1 }], []]);
    expect(raw.peer.stats()).toMatchObject({ refusedRate: 3, malformed: 0 });
  });

  it("that throws or rejects is reported to `error`, and the connection stays open", async () => {
    const raw = listening({ onForeignMessage: ({ text }: any) => (text ? text.bug() : Promise.reject(new Error())) });
    for (const text of ["", "thrown"]) raw.feed({ text });
    await turn();
    expect([raw.errors, raw.peer.state]).toEqual([[expect.any(TypeError), new Error()], "open"]);
  });

  it("is not called when the connection has ended, nor after it has closed the peer", () => {
    const seen: unknown[] = [];
    const raw = listening({ onForeignMessage: (message, peer) => (seen.push(message), void peer.close()) });
    raw.feed({ event: 1 });
    raw.feed({ event: 2 });
    expect(seen).toEqual([{ event: 1 }]);
  });
});
