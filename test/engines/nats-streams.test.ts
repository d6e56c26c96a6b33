/** What the engine does over JetStream when a stream is lost although the connection is not. */
import { describe, expect, it, vi } from "vitest";
import { removeStreams } from "../support/nats.js";
import { LOG, outcomeOf, TestNode } from "./kit.js";
import { useNats } from "./nats-rig.js";

const nats = useNats();
const { rigOf, relayed } = nats;

describe("the engine nats, when a stream is lost and the connection is not", () => {
  it("never continues a log of a stream that another node has created anew", async () => {
    const rig = rigOf();
    const old = await TestNode.open(rig.engine());
    const before = await old.append("1");
    await removeStreams(nats.server.url, rig.prefix);
    expect(await outcomeOf(old.append("refused"))).toBe("not-sent");
    // A failure is a reason to look at the streams at once.
    await old.untilHeard();
    const other = await TestNode.open(rig.engine());
    // It has as many entries as the stream before, so what the first node knows would fit.
    const begun = await other.append("1");
    expect(begun.epoch).not.toBe(before.epoch);
    expect(await old.append("2")).toEqual({ epoch: begun.epoch, offset: 2 });
    await removeStreams(nats.server.url, rig.prefix);
    // A node that has appended nothing creates the stream, which keeps one entry of each topic until another node appends.
    await TestNode.open(rig.engine());
    for (const node of [old, other]) await node.append(node.name);
    expect((await other.read()).entries).toEqual([old, other].map(({ name }, i) => [i + 1, name]));
  });

  it("notices it by itself, and then reports that messages may have been missed", async () => {
    vi.unstubAllGlobals();
    const rig = rigOf();
    const node = await TestNode.open(rig.engine());
    await node.append("1");
    await removeStreams(nats.server.url, rig.prefix);
    await node.untilHeard();
    expect([node.resubscribed, node.downs]).toEqual([["all"], []]);
    expect((await node.append("1")).offset).toBe(1);
  });

  it.each([true, false])(
    "notices it once if an answer about it is overtaken, and nothing if it is there: %s",
    async (isLost) => {
      vi.unstubAllGlobals();
      const rig = rigOf();
      const { wire, rig: own } = await relayed(rig);
      const node = await TestNode.open(own.engine());
      // A topic without a log makes the node look at the stream.
      const look = (topic: string): Promise<string> =>
        outcomeOf(node.connection.log!.append(topic, "1", LOG, undefined));
      const info = wire.hold(new RegExp(`stream_info_response.*"name":"${rig.prefix}_1_l"`));
      const overtaken = look("one");
      await info.taken;
      if (isLost) await removeStreams(nats.server.url, rig.prefix);
      await look("two");
      info.release();
      await overtaken;
      await look("three");
      expect(node.resubscribed).toEqual(isLost ? ["all"] : []);
    },
  );

  it("begins another epoch if the log was purged", async () => {
    const rig = rigOf();
    const node = await TestNode.open(rig.engine());
    const rule = { ...LOG, bytes: 1_000 };
    const before = await node.append("x".repeat(2_000), undefined, rule);
    await node.append("x".repeat(2_000), undefined, rule);
    await rig.removeLogs!();
    expect((await node.read()).epoch).toBe("");
    const { epoch, offset } = await node.append("1");
    expect([offset, epoch === before.epoch]).toEqual([1, false]);
    // Its bytes count anew.
    for (const next of [2, 3])
      expect(await node.append("x".repeat(600), undefined, rule)).toEqual({ epoch, offset: next });
    await expect.poll(async () => (await node.read()).entries.length).toBe(1);
  });
});
