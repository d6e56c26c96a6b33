/** What the engine does over JetStream when a stream is lost although the connection is not, and when a node dies. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NatsOptions } from "../../src/nats/index.js";
import { managed, NatsServer, publishAt, removeStreams, startCluster } from "../support/nats.js";
import { Relay } from "../support/relay.js";
import { jump, outcomeOf, refusalOf, TestNode, TOPIC, untilNothingLeft, use } from "./kit.js";
import { NatsRelay, natsRig, type NatsRig } from "./nats-rig.js";

let server: NatsServer;
beforeAll(async () => {
  server = await NatsServer.create();
});
afterAll(() => server[Symbol.asyncDispose]());

const LONGEST_LEASE_MS = 600_000;

function rigOf(options: Partial<NatsOptions> = {}): NatsRig {
  return natsRig({ url: server.url, jetstream: {}, ...options }, server);
}

/** Returns a relay to the server, and a rig of the same prefix whose nodes connect by it. */
async function relayed({ prefix }: NatsRig): Promise<{ relay: Relay; rig: NatsRig }> {
  const relay = use(await Relay.to(server.port));
  return { relay, rig: rigOf({ url: `nats://127.0.0.1:${relay.port}`, prefix }) };
}

/** Pauses a relay when a client sends this text, which is not forwarded. */
function pauseBefore(relay: Relay, text: string): { until(): Promise<void> } {
  const paused = new Promise<void>((resolve) => {
    relay.pass = (bytes, to) => {
      if (to === "client" || !bytes.includes(text)) return bytes;
      relay.pass = (later) => later;
      relay.pause();
      resolve();
      return undefined;
    };
  });
  return { until: () => paused };
}

/** What the streams say of an incarnation. */
function saidOf(node: TestNode, number = 1): string {
  return `.o.${node.incarnation(number).replace("/", ".")}.`;
}

/** Opens a node with the member `kept`. Resolves when it has heard of `other`, whose members it will remove if it gives no sign. */
async function openBesides(rig: NatsRig, other: TestNode, prepare?: () => Promise<unknown>): Promise<TestNode> {
  const node = await TestNode.open(rig.engine(), "other");
  await prepare?.();
  await node.enter();
  await node.put("kept");
  await expect.poll(async () => (await node.beat()).live).toContain(other.incarnation());
  return node;
}

describe("the engine nats gives an incarnation up", () => {
  it("if the connection was away for longer than the lease", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const node = await TestNode.enter(own.engine());
    relay.cut();
    await node.untilHeard();
    jump(60_001);
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
    await node.enterAgain();
    await untilNothingLeft(rig, saidOf(node));
  });

  it("if its last sign has not arrived, although the connection is restored", async () => {
    const { relay, rig } = await relayed(rigOf());
    const node = await TestNode.enter(rig.engine());
    jump(20_000);
    const paused = pauseBefore(relay, "beats");
    const lost = outcomeOf(node.beat());
    await paused.until();
    relay.cut();
    expect(await lost).toBe("unknown");
    relay.mend();
    await node.untilHeard();
    jump(40_001);
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
  });

  it("that another node has begun to remove", async () => {
    const rig = rigOf();
    const node = await TestNode.enter(rig.engine());
    await publishAt(server.url, `${rig.prefix}.1.h.${node.name}.1`, "taken 60000");
    await expect.poll(() => node.beat()).toEqual({ isMine: false, live: [] });
    await node.enterAgain();
  });
});

/** A member whose beat waits for an answer about the stream of the members, which the relay holds. */
const overtakenBeat = async () => {
  const rig = rigOf();
  const relay = await NatsRelay.to(server);
  const node = await TestNode.enter(rigOf({ url: relay.url, prefix: rig.prefix }).engine());
  const info = relay.hold(new RegExp(`stream_info_response.*"name":"${rig.prefix}_1_w"`));
  const overtaken = node.beat();
  await info.taken;
  return { rig, node, info, overtaken };
};

