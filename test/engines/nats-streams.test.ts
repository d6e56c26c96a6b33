/** What the engine does over JetStream when a stream is lost although the connection is not, and when a node dies. */
import { describe, expect, it } from "vitest";
import { managed, publishAt, removeStreams } from "../support/nats.js";
import type { Relay } from "../support/relay.js";
import { jump, outcomeOf, TestNode, TOPIC, untilNothingLeft } from "./kit.js";
import type { PrefixedRig } from "./failures.js";
import { useNats } from "./nats-rig.js";

const nats = useNats();
const { rigOf, relayed } = nats;

const LEASE_MS = 60_000;
const LONGEST_LEASE_MS = 600_000;

/** Pauses a relay when a client sends this text, which is not forwarded. Resolves then. */
function pauseBefore(relay: Relay, text: string): Promise<void> {
  return new Promise((resolve) => {
    relay.pass = (bytes, to) => {
      if (to === "client" || !bytes.includes(text)) return bytes;
      relay.pass = (later) => later;
      relay.pause();
      resolve();
      return undefined;
    };
  });
}

/** What the streams say of an incarnation. */
function saidOf(node: TestNode, number = 1): string {
  return `.o.${node.incarnation(number).replace("/", ".")}.`;
}

/** Opens a node with the member `kept`. Resolves when it has heard of `other`, whose members it will remove if it gives no sign. */
async function openBesides(rig: PrefixedRig, other: TestNode, prepare?: () => Promise<unknown>): Promise<TestNode> {
  const node = await TestNode.open(rig.engine(), "other");
  await prepare?.();
  await node.enter(1, LONGEST_LEASE_MS);
  await node.put("kept");
  await expect.poll(async () => (await node.beat(1, LONGEST_LEASE_MS)).live).toContain(other.incarnation());
  return node;
}

describe("the engine nats gives an incarnation up", () => {
  it("if its last sign is older than its lease, although the connection is restored", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const node = await TestNode.enter(own.engine());
    jump(20_000);
    const paused = pauseBefore(relay, "beats");
    const lost = outcomeOf(node.beat());
    await paused;
    relay.cut();
    expect(await lost).toBe("unknown");
    relay.mend();
    await node.untilHeard();
    jump(40_001);
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
    await node.enterAgain();
    await untilNothingLeft(rig, saidOf(node));
  });

  it("that another node has begun to remove", async () => {
    const rig = rigOf();
    const node = await TestNode.enter(rig.engine());
    await publishAt(nats.server.url, `${rig.prefix}.1.h.${node.name}.1`, "taken 60000");
    await expect.poll(() => node.beat()).toEqual({ isMine: false, live: [] });
    await node.enterAgain();
  });
});

