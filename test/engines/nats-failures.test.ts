/** What the engine does when NATS is killed, emptied, stopped, or refuses something. */
import { once } from "node:events";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import {
  EngineError,
  type Incarnation,
  type LeaseState,
  type LogRule,
  type Position,
  type RosterId,
} from "../../src/fleet/engine.js";
import { rosterFrame } from "../../src/fleet/frames.js";
import { lackOf } from "../../src/nats/client.js";
import type { NatsOptions } from "../../src/nats/index.js";
import { selfSigned } from "../support/certificates.js";
import {
  ensureNats,
  managed,
  NatsServer,
  publishAt,
  publishRaw,
  startCluster,
  type NatsServerOptions,
} from "../support/nats.js";
import { NatsRelay } from "../support/nats-relay.js";
import { eventually } from "../support/redis.js";
import { Relay } from "../support/relay.js";
import { countHandles, isAscending, Listening, outcomeOf, untilHeard, watchHandles } from "./listening.js";
import { natsRig, rightsOf, type NatsRig } from "./nats-rig.js";

const LOG: LogRule = { length: 1_000, ttlMs: 60_000 };
const TOPIC = "topic";
const KIB = 1_024;

// Installs NATS if necessary, which takes longer than a test.
beforeAll(() => ensureNats(), 300_000);

/** What is disposed of after the test, the last first. */
const used: AsyncDisposable[] = [];
afterEach(async () => {
  while (used.length > 0) await used.pop()![Symbol.asyncDispose]();
});

function use<T extends AsyncDisposable>(one: T): T {
  used.push(one);
  return one;
}

async function startNats(options: NatsServerOptions = {}): Promise<NatsServer> {
  return use(await NatsServer.create(options));
}

async function startRelay(server: NatsServer): Promise<Relay> {
  return use(await Relay.to(server.port));
}

/** Parts a relay when a client sends this text, which is not forwarded. */
function partBefore(relay: Relay, text: string): void {
  relay.pass = (bytes, to) => {
    if (to === "client" || !bytes.includes(text)) return bytes;
    relay.pass = (later) => later;
    relay.pause();
    return undefined;
  };
}

/** Returns a function that returns how many bytes a relay has forwarded to its clients since then. */
function countBytes(relay: Relay): () => number {
  let count = 0;
  relay.pass = (bytes, to) => {
    if (to === "client") count += bytes.length;
    return bytes;
  };
  return () => count;
}

/** Returns a rig with JetStream, unless the options say otherwise. */
function rigOf(server: NatsServer, options: Partial<NatsOptions> = {}, prefix?: string): NatsRig {
  return natsRig({ url: server.url, jetstream: {}, ...options }, server, prefix);
}

function rigOver(relay: Relay, server: NatsServer, prefix?: string): NatsRig {
  return rigOf(server, { url: `nats://127.0.0.1:${relay.port}` }, prefix);
}

async function openNode(rig: NatsRig, name = "node"): Promise<Listening> {
  return use(await Listening.open(rig.engine(), name));
}

function append(node: Listening, body: string, key?: string, rule = LOG): Promise<Position> {
  return node.connection.log!.append(TOPIC, body, rule, key);
}

function incarnationOf(node: Listening, number = 1): Incarnation {
  return `${node.name}/${number}`;
}

function beat(node: Listening, number = 1, leaseMs = 60_000): Promise<LeaseState> {
  return node.connection.roster!.beat(incarnationOf(node, number), leaseMs);
}

/** Resolves with a node that has a lease and one member. */
async function openMember(rig: NatsRig, leaseMs = 60_000): Promise<Listening> {
  const node = await openNode(rig);
  await node.connection.roster!.enter(incarnationOf(node), leaseMs);
  await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.a`, "1");
  return node;
}

/** Resolves when a topic has exactly these members. */
async function untilMembers(node: Listening, ids: readonly RosterId[], topic = TOPIC): Promise<void> {
  await eventually(
    async () => (await node.connection.roster!.list(topic)).members.map(([id]) => id),
    (found) => JSON.stringify(found) === JSON.stringify(ids),
  );
}

/** Resolves when nothing in the streams says that an incarnation is there, or where it has members. */
async function untilNothingSaid(rig: NatsRig, incarnation: Incarnation): Promise<void> {
  await eventually(
    () => rig.leftovers(),
    (left) => !left.some((one) => one.includes(`.o.${incarnation.replace("/", ".")}.`)),
  );
}

/** Takes another lease as the incarnation that follows, and puts a member. */
async function enterAgain(node: Listening, number: number): Promise<RosterId> {
  const next = incarnationOf(node, number);
  await node.connection.roster!.enter(next, 60_000);
  await node.connection.roster!.put(TOPIC, `${next}.again`, "1");
  expect(await beat(node, number)).toEqual({ isMine: true, live: [next] });
  return `${next}.again`;
}

/** Opens a node, which puts a member. Resolves when it has heard of `other`, whose members it will remove if it gives no sign. */
async function openBesides(rig: NatsRig, other: Listening, prepare?: () => Promise<unknown>): Promise<Listening> {
  const node = await openNode(rig, "other");
  await prepare?.();
  await node.connection.roster!.enter(incarnationOf(node), 60_000);
  await node.connection.roster!.put(TOPIC, keptOf(node), "1");
  await eventually(
    () => beat(node),
    ({ live }) => live.includes(incarnationOf(other)),
  );
  return node;
}

function keptOf(node: Listening): RosterId {
  return `${incarnationOf(node)}.kept`;
}

describe("the engine nats, when its broker ends", () => {
  it.each([
    ["is killed", (server: NatsServer) => server.kill()],
    ["is stopped", (server: NatsServer) => server.stop()],
  ])("reconnects, subscribes again, and begins another epoch if it %s", async (_what, end) => {
    const server = await startNats();
    const node = await openNode(rigOf(server));
    await node.connection.subscribe(`t:${TOPIC}`);
    const before = await append(node, "1", "key");
    await node.until(`t:${TOPIC}`, 1);
    await end(server);
    await eventually(
      () => node.downs.length,
      (count) => count > 1,
    );
    expect(node.downs[1]!.message).toContain(`NATS at 127.0.0.1:${server.port}`);
    for (const operation of [node.connection.send("a:all", "x"), node.connection.subscribe("t:y"), append(node, "x")])
      expect(await outcomeOf(operation)).toBe("not-sent");
    await server.start();
    await untilHeard(node);
    expect([node.ups, node.heard]).toEqual([1, ["all"]]);
    expect(await node.connection.log!.read(TOPIC, 0, 10)).toEqual({ epoch: "", top: 0, entries: [] });
    // The position of an earlier epoch is not repeated for its key.
    const after = await append(node, "2", "key");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    await node.connection.send("a:all", "again");
    expect(await node.until("a:all", 1)).toEqual(["again"]);
    expect(await node.until(`t:${TOPIC}`, 2)).toHaveLength(2);
  });

  it("rejects what was not answered as unknown, and repeats nothing", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    // Later ones need no other command before they are written.
    await append(a, "1");
    await server.suspend();
    const operations = [a.connection.send("a:all", "lost"), append(a, "lost"), a.connection.subscribe("t:y")];
    const outcomes = Promise.all(operations.map(outcomeOf));
    await new Promise((resolve) => setImmediate(resolve));
    await server.kill();
    expect(await outcomes).toEqual(["unknown", "unknown", "unknown"]);
    await server.start();
    await Promise.all([a, b].map((node) => untilHeard(node)));
    expect((await a.connection.log!.read(TOPIC, 0, 10)).top).toBe(0);
    expect([...a.received, ...b.received]).toEqual([]);
  });

  it("gives the incarnation up, because its members are lost", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openMember(rig);
    await server.kill();
    await server.start();
    await untilHeard(node);
    expect(await beat(node)).toEqual({ isMine: false, live: [] });
    await untilMembers(node, [await enterAgain(node, 2)]);
    await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("gives the incarnation up if only the connection was away for longer than the lease", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const rig = rigOver(relay, server);
    const node = await openMember(rig, 100);
    const enteredAt = performance.now();
    relay.cut();
    await untilHeard(node);
    await eventually(
      () => performance.now() - enteredAt,
      (ms) => ms > 100,
    );
    expect(await beat(node, 1, 100)).toEqual({ isMine: false, live: [] });
    await enterAgain(node, 2);
    await untilNothingSaid(rig, incarnationOf(node));
  });

  it("gives the incarnation up if its last sign has not arrived, although the connection is restored", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const leaseMs = 3_000;
    const node = await openMember(rigOver(relay, server), leaseMs);
    const enteredAt = performance.now();
    const untilMs = (ms: number): Promise<unknown> =>
      eventually(
        () => performance.now() - enteredAt,
        (passedMs) => passedMs > ms,
      );
    await untilMs(leaseMs / 3);
    partBefore(relay, "beats");
    const lost = outcomeOf(beat(node, 1, leaseMs));
    await eventually(
      () => relay.isPaused,
      (isParted) => isParted,
    );
    relay.cut();
    expect(await lost).toBe("unknown");
    relay.mend();
    await untilHeard(node);
    await untilMs(leaseMs);
    expect(await beat(node, 1, leaseMs)).toEqual({ isMine: false, live: [] });
  });

  it("gives the incarnation up that another node has begun to remove", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openMember(rig);
    await publishAt(server.url, `${rig.prefix}.1.h.${node.name}.1`, "taken 60000");
    await eventually(
      () => beat(node),
      ({ isMine }) => !isMine,
    );
    await untilMembers(node, [await enterAgain(node, 2)]);
  });

  it("keeps its subscriptions and leases without JetStream", async () => {
    const server = await startNats({ jetstream: false });
    const rig = rigOf(server, { jetstream: undefined });
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    const { leases } = a.connection;
    await Promise.all([a, b].map((node) => node.connection.leases!.enter(incarnationOf(node), 60_000)));
    await server.kill();
    await server.start();
    await Promise.all([a, b].map((node) => untilHeard(node)));
    expect((await leases!.beat(incarnationOf(a), 60_000)).live).toHaveLength(2);
    await b.connection.close();
    await eventually(
      () => leases!.beat(incarnationOf(a), 60_000),
      ({ live }) => live.length === 1,
    );
    expect(await a.connection.send(`n:${b.name}`, "x")).toBe(0);
  });
});

/** Resolves when a topic has no members but `kept`. Others were put by a node that gives no sign any more. */
async function untilReaped(node: Listening, kept: RosterId | undefined, topic = TOPIC, number = 1): Promise<void> {
  await eventually(
    async () => {
      await beat(node, number);
      return (await node.connection.roster!.list(topic)).members.map(([id]) => id);
    },
    (ids) => ids.every((id) => id === kept),
  );
  await untilMembers(node, kept === undefined ? [] : [kept], topic);
}

/** Resolves with a member whose server has no stream itself, and the servers of a cluster that have them. */
async function openBeside(leaseMs?: number): Promise<{ node: Listening; holders: NatsServer[] }> {
  const servers = await startCluster(use);
  const { prefix } = natsRig({ url: servers[0]!.url }, servers[0]);
  const options = { startTimeoutMs: 60_000 };
  const first = await openNode(rigOf(servers[0]!, options, prefix));
  const leaderOf = (kind: string): Promise<string> =>
    managed(servers[0]!.url, async ({ streams }) => {
      const info = (await streams.info(`${prefix}_1_${kind}`)) as unknown as { cluster: { leader: string } };
      return info.cluster.leader;
    });
  const names = [await leaderOf("l"), await leaderOf("w")];
  await first.connection.close();
  const holders = servers.filter(({ name }) => names.includes(name));
  const free = servers.find(({ name }) => !names.includes(name))!;
  return { node: await openMember(rigOf(free, options, prefix), leaseMs), holders };
}

/** Resolves when a node learns at a beat that it was given up. */
async function untilGivenUp(node: Listening, leaseMs?: number): Promise<void> {
  const state = await eventually(
    () => beat(node, 1, leaseMs).catch(() => undefined),
    (answer) => answer?.isMine === false,
    50_000,
  );
  expect(state).toEqual({ isMine: false, live: [] });
}

/** A member whose beat waits for an answer about the stream of the members, which the relay holds. */
async function overtakenBeat() {
  const server = await startNats();
  const { prefix } = rigOf(server);
  const relay = use(await NatsRelay.to(server.port));
  const node = await openMember(rigOf(server, { url: `nats://127.0.0.1:${relay.port}` }, prefix));
  const info = relay.hold(new RegExp(`stream_info_response.*"name":"${prefix}_1_w"`));
  const overtaken = beat(node);
  await info.taken;
  return { server, prefix, node, info, overtaken };
}