describe("the engine nats, when a stream is lost and the connection is not", () => {
  it("notices it at a beat, and appends nothing before", async () => {
    const rig = rigOf();
    const node = await TestNode.enter(rig.engine());
    await node.append("1");
    await removeStreams(server.url, rig.prefix);
    expect(await outcomeOf(node.append("refused"))).toBe("not-sent");
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
    expect([node.heard, node.downs]).toEqual([["all"], []]);
  });

  it("never continues a log or a roster of a stream that another node has created anew", async () => {
    const rig = rigOf();
    const old = await TestNode.enter(rig.engine());
    const before = await old.append("1");
    await removeStreams(server.url, rig.prefix);
    const other = await TestNode.enter(rig.engine());
    // It has as many entries and members as the stream before, so what the first node knows would fit.
    const begun = await other.append("1");
    expect(begun.epoch).not.toBe(before.epoch);
    expect(await old.append("2")).toEqual({ epoch: begun.epoch, offset: 2 });
    await old.remove("a");
    await old.untilMembers([other.id("a")]);
  });

  it("says in the new stream where it has members, so that they are found if it dies before its next beat", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const dead = await TestNode.enter(own.engine(), "dead", 200);
    const other = await TestNode.open(rig.engine(), "other");
    await other.enter();
    await removeStreams(server.url, rig.prefix);
    expect((await other.beat()).isMine).toBe(false);
    await other.enter(2);
    await other.put("kept", 2);
    await dead.put("late");
    relay.pause();
    await other.untilMembers([other.id("kept", 2), dead.id("late")]);
    await other.untilReaped([other.id("kept", 2)], TOPIC, 2);
  });

  it("finds a member that follows a change in the new stream, if its node dies before its next beat", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const dead = await TestNode.enter(own.engine(), "dead", 2_000);
    await dead.connection.subscribe(`t:${TOPIC}`);
    const stream = `${rig.prefix}_1_w`;
    const lastOf = (): Promise<number> =>
      managed(server.url, async ({ streams }) => (await streams.info(stream)).state.last_seq);
    const before = await lastOf();
    await removeStreams(server.url, rig.prefix);
    // So what the node receives of it looks newer than what it knows.
    const other = await openBesides(rig, dead, async () => {
      await publishAt(server.url, `${rig.prefix}.1.w.=`, "removed at once");
      const seq = Math.max(before + 1_000, (await lastOf()) + 1);
      await managed(server.url, ({ streams }) => streams.purge(stream, { seq }));
    });
    await dead.until(`t:${TOPIC}`, 1, (frame) => frame.includes(other.id("kept")));
    await dead.put("late");
    relay.pause();
    await other.untilMembers([other.id("kept"), dead.id("late")]);
    await other.untilReaped([other.id("kept")]);
  });

  it.each([
    ["notices it", true],
    ["does not notice it", false],
  ])("finds a member whose node says where it is meanwhile, and %s", async (_what, isNoticed) => {
    const rig = rigOf();
    const relay = await NatsRelay.to(server);
    const dead = await TestNode.open(rigOf({ url: relay.url, prefix: rig.prefix }).engine());
    await dead.enter(1, 2_000);
    const said = relay.hold(new RegExp(`\\{"stream":"${rig.prefix}_1_w", ?"seq":`));
    const put = dead.connection.roster!.put("another", dead.id("late"), "1");
    await said.taken;
    await removeStreams(server.url, rig.prefix);
    const other = await openBesides(rig, dead);
    if (isNoticed) expect((await dead.beat(1, 2_000)).isMine).toBe(false);
    expect(dead.heard).toEqual(isNoticed ? ["all"] : []);
    said.release();
    await put;
    await relay.relay.close();
    await other.untilMembers([dead.id("late")], "another");
    await other.untilReaped([], "another");
    await other.untilMembers([other.id("kept")]);
  });

  describe("and an answer about it is overtaken", () => {
    it("loses nothing if the stream is there", async () => {
      const { node, info, overtaken } = await overtakenBeat();
      await node.put("b");
      expect((await node.beat()).isMine).toBe(true);
      info.release();
      expect((await overtaken).isMine).toBe(true);
      expect((await node.beat()).isMine).toBe(true);
      expect(node.heard).toEqual([]);
    });

    it("notices the loss once", async () => {
      const { rig, node, info, overtaken } = await overtakenBeat();
      await removeStreams(server.url, rig.prefix);
      expect((await node.beat()).isMine).toBe(false);
      info.release();
      expect((await overtaken).isMine).toBe(false);
      await node.enterAgain();
      expect(node.heard).toEqual(["all"]);
    });
  });

  it("enters although the stream has no room, and says so as soon as it has", async () => {
    const rig = rigOf();
    const node = await TestNode.open(rig.engine());
    const name = `${rig.prefix}_1_w`;
    const limit = (max_msgs: number): Promise<unknown> =>
      managed(server.url, ({ streams }) => streams.update(name, { max_msgs, discard: "new" }));
    await TestNode.enter(rig.engine());
    const { state } = await managed(server.url, ({ streams }) => streams.info(name));
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
      await managed(server.url, ({ streams }) => streams.purge(name));
      return (await node.beat()).isMine;
    };
    await expect.poll(isMineAfterPurge).toBe(false);
    await node.enter(2);
    await node.connection.close();
    await untilNothingLeft(rig, node.name);
  });

  it("begins another epoch if the log was purged", async () => {
    const rig = rigOf();
    const node = await TestNode.open(rig.engine());
    const before = await node.append("1");
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_l`, { filter: `${rig.prefix}.1.l.>` }));
    expect((await node.read()).epoch).toBe("");
    const after = await node.append("2");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
  });

  it("gives the incarnation up if the stream of the members was purged", async () => {
    const rig = rigOf();
    const node = await TestNode.enter(rig.engine());
    const before = await node.append("1");
    // What a node removes itself is no loss.
    await node.connection.roster!.put("first", node.id("a"), "1");
    await node.remove("a");
    expect((await node.beat()).isMine).toBe(true);
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_w`, { filter: `${rig.prefix}.1.*.>` }));
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
    expect([node.heard, node.downs]).toEqual([["all"], []]);
    await node.enterAgain();
    expect(await node.append("2")).toEqual({ epoch: before.epoch, offset: 2 });
  });

  it("reads the members again if their stream was purged and this node has none", async () => {
    const rig = rigOf();
    const watching = await TestNode.open(rig.engine(), "watching");
    await watching.enter();
    const node = await TestNode.enter(rig.engine());
    await watching.untilMembers([node.id("a")]);
    // What other nodes remove is no loss.
    await node.put("b");
    await node.remove("a");
    expect((await watching.beat()).isMine).toBe(true);
    expect(watching.heard).toEqual([]);
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_w`));
    expect(await watching.beat()).toEqual({ isMine: false, live: [] });
    expect([watching.heard, watching.downs]).toEqual([["all"], []]);
    await watching.untilMembers([]);
    await watching.enter(2);
    expect((await watching.beat(2)).isMine).toBe(true);
    expect(watching.heard).toEqual(["all"]);
  });
});

/** Resolves with a member whose server has no stream itself, and the servers of the cluster that have them. */
const openBeside = async (leaseMs?: number): Promise<{ node: TestNode; holders: NatsServer[] }> => {
  const servers = await startCluster(use);
  const over = ({ url }: NatsServer, prefix?: string): NatsRig =>
    natsRig({ url, jetstream: {}, startTimeoutMs: 60_000, ...(prefix !== undefined && { prefix }) }, servers[0]);
  const rig = over(servers[0]!);
  const first = await TestNode.open(rig.engine());
  const leaderOf = (kind: string): Promise<string> =>
    managed(servers[0]!.url, async ({ streams }) => (await streams.info(`${rig.prefix}_1_${kind}`)).cluster!.leader!);
  const names = [await leaderOf("l"), await leaderOf("w")];
  await first.connection.close();
  const holders = servers.filter(({ name }) => names.includes(name));
  const free = servers.find(({ name }) => !names.includes(name))!;
  return { node: await TestNode.enter(over(free, rig.prefix).engine(), "node", leaseMs), holders };
};

const untilGivenUp = async (node: TestNode, leaseMs?: number): Promise<void> => {
  const state = (): Promise<unknown> => node.beat(1, leaseMs).catch(() => undefined);
  await expect.poll(state).toEqual({ isMine: false, live: [] });
};

describe("the engine nats, over a cluster", () => {
  it("notices that a server has lost a stream that only it had", async () => {
    const { node, holders } = await openBeside();
    const before = await node.append("1");
    for (const holder of holders) {
      await holder.kill();
      await holder.start();
    }
    await untilGivenUp(node);
    expect([node.heard, node.downs]).toEqual([["all"], []]);
    const after = await node.append("2");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    await node.enterAgain();
  });

  it("gives the incarnation up if the streams do not answer for longer than its lease", async () => {
    const { node, holders } = await openBeside(2_000);
    await node.append("1");
    for (const holder of holders) await holder.pause();
    expect(await outcomeOf(node.append("2"))).toBe("unknown");
    await untilGivenUp(node, 2_000);
    // What needs no stream goes on.
    expect(await outcomeOf(node.connection.send("a:all", "x"))).toBe("done");
    expect(await node.until("a:all", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    for (const holder of holders) holder.resume();
    await expect.poll(() => outcomeOf(node.members())).toBe("done");
    await node.enterAgain();
  });

  it("loses nothing with a server if three keep the streams, or refuses servers that are too old", async () => {
    const [, minor = 0, patch = 0] = (await server.version()).split(".").map(Number);
    if (minor < 10 || (minor === 10 && patch < 19)) {
      const error = await refusalOf(rigOf({ jetstream: { replicas: 3 } }).engine());
      return expect(error.message).toMatch(/2\.10\.19 or later is needed for 3 replicas/);
    }
    const servers = await startCluster(use);
    const url = servers.map((one) => one.url);
    const rig = natsRig({ url, jetstream: { replicas: 3 }, startTimeoutMs: 60_000 }, servers[1]);
    const node = await TestNode.enter(rig.engine());
    const { epoch } = await node.append("1", "key");
    await servers[0]!.kill();
    await expect.poll(() => node.append("1", "key").catch(() => undefined)).toEqual({ epoch, offset: 1 });
    await expect.poll(() => node.append("2", "next").catch(() => undefined)).toEqual({ epoch, offset: 2 });
    await expect.poll(() => node.beat().catch(() => undefined)).toMatchObject({ isMine: true });
    // NATS may place each reader on the server that was killed.
    for (let i = 0; i < 12; i++) {
      expect(await node.members()).toEqual([node.id("a")]);
      expect((await node.read()).entries).toEqual(["1", "2"].map((body, at) => [at + 1, body]));
    }
    expect((await node.read(1)).entries).toEqual([[1, "1"]]);
  });
});

describe("the engine nats, when a node dies", () => {
  it("lets another node remove its members, if the one that began to is gone", async () => {
    const rig = rigOf();
    const [dead, node] = [await TestNode.enter(rig.engine(), "dead", 100), await TestNode.open(rig.engine())];
    await node.enter();
    const subject = `${rig.prefix}.1.h.${dead.name}.1`;
    // As a node sends it before it begins. It then dies.
    await publishAt(server.url, subject, "beats 100", "taken 100");
    await node.untilReaped([]);
  });

  it("finds the members of a fleet that was killed", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const dead = await TestNode.enter(own.engine(), "dead", 200);
    relay.pause();
    const node = await TestNode.open(rig.engine());
    await node.enter(1, 2_000);
    await node.untilMembers([dead.id("a")]);
    await node.untilReaped([], TOPIC, 1, 2_000);
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
    const relay = await NatsRelay.to(server);
    const node = await TestNode.open(rigOf({ url: relay.url, prefix: rig.prefix }).engine());
    await node.enter(1, LONGEST_LEASE_MS);
    await node.untilMembers([dead.id("a")]);
    let isTaken = false;
    let hasFailed = false;
    relay.change = (text) => {
      isTaken ||= text.includes(`taken ${LONGEST_LEASE_MS}`);
      if (!isTaken || hasFailed || !text.includes("stream_info_response") || !text.includes(saidOf(dead))) return text;
      hasFailed = true;
      return text.replace('"config":', '"error" :');
    };
    jump(LONGEST_LEASE_MS / 2);
    await node.beat(1, LONGEST_LEASE_MS);
    jump(LONGEST_LEASE_MS - 1_000);
    await node.untilReaped([], TOPIC, 1, LONGEST_LEASE_MS);
    expect(hasFailed).toBe(true);
  });

  it("does not remove the members of a node with a longer lease, of which it has heard nothing", async () => {
    const rig = rigOf();
    const { relay, rig: own } = await relayed(rig);
    const silent = await TestNode.enter(own.engine(), "silent");
    // So it does not hear of the other node, and is silent until its next beat.
    relay.mute("client");
    const node = await TestNode.open(rig.engine(), "short");
    await node.enter(1, 9_000);
    for (let beats = 0; beats < 15; beats++) {
      jump(3_000);
      expect((await node.beat(1, 9_000)).isMine).toBe(true);
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
  await paused.until();
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
