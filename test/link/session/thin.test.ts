import { describe, expect, it } from "vitest";
import { useFakeClock } from "../../support/clock.js";
import { controls, message, numbers, packs, Rig } from "./rig.js";

useFakeClock();

describe("a session", () => {
  it("is opened by hello, session and ack, and carries messages both ways", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.server.link.send(message(2));
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1]);
    expect(numbers(rig.told)).toEqual([2]);
    const limits = { maxMessageBytes: 5000, logFrames: 16, logLength: 20_000 };
    expect(controls(rig.wire.server.sent)).toEqual([
      { hello: { session: true } },
      { session: { token: "secret-1", ttlMs: 60_000, limits } },
    ]);
    expect(controls(rig.wire.client.sent)).toEqual([{ hello: { session: true, limits } }, { ack: 0 }]);
    rig.client.link.close();
    await rig.settle();
  });

  it("outlives its socket: what was lost with it arrives once, in order, both ways", async () => {
    const rig = await Rig.live();
    rig.client.link.send(message(1));
    rig.server.link.send(message(1));
    await rig.settle();
    rig.client.link.send(message(2));
    rig.server.link.send(message(2));
    await Promise.resolve();
    rig.cut();
    rig.client.link.send(message(3));
    rig.server.link.send(message(3));
    expect(rig.told.notices).toEqual(["suspended"]);
    rig.reconnect();
    await rig.settle();
    expect(numbers(rig.server.told)).toEqual([1, 2, 3]);
    expect(numbers(rig.told)).toEqual([1, 2, 3]);
    expect(rig.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.server.told.notices).toEqual(["suspended", "resumed"]);
    expect(rig.servers).toHaveLength(1);
    expect(controls(rig.wire.client.sent)).toEqual([
      { resume: { token: "secret-1", received: 1, attempt: 1 } },
      { ack: 1 },
    ]);
    expect(packs(rig.wire.client.sent)).toEqual(['[{"n":2}]', '[{"n":3}]']);
    rig.client.link.close();
    await rig.settle();
    expect(rig.server.told.notices.at(-1)).toEqual({ closed: { code: 1000, reason: "" } });
    expect(rig.sessions.tokens).toBe(0);
  });
});