describe("the engine nats, when a stream is lost and the connection is not", () => {
  it("notices it at a beat: other epochs, members are put again, and channels are read again", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openMember(rig);
    const before = await append(node, "1");
    await managed(server.url, (manager) => manager.remove(rig.prefix));
    expect(await outcomeOf(append(node, "refused"))).toBe("not-sent");
    expect(await beat(node)).toEqual({ isMine: false, live: [] });
    expect([node.heard, node.downs]).toEqual([["all"], []]);
    const after = await append(node, "2");
    expect(after).toEqual({ epoch: after.epoch, offset: 1 });
    expect(after.epoch).not.toBe(before.epoch);
    await untilMembers(node, [await enterAgain(node, 2)]);
  });

  it("never continues a log or a roster of a stream that another node has created anew", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const old = await openMember(rig);
    const before = await append(old, "1");
    await managed(server.url, (manager) => manager.remove(rig.prefix));
    const other = await openMember(rig);
    // It has as many entries and members as the stream before, so what the first node knows would fit.
    const begun = await append(other, "1");
    expect(begun.epoch).not.toBe(before.epoch);
    expect(await append(old, "2")).toEqual({ epoch: begun.epoch, offset: 2 });
    await old.connection.roster!.put(TOPIC, `${incarnationOf(old)}.a`, undefined);
    await untilMembers(old, [`${incarnationOf(other)}.a`]);
  });

  it("says in the new stream where it has members, so that they are found if it dies before its next beat", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = await startRelay(server);
    const dead = await openMember(rigOver(relay, server, rig.prefix), 200);
    const other = await openNode(rig, "other");
    await other.connection.roster!.enter(incarnationOf(other), 60_000);
    await managed(server.url, (manager) => manager.remove(rig.prefix));
    expect((await beat(other)).isMine).toBe(false);
    await other.connection.roster!.enter(incarnationOf(other, 2), 60_000);
    const kept: RosterId = `${incarnationOf(other, 2)}.kept`;
    await other.connection.roster!.put(TOPIC, kept, "1");
    await dead.connection.roster!.put(TOPIC, `${incarnationOf(dead)}.late`, "1");
    relay.pause();
    await untilMembers(other, [kept, `${incarnationOf(dead)}.late`]);
    await untilReaped(other, kept, TOPIC, 2);
  });

  it("finds a member that follows a change in the new stream, if its node dies before its next beat", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = await startRelay(server);
    const dead = await openMember(rigOver(relay, server, rig.prefix), 2_000);
    await dead.connection.subscribe(`t:${TOPIC}`);
    const seq = await managed(server.url, async (manager) => {
      const { state } = await manager.streams.info(`${rig.prefix}_1_w`);
      await manager.remove(rig.prefix);
      return state.last_seq;
    });
    // So what the node receives of it looks newer than what it knows.
    const other = await openBesides(rig, dead, async () => {
      await publishAt(server.url, `${rig.prefix}.1.w.=`, "removed at once");
      await managed(server.url, async ({ streams }) => {
        const { state } = await streams.info(`${rig.prefix}_1_w`);
        await streams.purge(`${rig.prefix}_1_w`, { seq: Math.max(seq + 1_000, state.last_seq + 1) });
      });
    });
    const kept = keptOf(other);
    await dead.until(`t:${TOPIC}`, 1, (frame) => frame.includes(kept));
    const late: RosterId = `${incarnationOf(dead)}.late`;
    await dead.connection.roster!.put(TOPIC, late, "1");
    relay.pause();
    await untilMembers(other, [kept, late]);
    await untilReaped(other, kept);
  });

  it.each([
    ["notices it", true],
    ["does not notice it", false],
  ])("finds a member whose node says where it is while the stream is lost, and %s", async (_what, isNoticed) => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = use(await NatsRelay.to(server.port));
    const dead = await openNode(rigOf(server, { url: `nats://127.0.0.1:${relay.port}` }, rig.prefix));
    await dead.connection.roster!.enter(incarnationOf(dead), 2_000);
    const said = relay.hold(new RegExp(`\\{"stream":"${rig.prefix}_1_w", ?"seq":`));
    const late: RosterId = `${incarnationOf(dead)}.late`;
    const put = dead.connection.roster!.put("another", late, "1");
    await said.taken;
    await managed(server.url, (manager) => manager.remove(rig.prefix));
    const other = await openBesides(rig, dead);
    if (isNoticed) expect((await beat(dead, 1, 2_000)).isMine).toBe(false);
    expect(dead.heard).toEqual(isNoticed ? ["all"] : []);
    said.release();
    await put;
    await relay.end();
    await untilMembers(other, [late], "another");
    await untilReaped(other, undefined, "another");
    await untilMembers(other, [keptOf(other)]);
  });

  it("loses nothing if an answer about the streams is overtaken by a later one", async () => {
    const { node, info, overtaken } = await overtakenBeat();
    await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.b`, "1");
    expect((await beat(node)).isMine).toBe(true);
    info.release();
    expect((await overtaken).isMine).toBe(true);
    expect((await beat(node)).isMine).toBe(true);
    expect(node.heard).toEqual([]);
  });

  it("notices a lost stream once, if an answer about the stream before comes later", async () => {
    const { server, prefix, node, info, overtaken } = await overtakenBeat();
    await managed(server.url, (manager) => manager.remove(prefix));
    expect((await beat(node)).isMine).toBe(false);
    info.release();
    expect((await overtaken).isMine).toBe(false);
    await untilMembers(node, [await enterAgain(node, 2)]);
    expect(node.heard).toEqual(["all"]);
  });

  it("enters although the stream has no room, and says so as soon as it has", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const name = `${rig.prefix}_1_w`;
    const limit = (max_msgs: number): Promise<unknown> =>
      managed(server.url, ({ streams }) => streams.update(name, { max_msgs, discard: "new" } as object));
    await openMember(rig);
    const { state } = await managed(server.url, ({ streams }) => streams.info(name));
    await limit(state.last_seq - state.first_seq + 1);
    await node.connection.roster!.enter(incarnationOf(node), 60_000);
    expect((await beat(node)).isMine).toBe(true);
    const said = `members ${rig.prefix}.1.o.${incarnationOf(node).replace("/", ".")}.=`;
    expect(await rig.leftovers()).not.toContain(said);
    await limit(-1);
    await eventually(
      async () => {
        expect((await beat(node)).isMine).toBe(true);
        return rig.leftovers();
      },
      (left) => left.includes(said),
    );
    // It notices a purge as any other node does.
    await eventually(
      async () => {
        await managed(server.url, ({ streams }) => streams.purge(name, {}));
        return (await beat(node)).isMine;
      },
      (isMine) => !isMine,
    );
    await node.connection.roster!.enter(incarnationOf(node, 2), 60_000);
    await node.connection.close();
    expect((await rig.leftovers()).filter((one) => one.includes(node.name))).toEqual([]);
  });

  it("begins another epoch if the log was purged", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const before = await append(node, "1");
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_l`, { filter: `${rig.prefix}.1.l.>` }));
    expect((await node.connection.log!.read(TOPIC, 0, 10)).epoch).toBe("");
    const after = await append(node, "2");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
  });

  it("gives the incarnation up if the stream of the members was purged", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openMember(rig);
    const before = await append(node, "1");
    // What a node removes itself is no loss.
    await node.connection.roster!.put("first", `${incarnationOf(node)}.a`, "1");
    await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.a`, undefined);
    expect((await beat(node)).isMine).toBe(true);
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_w`, { filter: `${rig.prefix}.1.*.>` }));
    expect(await beat(node)).toEqual({ isMine: false, live: [] });
    expect([node.heard, node.downs]).toEqual([["all"], []]);
    await untilMembers(node, [await enterAgain(node, 2)]);
    expect(await append(node, "2")).toEqual({ epoch: before.epoch, offset: 2 });
  });

  it("reads the members again if their stream was purged and this node has none", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const watching = await openNode(rig, "watching");
    await watching.connection.roster!.enter(incarnationOf(watching), 60_000);
    const node = await openMember(rig);
    await untilMembers(watching, [`${incarnationOf(node)}.a`]);
    // What other nodes remove is no loss.
    await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.b`, "1");
    await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.a`, undefined);
    expect((await beat(watching)).isMine).toBe(true);
    expect(watching.heard).toEqual([]);
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_w`, {}));
    expect(await beat(watching)).toEqual({ isMine: false, live: [] });
    expect([watching.heard, watching.downs]).toEqual([["all"], []]);
    await untilMembers(watching, []);
    await watching.connection.roster!.enter(incarnationOf(watching, 2), 60_000);
    expect((await beat(watching, 2)).isMine).toBe(true);
    expect(watching.heard).toEqual(["all"]);
  });

  it("notices that a server of a cluster has lost a stream that only it had", async () => {
    const { node, holders } = await openBeside();
    const before = await append(node, "1");
    for (const holder of holders) {
      await holder.kill();
      await holder.start();
    }
    await untilGivenUp(node);
    expect([node.heard, node.downs]).toEqual([["all"], []]);
    const after = await append(node, "2");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    await untilMembers(node, [await enterAgain(node, 2)]);
  }, 120_000);

  it("gives the incarnation up if the streams do not answer for longer than its lease", async () => {
    const leaseMs = 2_000;
    const { node, holders } = await openBeside(leaseMs);
    await append(node, "1");
    for (const holder of holders) await holder.suspend();
    expect(await outcomeOf(append(node, "2"))).toBe("unknown");
    await untilGivenUp(node, leaseMs);
    // What needs no stream goes on.
    expect(await outcomeOf(node.connection.send("a:all", "x"))).toBe("done");
    expect(await node.until("a:all", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    for (const holder of holders) holder.signal("SIGCONT");
    await eventually(
      () => outcomeOf(node.connection.roster!.list(TOPIC)),
      (outcome) => outcome === "done",
      50_000,
    );
    await untilMembers(node, [await enterAgain(node, 2)]);
  }, 120_000);

  it("loses nothing with a server of a cluster if three keep the streams, or refuses servers that are too old", async () => {
    const single = await startNats();
    const lack = lackOf(await single.version(), 3);
    if (lack !== undefined) {
      const { message } = await refusalOf({ url: single.url, jetstream: { replicas: 3 } });
      return expect(message).toBe(`NATS at 127.0.0.1:${single.port}: ${lack}`);
    }
    const servers = await startCluster(use);
    const urls = servers.map(({ url }) => url);
    const rig = natsRig({ url: urls, jetstream: { replicas: 3 }, startTimeoutMs: 60_000 }, servers[1]);
    const node = await openMember(rig);
    const before = await append(node, "1", "key");
    await servers[0]!.kill();
    const after = await eventually(
      () => append(node, "1", "key").catch(() => undefined),
      (position) => position !== undefined,
      50_000,
    );
    expect(after).toEqual(before);
    const next = await eventually(
      () => append(node, "2", "next").catch(() => undefined),
      (position) => position !== undefined,
      50_000,
    );
    expect(next).toEqual({ epoch: before.epoch, offset: 2 });
    await eventually(
      () => beat(node).catch(() => undefined),
      (state) => state?.isMine === true,
      50_000,
    );
    // NATS may place each reader on the server that was killed.
    for (let i = 0; i < 12; i++) {
      const { members } = await node.connection.roster!.list(TOPIC);
      expect(members).toEqual([[`${incarnationOf(node)}.a`, "1"]]);
      const { entries } = await node.connection.log!.read(TOPIC, 0, 10);
      expect(entries).toEqual([
        [1, "1"],
        [2, "2"],
      ]);
    }
    const { entries } = await node.connection.log!.read(TOPIC, 0, 1);
    expect(entries).toEqual([[1, "1"]]);
  }, 120_000);
});

describe("the engine nats, when connections are lost", () => {
  it("misses no acknowledged entry while the connection of a reader is cut again and again", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const rig = rigOf(server);
    const writer = await openNode(rig, "writer");
    const reader = await openNode(rigOver(relay, server, rig.prefix), "reader");
    await reader.connection.subscribe(`t:${TOPIC}`);
    const acked: number[] = [];
    for (let cuts = 0; cuts < 5; cuts++) {
      for (let i = 0; i < 50; i++) acked.push((await append(writer, "x")).offset);
      relay.cut();
      await untilHeard(reader, cuts + 1);
    }
    const { top, entries } = await reader.connection.log!.read(TOPIC, 0, 1_000);
    expect(top).toBe(250);
    expect(acked).toEqual(entries.map(([offset]) => offset));
    const live = reader.of(`t:${TOPIC}`).map((frame) => Number(/^1L\t\S+\t(\d+)\n/.exec(frame)![1]));
    expect(isAscending(live)).toBe(true);
    expect([reader.downs.length, reader.ups]).toEqual([5, 5]);
    // The streams are the same, so nothing else is lost.
    expect(writer.heard).toEqual([]);
  });

  it("connects once while other nodes enter and the connection begins", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openMember(rig);
    const done = new AbortController();
    const signs = Array.from({ length: 5_000 }, () => "entered 60000");
    const entering = ["x", "y", "z"].map(async (other) => {
      while (!done.signal.aborted) await publishAt(server.url, `${rig.prefix}.1.h.${other}.1`, ...signs);
    });
    for (let i = 1; i <= 5; i++) {
      node.connection.reconnect(new Error("asked to"));
      await untilHeard(node, i);
    }
    done.abort();
    await Promise.all(entering);
    expect([node.downs.length, node.ups]).toEqual([5, 5]);
    await publishAt(server.url, `${rig.prefix}.1.h.last.1`, "entered 60000");
    expect((await beat(node)).live).toContain("last/1");
  });

  it("continues after a message whose headers cannot be read", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const node = await openNode(rig);
    await node.connection.subscribe(`t:${TOPIC}`);
    // The client library refuses to write such headers, and to read them.
    await publishRaw(server, `${rig.prefix}.1.t.${TOPIC}`, "NATS/1.0\r\nnot a name: 1\r\n\r\n", "foreign");
    const position = await append(node, "1");
    expect(await node.until(`t:${TOPIC}`, 2)).toEqual(["foreign", `1L\t${position.epoch}\t1\n1`]);
    expect(node.downs).toEqual([]);
  });

  it("continues behind messages that another program has written into its streams", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openMember(rig)];
    const strange = async (): Promise<void> => {
      for (const kind of ["l", "w"]) {
        await publishAt(server.url, `${rig.prefix}.1.${kind}.${TOPIC}`, "without headers");
        const headers = "NATS/1.0\r\nnot a name: 1\r\nReciproc-Kind: L\r\nReciproc-Number: 7\r\n\r\n";
        await publishRaw(server, `${rig.prefix}.1.${kind}.${TOPIC}`, headers, "foreign");
      }
      await publishAt(server.url, `${rig.prefix}.1.o.=.=Q`, "");
    };
    await strange();
    expect((await a.connection.log!.read(TOPIC, 0, 10)).epoch).toBe("");
    const { epoch, offset } = await append(a, "1");
    expect(offset).toBe(1);
    await strange();
    expect(await append(b, "2")).toEqual({ epoch, offset: 2 });
    await strange();
    expect(await append(a, "3")).toEqual({ epoch, offset: 3 });
    await strange();
    const entries = [1, 2, 3].map((one) => [one, String(one)]);
    expect(await b.connection.log!.read(TOPIC, 0, 10)).toEqual({ epoch, top: 3, entries });
    await untilMembers(a, [`${incarnationOf(b)}.a`]);
    await b.connection.roster!.put(TOPIC, `${incarnationOf(b)}.b`, "1");
    await b.connection.roster!.put(TOPIC, `${incarnationOf(b)}.a`, undefined);
    await untilMembers(a, [`${incarnationOf(b)}.b`]);
    expect([...a.downs, ...b.downs]).toEqual([]);
  });

  it.each([
    ["no number", "l", "Reciproc-Kind: L\r\nReciproc-Epoch: e"],
    ["a negative number", "l", "Reciproc-Kind: L\r\nReciproc-Epoch: e\r\nReciproc-Number: -5"],
    ["another form of a number", "l", "Reciproc-Kind: L\r\nReciproc-Epoch: e\r\nReciproc-Number: 0x10"],
    ["a number that is not exact", "l", "Reciproc-Kind: L\r\nReciproc-Epoch: e\r\nReciproc-Number: 9007199254740993"],
    ["no epoch", "l", "Reciproc-Kind: L\r\nReciproc-Number: 7"],
    ["the kind of a member in a log", "l", "Reciproc-Kind: j\r\nReciproc-Epoch: e\r\nReciproc-Number: 7"],
    ["no number in a roster", "w", "Reciproc-Kind: j\r\nReciproc-Id: x/1.a"],
    ["the kind of an entry in a roster", "w", "Reciproc-Kind: L\r\nReciproc-Epoch: e\r\nReciproc-Number: 7"],
  ])("takes a message with %s for a foreign one", async (_what, kind, headers) => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openMember(rig)];
    await b.connection.subscribe(`t:${TOPIC}`);
    const strange = (): Promise<void> =>
      publishRaw(server, `${rig.prefix}.1.${kind}.${TOPIC}`, `NATS/1.0\r\n${headers}\r\n\r\n`, "foreign");
    await strange();
    const { epoch, offset } = await append(a, "1");
    expect(offset).toBe(1);
    await strange();
    expect(await append(b, "2")).toEqual({ epoch, offset: 2 });
    await untilMembers(a, [`${incarnationOf(b)}.a`]);
    await b.connection.roster!.put(TOPIC, `${incarnationOf(b)}.a`, undefined);
    await untilMembers(a, []);
    expect(await b.until(`t:${TOPIC}`, 2, (frame) => frame === "foreign")).toHaveLength(2);
  });

  it("reads little of a log whose last message is foreign, and all of it if necessary", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const rig = rigOf(server);
    const writer = await openNode(rig, "writer");
    const body = "x".repeat(500 * KIB);
    for (let i = 0; i < 16; i++) await append(writer, body);
    const others = Array.from({ length: 1_100 }, () => "");
    const subject = `${rig.prefix}.1.l.${TOPIC}`;
    await publishAt(server.url, `${rig.prefix}.1.l.other`, ...others);
    const { epoch } = await append(writer, "17");
    await publishAt(server.url, subject, "foreign");
    const node = await openNode(rigOver(relay, server, rig.prefix));
    const carried = countBytes(relay);
    expect(await append(node, "18")).toEqual({ epoch, offset: 18 });
    expect(carried()).toBeLessThan(100 * KIB);
    await publishAt(server.url, `${rig.prefix}.1.l.other`, ...others);
    await publishAt(server.url, subject, "foreign");
    expect(await append(await openNode(rig), "19")).toEqual({ epoch, offset: 19 });
  });

  it("is cut as a slow consumer, and subscribes again", async () => {
    const server = await startNats({ lines: ["max_payload: 64KB", "max_pending: 128KB"] });
    const relay = await startRelay(server);
    const rig = rigOf(server);
    const sender = await openNode(rig, "sender");
    const node = await openNode(rigOver(relay, server, rig.prefix));
    expect(node.facts).toEqual({ maxFrameBytes: 63 * KIB, counts: false, order: "node", unmet: [] });
    await node.connection.subscribe(`t:${TOPIC}`);
    relay.pause("server");
    for (let i = 0; (await server.slowConsumers()) === 0 && i < 10_000; i++)
      await sender.connection.send(`t:${TOPIC}`, "x".repeat(60 * KIB));
    relay.mend();
    await untilHeard(node);
    expect(node.downs.length).toBeGreaterThan(0);
    await sender.connection.send(`t:${TOPIC}`, "small");
    await node.until(`t:${TOPIC}`, 1, (frame) => frame === "small");
    expect(sender.downs).toEqual([]);
  });

  it("opens its connection anew when asked to", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const node = await openNode(rigOver(relay, server));
    await node.connection.subscribe(`t:${TOPIC}`);
    relay.pause();
    const lost = outcomeOf(node.connection.send(`t:${TOPIC}`, "lost"));
    await new Promise((resolve) => setImmediate(resolve));
    node.connection.reconnect(new Error("no echo"));
    expect(await lost).toBe("unknown");
    expect(node.downs[0]!.message).toContain("no echo");
    expect(await outcomeOf(node.connection.send(`t:${TOPIC}`, "down"))).toBe("not-sent");
    node.connection.reconnect(new Error("it is down"));
    relay.mend();
    await untilHeard(node);
    await node.connection.send(`t:${TOPIC}`, "up");
    await node.until(`t:${TOPIC}`, 1, (frame) => frame === "up");
    expect(node.heard).toEqual(["all"]);
  });

  it("gives a connection up that carries nothing for 15 s, and has bounds meanwhile", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const rig = rigOver(relay, server);
    const [byBytes, byCount] = [await openNode(rig, "bytes"), await openNode(rig, "count")];
    relay.pause();
    const long = "x".repeat(byBytes.facts!.maxFrameBytes);
    const outcomes = Array.from({ length: 17 }, () => outcomeOf(byBytes.connection.send("a:all", long)));
    expect(await outcomes.at(-1)).toBe("not-sent");
    const many = Array.from({ length: 10_001 }, () => outcomeOf(byCount.connection.send("a:all", "x")));
    expect(await many.at(-1)).toBe("not-sent");
    await eventually(
      () => Math.min(byBytes.downs.length, byCount.downs.length),
      (count) => count > 0,
      40_000,
    );
    expect(await outcomes[0]).toBe("unknown");
    expect(await many[0]).toBe("unknown");
    relay.mend();
    await Promise.all([byBytes, byCount].map((node) => untilHeard(node)));
    expect(await outcomeOf(byCount.connection.send("a:all", "again"))).toBe("done");
  }, 120_000);
});

/** Resolves with a relay, and a node whose messages pass it. */
async function openRelayed(server: NatsServer, rig: NatsRig): Promise<{ relay: NatsRelay; node: Listening }> {
  const relay = use(await NatsRelay.to(server.port));
  const node = await openNode(rigOf(server, { url: `nats://127.0.0.1:${relay.port}` }, rig.prefix), "relayed");
  return { relay, node };
}