describe("the engine nats, when a stream is lost and the connection is not", () => {
  it("never continues a log or a roster of a stream that another node has created anew", async () => {
    const rig = rigOf();
    const old = await TestNode.enter(rig.engine());
    const before = await old.append("1");
    await removeStreams(nats.server.url, rig.prefix);
    expect(await outcomeOf(old.append("refused"))).toBe("not-sent");
    const other = await TestNode.enter(rig.engine());
    // It has as many entries and members as the stream before, so what the first node knows would fit.
    const begun = await other.append("1");
    expect(begun.epoch).not.toBe(before.epoch);
    expect(await old.append("2")).toEqual({ epoch: begun.epoch, offset: 2 });
    await old.remove("a");
    await old.untilMembers([other.id("a")]);
  });

  it("finds a member that follows a change in the new stream, if its node dies before its next beat", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const dead = await TestNode.enter(own.engine(), "dead");
    await dead.connection.subscribe(`t:${TOPIC}`);
    const stream = `${rig.prefix}_1_w`;
    const lastOf = (): Promise<number> =>
      managed(nats.server.url, async ({ streams }) => (await streams.info(stream)).state.last_seq);
    const before = await lastOf();
    await removeStreams(nats.server.url, rig.prefix);
    // So what the node receives of it looks newer than what it knows.
    const other = await openBesides(rig, dead, async () => {
      await publishAt(nats.server.url, `${rig.prefix}.1.w.=`, "removed at once");
      const seq = Math.max(before + 1_000, (await lastOf()) + 1);
      await managed(nats.server.url, ({ streams }) => streams.purge(stream, { seq }));
    });
    await dead.until(`t:${TOPIC}`, 1, (frame) => frame.includes(other.id("kept")));
    await dead.put("late");
    relay.pause();
    await other.untilMembers([other.id("kept"), dead.id("late")]);
    jump(LEASE_MS + 1);
    await other.untilReaped([other.id("kept")], TOPIC, 1, LONGEST_LEASE_MS);
  });

  it.each([
    ["notices it", true],
    ["does not notice it", false],
  ])("finds a member whose node says where it is meanwhile, and %s", async (_what, isNoticed) => {
    const rig = rigOf();
    const { relay, wire, rig: own } = await relayed(rig);
    const dead = await TestNode.open(own.engine());
    await dead.enter();
    const said = wire.hold(new RegExp(`\\{"stream":"${rig.prefix}_1_w", ?"seq":`));
    const put = dead.connection.roster!.put("another", dead.id("late"), "1");
    await said.taken;
    await removeStreams(nats.server.url, rig.prefix);
    const other = await openBesides(rig, dead);
    if (isNoticed) expect((await dead.beat()).isMine).toBe(false);
    expect(dead.heard).toEqual(isNoticed ? ["all"] : []);
    said.release();
    await put;
    await relay.close();
    await other.untilMembers([dead.id("late")], "another");
    jump(LEASE_MS + 1);
    await other.untilReaped([], "another", 1, LONGEST_LEASE_MS);
    await other.untilMembers([other.id("kept")]);
  });

  it.each([true, false])(
    "notices it once if an answer about it is overtaken, and nothing if it is there: %s",
    async (isLost) => {
      const rig = rigOf();
      const { wire, rig: own } = await relayed(rig);
      const node = await TestNode.enter(own.engine());
      const info = wire.hold(new RegExp(`stream_info_response.*"name":"${rig.prefix}_1_w"`));
      const overtaken = node.beat();
      await info.taken;
      await (isLost ? removeStreams(nats.server.url, rig.prefix) : node.put("b"));
      expect((await node.beat()).isMine).toBe(!isLost);
      info.release();
      expect((await overtaken).isMine).toBe(!isLost);
      if (isLost) await node.enterAgain();
      else expect((await node.beat()).isMine).toBe(true);
      expect(node.heard).toEqual(isLost ? ["all"] : []);
    },
  );

  it("enters although the stream has no room, and says so as soon as it has", async () => {
    const rig = rigOf();
    const node = await TestNode.open(rig.engine());
    const name = `${rig.prefix}_1_w`;
    const limit = (max_msgs: number): Promise<unknown> =>
      managed(nats.server.url, ({ streams }) => streams.update(name, { max_msgs, discard: "new" }));
    await TestNode.enter(rig.engine());
    const { state } = await managed(nats.server.url, ({ streams }) => streams.info(name));
    await limit(state.last_seq - state.first_seq + 1);
    await node.enter();
    expect((await node.beat()).isMine).toBe(true);
    const said = `members ${rig.prefix}${saidOf(node).replace(".o.", ".1.o.")}=`;
    expect(await rig.leftovers()).not.toContain(said);
    await limit(-1);
    const leftoversAfterBeat = async (): Promise<string[]> => {
      expect((await node.beat()).isMine).toBe(true);
      return rig.leftovers();
    };
    await expect.poll(leftoversAfterBeat).toContain(said);
    // It notices a purge as any other node does.
    const isMineAfterPurge = async (): Promise<boolean> => {
      await managed(nats.server.url, ({ streams }) => streams.purge(name));
      return (await node.beat()).isMine;
    };
    await expect.poll(isMineAfterPurge).toBe(false);
    await node.enter(2);
    await node.connection.close();
    await untilNothingLeft(rig, node.name);
  });

  it("begins another epoch if the log was purged, and gives the incarnation up if the members were", async () => {
    const rig = rigOf();
    const purge = (stream: string, filter: string): Promise<unknown> =>
      managed(nats.server.url, ({ streams }) =>
        streams.purge(`${rig.prefix}_1_${stream}`, { filter: `${rig.prefix}.1.${filter}.>` }),
      );
    const [node, watching] = [await TestNode.enter(rig.engine()), await TestNode.open(rig.engine(), "watching")];
    await watching.enter();
    const before = await node.append("1");
    await purge("l", "l");
    expect((await node.read()).epoch).toBe("");
    const { epoch, offset } = await node.append("1");
    expect([offset, epoch === before.epoch]).toEqual([1, false]);
    // What a node removes, itself or another one, is no loss.
    await node.put("b");
    await node.remove("b");
    for (const one of [node, watching]) expect((await one.beat()).isMine).toBe(true);
    await purge("w", "*");
    for (const one of [node, watching]) {
      expect(await one.beat()).toEqual({ isMine: false, live: [] });
      expect([one.heard, one.downs]).toEqual([["all"], []]);
    }
    await watching.untilMembers([]);
    await watching.enter(2);
    expect((await watching.beat(2)).isMine).toBe(true);
    expect(watching.heard).toEqual(["all"]);
    await node.enter(2);
    await node.put("again", 2);
    await watching.untilMembers([node.id("again", 2)]);
    expect(await node.append("2")).toEqual({ epoch, offset: 2 });
  });
});

