import { describe, expect, it } from "vitest";
import { pass, useFakeClock } from "../support/clock.js";
import { notification, rawPeer, request, result } from "../support/raw.js";

useFakeClock();

const LIMITS = { maxMessagesPerSecond: 5 };

describe("limits.maxMessagesPerSecond", () => {
  it("refuses the requests beyond it with -32009, and runs none of them", async () => {
    let ran = 0;
    const raw = rawPeer({ limits: LIMITS, methods: { m: () => ++ran } });
    for (let id = 1; id <= 8; id++) raw.feed(request(id, "m"));
    expect(ran).toBe(5);
    const error = { code: -32009, message: "Too many messages", data: { maxMessagesPerSecond: 5 } };
    expect(raw.messages().slice(5)).toEqual([6, 7, 8].map((id) => ({ jsonrpc: "2.0", id, error })));
    expect(raw.peer.stats()).toMatchObject({ requestsReceived: 8, refusedRate: 3 });
  });

  it("accepts more as time passes, and never more than the limit of one second at once", async () => {
    let ran = 0;
    const raw = rawPeer({ limits: LIMITS, methods: { m: () => void ran++ } });
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
    expect(ran).toBe(12);
  });

  it("drops the notifications beyond it and counts them, without an answer", async () => {
    const raw = rawPeer({ limits: LIMITS, methods: { m: () => {} } });
    for (let i = 0; i < 7; i++) raw.feed(notification("m"));
    expect(raw.messages()).toEqual([]);
    expect(raw.peer.stats()).toMatchObject({ notificationsReceived: 7, refusedRate: 2 });
  });

  it("counts each member of a batch, and answers each request in it", async () => {
    const raw = rawPeer({ limits: LIMITS, methods: { m: () => 1 } });
    raw.feed([1, 2, 3, 4, 5, 6].map((id) => request(id, "m")));
    const done = [1, 2, 3, 4, 5].map((id) => result(id, 1));
    expect(raw.messages()).toMatchObject([[...done, { id: 6, error: { code: -32009 } }]]);
  });

  it("does not count answers, because they settle this side's own calls", async () => {
    const raw = rawPeer({ limits: LIMITS });
    const calls = Array.from({ length: 20 }, () => raw.peer.request("m"));
    for (let id = 1; id <= 20; id++) raw.feed(result(id, id));
    expect(await Promise.all(calls)).toHaveLength(20);
  });
});