/** The time after which a read fails. */
const READ_MS = 5_000;

describe("the engine nats, when NATS answers as a cluster may", () => {
  it.each([
    ["another node was first", 10_164],
    ["the servers store another message", 10_163],
  ])("appends a little later, behind the last message, if it is refused because %s", async (_what, code) => {
    const server = await startNats();
    const rig = rigOf(server);
    const writer = await openNode(rig, "writer");
    const { relay, node } = await openRelayed(server, rig);
    const { epoch } = await append(node, "1");
    let refusedAt = 0;
    relay.change((text) => {
      if (text.includes('"err_code":10071,')) refusedAt = performance.now();
      return text.replace('"err_code":10071,', `"err_code":${code},`);
    });
    for (const offset of [3, 5, 7]) {
      await append(writer, "between");
      refusedAt = 0;
      expect(await append(node, "x")).toEqual({ epoch, offset });
      expect(refusedAt).toBeGreaterThan(0);
      // It waits for 5 to 20 ms.
      expect(performance.now() - refusedAt).toBeGreaterThan(4);
    }
  });

  it("does not know whether an entry is appended if one with its key is in process", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const writer = await openNode(rig, "writer");
    const { relay, node } = await openRelayed(server, rig);
    await append(node, "1");
    await append(writer, "2");
    relay.change((text) => text.replace('"err_code":10071,', '"err_code":10158,'));
    expect(await outcomeOf(append(node, "3", "key"))).toBe("unknown");
  });

  it("reads the rest from the leader if a reader of a stream ends too early", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const { relay, node } = await openRelayed(server, rig);
    for (const body of ["1", "2", "3", "4"]) await append(node, body);
    const roster = node.connection.roster!;
    for (const name of ["a", "b", "c"]) await roster.put(TOPIC, `${incarnationOf(node)}.${name}`, "1");
    let ended = 0;
    // Drops what follows the second message, which looks like the last one.
    relay.change((text) => {
      const [, at, pending] = /\$JS\.ACK\.\S+\.(\d+)\.\d+\.(\d+) /.exec(text) ?? [];
      if (at === undefined) return text;
      if (Number(at) > 2) return undefined;
      if (at === "1") return text;
      ended++;
      return text.replace(new RegExp(`\\.${pending} `), ".0 ");
    });
    const { entries } = await node.connection.log!.read(TOPIC, 0, 10);
    expect(entries.map(([offset]) => offset)).toEqual([1, 2, 3, 4]);
    await untilMembers(
      node,
      ["a", "b", "c"].map((name): RosterId => `${incarnationOf(node)}.${name}`),
    );
    expect(ended).toBeGreaterThan(1);
  });

  it("reads from the leader what a reader does not send", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const { relay, node } = await openRelayed(server, rig);
    for (const body of ["1", "2"]) await append(node, body);
    let dropped = 0;
    relay.change((text) => {
      if (!text.includes(" $JS.ACK.")) return text;
      dropped++;
      return undefined;
    });
    const startedAt = performance.now();
    const { entries } = await node.connection.log!.read(TOPIC, 0, 10);
    expect(entries.map(([offset]) => offset)).toEqual([1, 2]);
    expect(performance.now() - startedAt).toBeLessThan(READ_MS - 1_000);
    expect(dropped).toBeGreaterThan(0);
  });

  it("does not read for longer than 5 s", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const { relay, node } = await openRelayed(server, rig);
    for (const body of ["1", "2"]) await append(node, body);
    let isLast = true;
    relay.change((text) => {
      if (text.includes(" $JS.ACK.")) return undefined;
      if (!text.includes("stream_msg_get_response")) return text;
      // The last message is found, and then none any more.
      const isKept = isLast;
      isLast = false;
      return isKept ? text : undefined;
    });
    const startedAt = performance.now();
    expect(await outcomeOf(node.connection.log!.read(TOPIC, 0, 10))).toBe("unknown");
    expect(performance.now() - startedAt).toBeLessThan(READ_MS + 500);
  });

  it("has not sent an entry if it could not find the end of the log", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const { relay, node } = await openRelayed(server, rig);
    await append(await openNode(rig, "writer"), "1");
    relay.change((text) => (text.includes("stream_msg_get_response") ? undefined : text));
    expect(await outcomeOf(append(node, "2"))).toBe("not-sent");
    relay.change((text) => text);
    expect((await append(node, "2")).offset).toBe(2);
  }, 20_000);
});