describe("the engine nats, when a node dies", () => {
  it("lets another node remove its members, if the one that began to is gone", async () => {
    const rig = rigOf();
    const [dead, node] = [await TestNode.enter(rig.engine(), "dead", 100), await TestNode.open(rig.engine())];
    await node.enter();
    const subject = `${rig.prefix}.1.h.${dead.name}.1`;
    // As a node sends it before it begins. It then dies.
    await publishAt(nats.server.url, subject, "beats 100", "taken 100");
    await node.untilReaped([]);
  });

  it("finds the members of a fleet that was killed", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const dead = await TestNode.enter(own.engine(), "dead", 200);
    relay.pause();
    const node = await TestNode.open(rig.engine());
    await node.enter();
    await node.untilMembers([dead.id("a")]);
    await node.untilReaped([]);
    await untilNothingLeft(rig, saidOf(dead));
  });

  it("removes the members of a node at once that closes and cannot remove them itself", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const node = await TestNode.open(rig.engine());
    await node.enter();
    const closing = await TestNode.enter(own.engine(), "closing", LONGEST_LEASE_MS);
    await node.untilMembers([closing.id("a")]);
    // What it sends is received, but it receives no answer.
    relay.mute("client");
    await closing.connection.close();
    await node.untilReaped([]);
  });

  it("tries again at the next beat if it could not remove members", async () => {
    const rig = rigOf();
    const dead = await TestNode.enter(rig.engine(), "dead", LONGEST_LEASE_MS);
    const { wire, rig: own } = await relayed(rig);
    const node = await TestNode.open(own.engine());
    await node.enter(1, LONGEST_LEASE_MS);
    await node.untilMembers([dead.id("a")]);
    let isTaken = false;
    let hasFailed = false;
    wire.change = (text) => {
      isTaken ||= text.includes(`taken ${LONGEST_LEASE_MS}`);
      if (!isTaken || hasFailed || !text.includes("stream_info_response") || !text.includes(saidOf(dead))) return text;
      hasFailed = true;
      return text.replace('"config":', '"error" :');
    };
    jump(LONGEST_LEASE_MS / 2);
    await node.beat(1, LONGEST_LEASE_MS);
    jump(LONGEST_LEASE_MS / 2 + LEASE_MS);
    await node.untilReaped([], TOPIC, 1, LONGEST_LEASE_MS);
    expect(hasFailed).toBe(true);
  });

  it("does not remove the members of a node with a longer lease, of which it has heard nothing", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const silent = await TestNode.enter(own.engine(), "silent", LONGEST_LEASE_MS);
    // So it does not hear of the other node, and is silent until its next beat.
    relay.mute("client");
    const node = await TestNode.open(rig.engine(), "short");
    await node.enter(1, LEASE_MS);
    for (let beats = 0; beats < 15; beats++) {
      jump(LEASE_MS / 2);
      expect((await node.beat(1, LEASE_MS)).isMine).toBe(true);
    }
    await node.untilMembers([silent.id("a")]);
    relay.cut();
    await silent.untilHeard();
  });
});

/** A node that can no longer write since it began to delete the join of a member that has left. */
const leaveInPart = async () => {
  const rig = rigOf();
  const { relay, rig: own } = await relayed(rig);
  const node = await TestNode.enter(own.engine());
  const other = await TestNode.open(rig.engine(), "other");
  await other.enter();
  const paused = pauseBefore(relay, "STREAM.MSG.DELETE");
  const left = outcomeOf(node.remove("a"));
  await paused;
  await other.untilMembers([]);
  return { rig, relay, node, other, left };
};

describe("the members of the engine nats", () => {
  it("are not there again after the next change, if a join could not be deleted", async () => {
    const { relay, other, left } = await leaveInPart();
    await other.put("kept");
    expect(await other.members()).toEqual([other.id("kept")]);
    relay.cut();
    await left;
    await other.remove("kept");
    expect(await other.members()).toEqual([]);
  });

  it("are deleted at the next beat, if a join could not be deleted", async () => {
    const { rig, relay, node, left } = await leaveInPart();
    relay.cut();
    await left;
    expect((await rig.leftovers()).filter((one) => one.endsWith(`.w.${TOPIC}`))).toHaveLength(1);
    relay.mend();
    await node.untilHeard();
    await node.beat();
    await untilNothingLeft(rig, `.w.${TOPIC}`);
  });
});