describe("the engine nats, when a node dies", () => {
  it("removes the members of an expired lease, each once, whichever nodes beat", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [dead, a, b] = [await openNode(rig, "dead"), await openNode(rig, "a"), await openNode(rig, "b")];
    const topics = ["one", "two", "three"];
    await Promise.all(topics.map((topic) => a.connection.subscribe(`t:${topic}`)));
    for (const node of [a, b]) await node.connection.roster!.enter(incarnationOf(node), 60_000);
    await dead.connection.roster!.enter(incarnationOf(dead), 300);
    const ids = Array.from({ length: 100 }, (_, i): RosterId => `${dead.name}/1.m${i}`);
    await Promise.all(topics.flatMap((topic) => ids.map((id) => dead.connection.roster!.put(topic, id, "1"))));
    const stays: RosterId = `${incarnationOf(b)}.stays`;
    await b.connection.roster!.put("one", stays, "1");
    await eventually(
      async () => {
        await Promise.all([a, b].map((node) => beat(node)));
        const lists = await Promise.all(topics.map((topic) => a.connection.roster!.list(topic)));
        return lists.map(({ members }) => members.length).join(" ");
      },
      (counts) => counts === "1 0 0",
      30_000,
    );
    await untilMembers(a, [stays], "one");
    for (const [i, topic] of topics.entries()) {
      const frames = await a.until(`t:${topic}`, 200 + (i === 0 ? 1 : 0));
      const left = frames.filter((frame) => frame.startsWith("1l"));
      const versions = left.map((frame) => Number(frame.split("\t")[1]));
      expect(versions).toEqual(versions.map((_, at) => versions[0]! + at));
      const expected = ids.map((id) => withoutVersion(rosterFrame(0, id, undefined)));
      expect(left).toHaveLength(ids.length);
      expect(new Set(left.map(withoutVersion))).toEqual(new Set(expected));
    }
    expect((await beat(dead, 1, 300)).isMine).toBe(false);
    for (const node of [dead, a, b]) await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("lets another node remove them, if the one that began to is gone", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [dead, node] = [await openMember(rig, 100), await openNode(rig)];
    await node.connection.roster!.enter(incarnationOf(node), 60_000);
    const subject = `${rig.prefix}.1.h.${dead.name}.1`;
    // As a node sends it before it begins. It then dies.
    await publishAt(server.url, subject, "beats 100");
    await publishAt(server.url, subject, "taken 100");
    await eventually(
      async () => {
        await beat(node);
        return node.connection.roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
    );
  });

  it("finds the members of a fleet that was killed", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = await startRelay(server);
    const dead = await openMember(rigOver(relay, server, rig.prefix), 200);
    relay.pause();
    const node = await openNode(rig);
    await node.connection.roster!.enter(incarnationOf(node), 2_000);
    await untilMembers(node, [`${incarnationOf(dead)}.a`]);
    await eventually(
      async () => {
        await beat(node, 1, 2_000);
        return node.connection.roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
    );
    await untilNothingSaid(rig, incarnationOf(dead));
  });

  it("removes the members of a node at once that closes and cannot remove them itself", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = await startRelay(server);
    const node = await openNode(rig);
    await node.connection.roster!.enter(incarnationOf(node), 60_000);
    const closing = await openMember(rigOver(relay, server, rig.prefix));
    await untilMembers(node, [`${incarnationOf(closing)}.a`]);
    // What it sends is received, but it receives no answer.
    relay.mute("client");
    const closedAt = performance.now();
    await closing.connection.close();
    expect(performance.now() - closedAt).toBeLessThan(5_500);
    await eventually(
      async () => {
        await beat(node);
        return node.connection.roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
    );
  });

  it("keeps the members of the next incarnation of a node that was given up, and no other", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const other = await openNode(rig, "other");
    await other.connection.roster!.enter(incarnationOf(other), 60_000);
    const node = await openMember(rig, 100);
    await eventually(
      async () => {
        await beat(other);
        return other.connection.roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
    );
    // It does not know yet that it was given up.
    await node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.late`, "1");
    expect((await beat(node, 1, 100)).isMine).toBe(false);
    await other.connection.close();
    await untilMembers(node, [await enterAgain(node, 2)]);
    await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("tries again at the next beat if it could not remove members", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const leaseMs = 4_000;
    const dead = await openNode(rig, "dead");
    await dead.connection.roster!.enter(incarnationOf(dead), leaseMs);
    const { relay, node } = await openRelayed(server, rig);
    await node.connection.roster!.enter(incarnationOf(node), 60_000);
    await dead.connection.roster!.put(TOPIC, `${incarnationOf(dead)}.a`, "1");
    let isTaken = false;
    let failedAt = Infinity;
    relay.change((text) => {
      isTaken ||= text.includes(`taken ${leaseMs}`);
      if (!isTaken || failedAt < Infinity || !text.includes("stream_info_response")) return text;
      if (!text.includes(`.o.${incarnationOf(dead).replace("/", ".")}.`)) return text;
      failedAt = performance.now();
      return text.replace('"config":', '"error" :');
    });
    await eventually(
      async () => {
        await beat(node);
        return node.connection.roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
      20_000,
    );
    expect(performance.now() - failedAt).toBeLessThan(leaseMs - 500);
    expect(failedAt).toBeLessThan(Infinity);
  });

  it("does not remove the members of a node with a longer lease, of which it has heard nothing", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relay = await startRelay(server);
    const silent = await openMember(rigOver(relay, server, rig.prefix));
    // So it does not hear of the other node, and is silent until its next beat.
    relay.mute("client");
    const node = await openNode(rig, "short");
    const leaseMs = 300;
    await node.connection.roster!.enter(incarnationOf(node), leaseMs);
    for (const startedAt = performance.now(); performance.now() - startedAt < 5 * leaseMs;) {
      await beat(node, 1, leaseMs);
      await new Promise((resolve) => setTimeout(resolve, leaseMs / 3));
    }
    await untilMembers(node, [`${incarnationOf(silent)}.a`]);
    relay.cut();
    await untilHeard(silent);
  });
});

/** A node that can no longer write since it began to delete the join of a member that has left. `left` resolves when that has failed. */
async function leaveInPart() {
  const server = await startNats();
  const rig = rigOf(server);
  const relay = await startRelay(server);
  const node = await openMember(rigOver(relay, server, rig.prefix));
  const other = await openNode(rig, "other");
  await other.connection.roster!.enter(incarnationOf(other), 60_000);
  partBefore(relay, "STREAM.MSG.DELETE");
  const left = outcomeOf(node.connection.roster!.put(TOPIC, `${incarnationOf(node)}.a`, undefined));
  await eventually(
    () => relay.isPaused,
    (isParted) => isParted,
  );
  await untilMembers(other, []);
  return { rig, relay, node, other, left };
}

describe("the members of the engine nats", () => {
  it("are not there again after the next change, if a join could not be deleted", async () => {
    const { relay, other, left } = await leaveInPart();
    await other.connection.roster!.put(TOPIC, keptOf(other), "1");
    expect((await other.connection.roster!.list(TOPIC)).members).toEqual([[keptOf(other), "1"]]);
    relay.cut();
    await left;
    await other.connection.roster!.put(TOPIC, keptOf(other), undefined);
    expect((await other.connection.roster!.list(TOPIC)).members).toEqual([]);
  });

  it("are deleted at the next beat, if a join could not be deleted", async () => {
    const { rig, relay, node, left } = await leaveInPart();
    const leftovers = async (): Promise<string[]> =>
      (await rig.leftovers()).filter((one) => one.endsWith(`.w.${TOPIC}`));
    relay.cut();
    await left;
    expect(await leftovers()).toHaveLength(1);
    relay.mend();
    await untilHeard(node);
    await beat(node);
    await eventually(leftovers, (found) => found.length === 0);
  });
});

describe("the logs of the engine nats", () => {
  it("know the position of a key whose entry is no longer kept", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    const rule = { length: 2, ttlMs: 60_000 };
    const first = await append(a, "1", "key", rule);
    for (const body of ["2", "3", "4"]) await append(a, body, undefined, rule);
    for (const node of [a, b]) expect(await append(node, "again", "key", rule)).toEqual(first);
    const { top, entries } = await b.connection.log!.read(TOPIC, 0, 10);
    expect([top, entries]).toEqual([
      4,
      [
        [3, "3"],
        [4, "4"],
      ],
    ]);
    await managed(server.url, ({ streams }) => streams.purge(`${rig.prefix}_1_k`, {}));
    expect(await outcomeOf(append(b, "again", "key", rule))).toBe("unknown");
  });

  it("keep their last entry, and so their epoch, when they are quiet for longer than their rule says", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    await a.connection.roster!.enter(incarnationOf(a), 60_000);
    const rule = { length: 10, ttlMs: 1_000 };
    for (const body of ["1", "2", "3"]) await append(a, body, undefined, rule);
    const { epoch } = await eventually(
      async () => {
        await beat(a);
        return b.connection.log!.read(TOPIC, 0, 10);
      },
      ({ entries }) => entries.length === 1,
    );
    expect(await append(b, "4", undefined, rule)).toEqual({ epoch, offset: 4 });
    expect(await b.connection.log!.read(TOPIC, 0, 10)).toEqual({
      epoch,
      top: 4,
      entries: [
        [3, "3"],
        [4, "4"],
      ],
    });
  });

  it("are not shortened by a node that was not the last to publish", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    await a.connection.roster!.enter(incarnationOf(a), 60_000);
    const rule = { length: 10, ttlMs: 1_000 };
    for (const body of ["1", "2"]) await append(a, body, undefined, rule);
    await append(b, "3", undefined, rule);
    for (const body of ["1", "2"]) await a.connection.log!.append("later", body, rule, undefined);
    await eventually(
      async () => {
        await beat(a);
        return a.connection.log!.read("later", 0, 10);
      },
      ({ entries }) => entries.length === 1,
    );
    expect((await b.connection.log!.read(TOPIC, 0, 10)).entries).toHaveLength(3);
  });

  it("are kept as the greatest rule of any node wants", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    await Promise.all([
      append(a, "1", undefined, { length: 5, ttlMs: 7_200_000 }),
      append(b, "2", undefined, { length: 7, ttlMs: 1_000 }),
    ]);
    const { config } = await managed(server.url, ({ streams }) => streams.info(`${rig.prefix}_1_l`));
    expect(config.max_msgs_per_subject).toBe(7);
    expect(config.max_age).toBe((7_200_000 + 86_400_000) * 1_000_000);
  });

  it("are read in pages, each of which is sent little more than it has", async () => {
    const server = await startNats();
    const relay = await startRelay(server);
    const rig = rigOf(server);
    const writer = await openNode(rig, "writer");
    const reader = await openNode(rigOver(relay, server, rig.prefix), "reader");
    const body = "x".repeat(500 * KIB);
    for (let i = 0; i < 64; i++) await append(writer, body);
    let after = 0;
    for (const limit of [1, 2, 3]) {
      const carried = countBytes(relay);
      const { entries } = await reader.connection.log!.read(TOPIC, after, limit);
      expect(entries.map(([offset]) => offset)).toEqual(Array.from({ length: limit }, (_, i) => after + i + 1));
      // NATS sends 2 MiB before it waits.
      expect(carried()).toBeLessThan(8 * 2 ** 20);
      after += limit;
    }
    const { top, entries } = await reader.connection.log!.read(TOPIC, after, 1_000);
    expect([top, entries.length]).toEqual([64, 64 - after]);
    expect(reader.downs).toEqual([]);
  });

  it("reject an entry that the server has no memory for, and nothing of it is there", async () => {
    const server = await startNats({ jetstream: ["max_mem: 256KB"] });
    const node = await openNode(rigOf(server));
    const body = "x".repeat(50 * KIB);
    const accepted: Position[] = [];
    const fill = async (): Promise<string> => outcomeOf(append(node, body).then((position) => accepted.push(position)));
    await eventually(fill, (outcome) => outcome !== "done");
    expect(await fill()).toBe("not-sent");
    const { top, entries } = await node.connection.log!.read(TOPIC, 0, 100);
    expect(top).toBe(accepted.length);
    expect(entries.map(([offset]) => offset)).toEqual(accepted.map(({ offset }) => offset));
  });

  it("reject an entry that is too long for the server", async () => {
    const server = await startNats({ lines: ["max_payload: 64KB"] });
    const node = await openNode(rigOf(server));
    expect(await outcomeOf(append(node, "x".repeat(65 * KIB)))).toBe("not-sent");
    expect(await outcomeOf(node.connection.send("a:all", "x".repeat(65 * KIB)))).toBe("not-sent");
    expect((await append(node, "1")).offset).toBe(1);
  });
});

/** Returns the error with which a node of these options does not open. */
async function refusalOf(options: NatsOptions): Promise<EngineError> {
  const node = use(Listening.create(natsRig(options, undefined, options.prefix).engine(), "node"));
  return node.connection.open().then(
    () => expect.fail("it is open"),
    (error: unknown) => error as EngineError,
  );
}

/** Returns the lines of a configuration with one user, who has these rights. */
function linesOf(prefix: string, publish: readonly string[], subscribe: readonly string[] = [`${prefix}.>`]): string[] {
  const user = { user: "few", password: "se:cret", permissions: { publish, subscribe } };
  const users = [{ user: "all", password: "all" }, user];
  return [`authorization: ${JSON.stringify({ users })}`, "no_auth_user: all"];
}

function withoutVersion(frame: string): string {
  return frame.replace(/^1l\t\d+\t/, "1l\t\t");
}

/** Returns the URL of a server that accepts connections and sends nothing, and the connections that are open. */
async function listenSilently(): Promise<{ url: string; sockets: Set<Socket> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket
      .on("error", () => {})
      .on("close", () => sockets.delete(socket))
      .resume();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { url: `nats://127.0.0.1:${(server.address() as AddressInfo).port}`, sockets };
}

const FEW = { username: "few", password: "se:cret" };

describe("the engine nats, at the start", () => {
  it("tries again until NATS is there, and reports each failed attempt without the password", async () => {
    const server = await startNats({ lines: linesOf("any", [">"], [">"]) });
    await server.kill();
    const url = server.url.replace("nats://", "nats://few:se%3Acret@");
    const node = use(Listening.create(rigOf(server, { url }).engine(), "node"));
    const opened = node.connection.open();
    await eventually(
      () => node.downs.length,
      (count) => count >= 2,
    );
    await server.start();
    await opened;
    expect(node.downs[0]!.message).toMatch(/ECONNREFUSED|connection refused/i);
    for (const { message, cause } of node.downs) expect(`${message} ${String(cause)}`).not.toMatch(/se(:|%3A)cret/);
    expect(node.ups).toBe(0);
  });

  it("rejects a wrong password or token at once", async () => {
    const server = await startNats({ lines: ["authorization { user: few, password: secret }"] });
    const byToken = await startNats({ lines: ["authorization { token: secret }"] });
    for (const options of [
      { url: server.url, username: "few", password: "wrong" },
      { url: server.url },
      { url: byToken.url, token: "wrong" },
    ]) {
      const error = await refusalOf(options);
      expect(error).toBeInstanceOf(EngineError);
      expect(error.message).toMatch(/authorization violation/i);
      expect(error.message).not.toContain("wrong");
    }
    await openNode(natsRig({ url: byToken.url, token: "secret" }, undefined));
  });

  it("names the subjects that its user may not use", async () => {
    const prefix = "test-rights";
    const { streams } = rightsOf(prefix);
    const server = await startNats({ lines: linesOf(prefix, [`${prefix}.1.n.>`, ...streams]) });
    const { message } = await refusalOf({ url: server.url, ...FEW, prefix });
    for (const kind of ["t", "a", "h"]) expect(message).toContain(`Publish to "${prefix}.1.${kind}.="`);
    expect(message).not.toContain(`${prefix}.1.n.=`);
    await server.kill();
    await server.start(linesOf(prefix, [`${prefix}.>`, ...streams], [`${prefix}.1.r.>`, `${prefix}.1.t.>`]));
    const subscription = await refusalOf({ url: server.url, ...FEW, prefix });
    for (const kind of ["n", "a", "h"])
      expect(subscription.message).toContain(`Subscription to "${prefix}.1.${kind}.="`);
  });

  it("names the rights in JetStream that its user lacks, and changes nothing", async () => {
    const prefix = "test-rights";
    const { own, streams } = rightsOf(prefix);
    const kept = streams.filter((right) => !right.includes("MSG") && !right.includes("CONSUMER"));
    const server = await startNats({ lines: linesOf(prefix, [...own, ...kept]) });
    const { message } = await refusalOf({ url: server.url, ...FEW, prefix, jetstream: {} });
    for (const right of ["MSG.GET", "MSG.DELETE"]) expect(message).toContain(`$JS.API.STREAM.${right}.${prefix}_1_w`);
    expect(message).toContain("$JS.API.CONSUMER.CREATE");
    expect(message).not.toContain("PURGE");
    await server.kill();
    await server.start(linesOf(prefix, [...own, "$JS.API.INFO", "$JS.API.STREAM.INFO.*"]));
    const without = await refusalOf({ url: server.url, ...FEW, prefix, jetstream: {} });
    for (const right of ["CREATE", "UPDATE", "PURGE"])
      expect(without.message).toContain(`$JS.API.STREAM.${right}.${prefix}_1_l`);
    expect(without.message).toContain(`$JS.FC.${prefix}_1_l.=`);
    const names: string[] = await managed(server.url, async (manager) => {
      const found: string[] = [];
      for await (const name of manager.streams.names()) found.push(name);
      return found;
    });
    expect(names).toEqual([]);
  });

  it("is down while its user has lost a right, and up again with it", async () => {
    const prefix = "test-rights";
    const { own, streams } = rightsOf(prefix);
    const server = await startNats({ lines: linesOf(prefix, [...own, ...streams]) });
    const node = await openMember(rigOf(server, FEW, prefix));
    await server.reload(linesOf(prefix, streams));
    await eventually(
      async () => {
        await outcomeOf(node.connection.send("a:all", "x"));
        return node.downs.map(({ message }) => message).join("\n");
      },
      (messages) => messages.includes("Permissions Violation"),
    );
    await server.reload(linesOf(prefix, [...own, ...streams]));
    await untilHeard(node);
    expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
    await untilMembers(node, [`${incarnationOf(node)}.a`]);
  });

  it("rejects a subscription beyond the maximum of the server, and keeps the others", async () => {
    const server = await startNats({ lines: ["max_subscriptions: 20"] });
    const node = await openNode(rigOf(server));
    const outcomes: string[] = [];
    while (outcomes.at(-1) !== "not-sent" && outcomes.length < 20)
      outcomes.push(await outcomeOf(node.connection.subscribe(`t:${outcomes.length}`)));
    expect(outcomes.slice(0, -1)).toEqual(outcomes.slice(0, -1).map(() => "done"));
    expect(outcomes.at(-1)).toBe("not-sent");
    await node.connection.send("t:0", "x");
    expect(await node.until("t:0", 1)).toEqual(["x"]);
    expect(node.downs).toEqual([]);
    node.connection.unsubscribe("t:0");
    expect(await outcomeOf(node.connection.subscribe("t:another"))).toBe("done");
  });

  it("rejects a certificate that is not trusted, at once", async () => {
    const server = await startNats({ certificate: selfSigned() });
    const error = await refusalOf({ url: server.url });
    expect(error).toMatchObject({ name: "EngineError", outcome: "not-sent" });
    expect(error.message).toMatch(/self.signed certificate/);
  });

  it("rejects a server without JetStream, or without enough servers, at once", async () => {
    const [without, single] = [await startNats({ jetstream: false }), await startNats()];
    expect((await refusalOf({ url: without.url, jetstream: {} })).message).toMatch(/jetstream/i);
    expect((await refusalOf({ url: single.url, jetstream: { replicas: 3 } })).message).toMatch(/replicas/);
  });

  it("closes while it connects, and then no connection is left", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    await server.suspend();
    const node = Listening.create(rig.engine(), "node");
    const opened = outcomeOf(node.connection.open());
    await new Promise((resolve) => setImmediate(resolve));
    const closedAt = performance.now();
    await node.connection.close();
    expect(performance.now() - closedAt).toBeLessThan(5_500);
    expect(await opened).toBe("not-sent");
    server.signal("SIGCONT");
    await eventually(
      () => server.names(),
      (names) => !names.some((name) => name.includes(node.name)),
    );
    expect(node.downs).toEqual([]);
  });

  it("leaves no socket of an attempt that times out", async () => {
    const { url, sockets } = await listenSilently();
    const node = use(Listening.create(natsRig({ url }, undefined).engine(), "node"));
    const opened = outcomeOf(node.connection.open());
    await eventually(
      () => sockets.size,
      (count) => count === 1,
    );
    const [first] = sockets;
    await eventually(
      () => node.downs.length,
      (count) => count === 1,
    );
    await eventually(
      () => sockets.has(first!),
      (isOpen) => !isOpen,
      1_000,
    );
    await node.connection.close();
    expect(await opened).toBe("not-sent");
  });

  it("ends its start at once when it closes while no server sends anything", async () => {
    const servers = [await listenSilently(), await listenSilently()];
    const before = countHandles();
    const url = servers.map((server) => server.url);
    const node = Listening.create(natsRig({ url }, undefined).engine(), "node");
    const opened = outcomeOf(node.connection.open());
    await eventually(
      () => servers.filter(({ sockets }) => sockets.size > 0).length,
      (count) => count === 1,
    );
    const closedAt = performance.now();
    await node.connection.close();
    expect(await opened).toBe("not-sent");
    expect(performance.now() - closedAt).toBeLessThan(1_000);
    await eventually(countHandles, (count) => count <= before, 1_000);
    expect(servers.map(({ sockets }) => sockets.size)).toEqual([0, 0]);
    expect(node.downs).toEqual([]);
  });

  it("leaves nothing if it closes while it enters", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const other = await openNode(rig, "other");
    await other.connection.roster!.enter(incarnationOf(other), 60_000);
    const { relay, node } = await openRelayed(server, rig);
    const confirmed = relay.hold(/^PONG/);
    const entered = outcomeOf(node.connection.roster!.enter(incarnationOf(node), 60_000));
    await confirmed.taken;
    const closed = node.connection.close();
    confirmed.release();
    expect(await entered).toBe("not-sent");
    await closed;
    expect((await rig.leftovers()).filter((one) => one.includes(node.name))).toEqual([]);
    expect((await beat(other)).live).toEqual([incarnationOf(other)]);
  });

  it.each([
    ["enters", false],
    ["beats", true],
  ])("is not live for the others if it closes while it %s, without JetStream", async (_what, hasEntered) => {
    const server = await startNats({ jetstream: false });
    const rig = rigOf(server, { jetstream: undefined });
    const relay = use(await NatsRelay.to(server.port));
    const options = { url: `nats://127.0.0.1:${relay.port}`, jetstream: undefined };
    const closing = await openNode(rigOf(server, options, rig.prefix), "closing");
    const other = await openNode(rig, "other");
    await other.connection.leases!.enter(incarnationOf(other), 60_000);
    const { leases } = closing.connection;
    if (hasEntered) await leases!.enter(incarnationOf(closing), 60_000);
    // So the confirmation that `close` waits for is that of the step, and the step continues while the connection closes.
    relay.hold(/^PONG/);
    // Nor does this node receive what it has sent itself.
    relay.hold(/left 60000/);
    const step = hasEntered
      ? leases!.beat(incarnationOf(closing), 60_000)
      : leases!.enter(incarnationOf(closing), 60_000);
    const stepped = outcomeOf(step);
    await closing.connection.close();
    await stepped;
    expect((await other.connection.leases!.beat(incarnationOf(other), 60_000)).live).toEqual([incarnationOf(other)]);
  });

  it("does not start without one of its streams", async () => {
    const limits = "max_mem: 64MB, max_streams: 2";
    const lines = [`accounts { A { users: [{ user: few, password: "se:cret" }], jetstream: { ${limits} } } }`];
    const server = await startNats({ lines });
    const node = use(Listening.create(natsRig({ url: server.url, ...FEW, jetstream: {} }, undefined).engine(), "node"));
    const opened = outcomeOf(node.connection.open());
    await eventually(
      () => node.downs.length,
      (count) => count >= 3,
    );
    expect(node.downs.at(-1)!.message).toMatch(/streams/);
    await node.connection.close();
    expect(await opened).toBe("not-sent");
  });

  it("is closed at any moment of its start, and then no connection is left", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const later = globalThis.setImmediate;
    onTestFinished(() => void vi.restoreAllMocks());
    // The last step of a start waits for `setImmediate`. Closes a number of microtasks after it.
    for (let microtasks = 0; microtasks < 16; microtasks++) {
      const node = Listening.create(rig.engine(), "node");
      let started: () => void;
      const isStarted = new Promise<void>((resolve) => (started = resolve));
      let closed: Promise<void> | undefined;
      const spy = vi.spyOn(globalThis, "setImmediate").mockImplementation((run: () => void) =>
        later(async () => {
          run();
          for (let i = 0; i < microtasks; i++) await Promise.resolve();
          closed ??= node.connection.close();
          started();
        }),
      );
      const opened = await outcomeOf(node.connection.open());
      spy.mockRestore();
      await isStarted;
      await closed;
      // Done if the start has ended before.
      expect(["not-sent", "done"]).toContain(opened);
      const refused = { outcome: "not-sent", message: "the engine nats is closed" };
      await expect(node.connection.send("a:all", "x")).rejects.toMatchObject(refused);
      await eventually(
        () => server.names(),
        (names) => !names.some((name) => name.includes(node.name)),
      );
    }
  });

  it("closes within 5 s when NATS does not answer, and then no socket and no timer is left", async () => {
    const server = await startNats();
    const untilReleased = watchHandles();
    const node = await openMember(rigOf(server));
    await server.suspend();
    const startedAt = performance.now();
    await node.connection.close();
    expect(performance.now() - startedAt).toBeLessThan(5_500);
    await untilReleased();
    server.signal("SIGCONT");
  });

  it("leaves no socket and no timer when it closes", async () => {
    const server = await startNats();
    const untilReleased = watchHandles();
    const before = countHandles();
    const node = await openMember(rigOf(server));
    await node.connection.subscribe(`t:${TOPIC}`);
    await append(node, "1", "key");
    await node.connection.log!.read(TOPIC, 0, 10);
    await node.connection.send(`n:${node.name}`, "x");
    expect(countHandles()).toBeGreaterThan(before);
    await node.connection.close();
    await untilReleased();
  });

  it("leaves no timer when it closes while NATS is away", async () => {
    const server = await startNats();
    const untilReleased = watchHandles();
    const node = await openMember(rigOf(server));
    await server.kill();
    // The delay of an attempt grows up to 20 s.
    await eventually(
      () => node.downs.length,
      (count) => count > 4,
    );
    await node.connection.close();
    await untilReleased();
    const { length } = node.downs;
    await server.start();
    expect(node.downs).toHaveLength(length);
  });

  it("begins the streams once, if many nodes start at the same time", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const nodes = await Promise.all(Array.from({ length: 8 }, (_, i) => openNode(rig, `node${i}`)));
    const positions = await Promise.all(nodes.map((node) => append(node, "x")));
    expect(new Set(positions.map(({ epoch }) => epoch)).size).toBe(1);
    expect(new Set(positions.map(({ offset }) => offset))).toEqual(new Set(positions.map((_, i) => i + 1)));
  });

  it("begins a stream once, if another node has just begun it", async () => {
    const server = await startNats();
    const rig = rigOf(server);
    const relays = [use(await NatsRelay.to(server.port)), use(await NatsRelay.to(server.port))] as const;
    const open = (relay: NatsRelay, name: string): Promise<Listening> =>
      openNode(rigOf(server, { url: `nats://127.0.0.1:${relay.port}` }, rig.prefix), name);
    // The first node has said where the life begins, and has not begun it.
    const updated = relays[0].hold(new RegExp(`stream_update_response.*"name":"${rig.prefix}_1_l"`));
    const first = open(relays[0], "first");
    await updated.taken;
    // The second one asks before that, and looks for what the first one has said after it.
    const aboutLog = new RegExp(`stream_info_response.*"name":"${rig.prefix}_1_l"`);
    const rights = relays[1].hold(aboutLog);
    const second = open(relays[1], "second");
    await rights.taken;
    const info = relays[1].hold(aboutLog);
    rights.release();
    await info.taken;
    updated.release();
    await first;
    const life = (): Promise<string | undefined> =>
      managed(server.url, async ({ streams }) => (await streams.info(`${rig.prefix}_1_l`)).config.description);
    const begun = await life();
    info.release();
    await second;
    expect(await life()).toBe(begun);
  });

  it("keeps applications with different prefixes apart", async () => {
    const server = await startNats();
    const rigs = [rigOf(server), rigOf(server)];
    const nodes = [await openNode(rigs[0]!), await openNode(rigs[1]!)] as const;
    await nodes[0].connection.send("a:all", "x");
    await nodes[0].until("a:all", 1);
    await nodes[1].connection.send("a:all", "y");
    expect(await nodes[1].until("a:all", 1)).toEqual(["y"]);
    await append(nodes[0], "1");
    expect((await nodes[1].connection.log!.read(TOPIC, 0, 10)).epoch).toBe("");
  });
});
