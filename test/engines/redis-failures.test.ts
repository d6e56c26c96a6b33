/** What the engine does when Redis is killed, emptied, stopped, or refuses something. */
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "@redis/client";
import { afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import {
  EngineError,
  type Channel,
  type Incarnation,
  type LogRule,
  type Position,
  type RosterId,
} from "../../src/fleet/engine.js";
import { rosterFrame } from "../../src/fleet/frames.js";
import { TooLargeError } from "../../src/node.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { sourceOf, type ScriptName } from "../../src/redis/scripts.js";
import { closeAll, makeNode, type Node } from "../fleet/nodes.js";
import { freePort } from "../support/ports.js";
import { ensureRedis, eventually, RedisServer, type RedisServerOptions } from "../support/redis.js";
import { RedisProxy } from "../support/redis-proxy.js";
import { rejection, turn } from "../support/turns.js";
import { countHandles, isAscending, Listening, outcomeOf, untilHeard, watchHandles } from "./listening.js";
import { keyOf, redisRig, type RedisRig } from "./redis-rig.js";

const LOG: LogRule = { length: 1_000, ttlMs: 60_000 };
const TOPIC = "topic";
const MIB = 2 ** 20;

// Installs Redis if necessary, which takes longer than a test.
beforeAll(() => ensureRedis(), 300_000);

/** What is disposed of after the test, the last first. */
const used: AsyncDisposable[] = [];
afterEach(async () => {
  while (used.length > 0) await used.pop()![Symbol.asyncDispose]();
});

function use<T extends AsyncDisposable>(one: T): T {
  used.push(one);
  return one;
}

async function startRedis(options: RedisServerOptions = {}): Promise<RedisServer> {
  return use(await RedisServer.create(options));
}

function rigOf(server: RedisServer, options: RedisOptions = {}): RedisRig {
  return redisRig({ url: server.url, ...options }, [server.url]);
}

async function openNode(rig: RedisRig, name = "node"): Promise<Listening> {
  return use(await Listening.open(rig.engine(), name));
}

function append(node: Listening, body: string, key?: string): Promise<Position> {
  return node.connection.log!.append(TOPIC, body, LOG, key);
}

/** Publishes 3 entries that are saved and 2 that are not, kills the server, starts it from the snapshot and publishes 3 more. */
async function restoreSnapshot(options: RedisOptions): Promise<{ node: Listening; positions: Position[] }> {
  const server = await startRedis();
  const node = await openNode(rigOf(server, options));
  const positions: Position[] = [];
  for (const body of ["1", "2", "3"]) positions.push(await append(node, body, body));
  await server.command("SAVE");
  for (const body of ["4", "5"]) positions.push(await append(node, body));
  await server.kill();
  await server.start();
  await untilHeard(node);
  // The position of an earlier epoch is not repeated for its key.
  for (const body of ["6", "7", "8"]) positions.push(await append(node, body, body === "6" ? "1" : body));
  return { node, positions };
}

describe("the engine redis, when its broker is killed", () => {
  it("reconnects, subscribes again, and begins another epoch", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    await node.connection.subscribe(`t:${TOPIC}`);
    const before = await append(node, "1", "key");
    await node.until(`t:${TOPIC}`, 1);
    await server.kill();
    await eventually(
      () => node.downs.length,
      (count) => count > 0,
    );
    expect(node.downs[0]!.message).toContain(`Redis at 127.0.0.1:${server.port}`);
    for (const operation of [node.connection.send("a:all", "x"), node.connection.subscribe("t:y"), append(node, "x")])
      expect(await outcomeOf(operation)).toBe("not-sent");
    await server.start();
    await untilHeard(node);
    expect([node.ups, node.heard]).toEqual([1, ["all"]]);
    const after = await append(node, "2", "key");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    await node.connection.send("a:all", "again");
    expect(await node.until("a:all", 1)).toEqual(["again"]);
    expect(await node.until(`t:${TOPIC}`, 2)).toHaveLength(2);
  });

  it("does not continue a log of a snapshot, whose end is lost", async () => {
    const { node, positions } = await restoreSnapshot({});
    expect(new Set(positions.slice(0, 5).map(({ epoch }) => epoch)).size).toBe(1);
    expect(positions[5]!.epoch).not.toBe(positions[0]!.epoch);
    const { epoch, top, entries } = await node.connection.log!.read(TOPIC, 0, 10);
    expect({ epoch, top }).toEqual({ epoch: positions[5]!.epoch, top: 3 });
    expect(entries).toEqual([
      [1, "6"],
      [2, "7"],
      [3, "8"],
    ]);
  });

  it("reports no log before the first publication after a snapshot was loaded", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    await append(node, "1");
    await server.command("SAVE");
    await server.kill();
    await server.start();
    await untilHeard(node);
    expect(await node.connection.log!.read(TOPIC, 0, 10)).toEqual({ epoch: "", top: 0, entries: [] });
  });

  it('continues the log if `history` is "durable"', async () => {
    const { positions } = await restoreSnapshot({ history: "durable" });
    expect(new Set(positions.map(({ epoch }) => epoch)).size).toBe(1);
    expect(positions.map(({ offset }) => offset)).toEqual([1, 2, 3, 4, 5, 1, 4, 5]);
  });

  it("rejects what was not answered as unknown, and repeats nothing", async () => {
    const server = await startRedis();
    const [a, b] = [await openNode(rigOf(server)), await openNode(rigOf(server))];
    server.signal("SIGSTOP");
    const operations = [a.connection.send("a:all", "lost"), append(a, "lost")].map(outcomeOf);
    // Written, but not answered: a later command of the same connection is behind them.
    await new Promise((resolve) => setImmediate(resolve));
    await server.kill();
    expect(await Promise.all(operations)).toEqual(["unknown", "unknown"]);
    await server.start();
    await Promise.all([a, b].map((node) => untilHeard(node)));
    expect((await a.connection.log!.read(TOPIC, 0, 10)).top).toBe(0);
    expect([...a.received, ...b.received]).toEqual([]);
  });

  it("gives the incarnation up, because members that were put last may be lost", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const incarnation: Incarnation = `${node.name}/1`;
    const { roster } = node.connection;
    await roster!.enter(incarnation, 60_000);
    await roster!.put(TOPIC, `${incarnation}.saved`, "1");
    await server.command("SAVE");
    await roster!.put(TOPIC, `${incarnation}.lost`, "1");
    await server.kill();
    await server.start();
    await untilHeard(node);
    expect(await roster!.beat(incarnation, 60_000)).toEqual({ isMine: false, live: [] });
    const next: Incarnation = `${node.name}/2`;
    await roster!.enter(next, 60_000);
    await roster!.put(TOPIC, `${next}.again`, "1");
    expect(await roster!.beat(next, 60_000)).toEqual({ isMine: true, live: [next] });
    const { members } = await eventually(
      () => roster!.list(TOPIC),
      (part) => part.members.length === 1,
    );
    expect(members).toEqual([[`${next}.again`, "1"]]);
    await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });
});

/** Resolves with a node that has put a member, and whose server has lost the list by which its members are found. */
async function loseList(): Promise<{ rig: RedisRig; server: RedisServer; node: Listening }> {
  const server = await startRedis();
  const rig = rigOf(server);
  const node = await openNode(rig);
  await node.connection.roster!.enter(`${node.name}/1`, 60_000);
  await node.connection.roster!.put(TOPIC, `${node.name}/1.a`, "1");
  const [list] = await server.command<string[]>("KEYS", `${rig.prefix}:*:o:*`);
  await server.command("DEL", list!);
  return { rig, server, node };
}

describe("the engine redis, when the list of an incarnation is lost", () => {
  it("removes its own members nevertheless, when it closes", async () => {
    const { rig, node } = await loseList();
    await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("removes its own members nevertheless, when it was given up", async () => {
    const { server, node } = await loseList();
    const { roster } = node.connection;
    await server.command("SAVE");
    await server.kill();
    await server.start();
    await untilHeard(node);
    expect((await roster!.beat(`${node.name}/1`, 60_000)).isMine).toBe(false);
    await roster!.enter(`${node.name}/2`, 60_000);
    await eventually(
      () => roster!.list(TOPIC),
      ({ members }) => members.length === 0,
    );
  });
});

describe("the engine redis, when its broker loses data or connections", () => {
  it("begins another epoch after FLUSHALL, and gives its incarnation up", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    await node.connection.roster!.enter(`${node.name}/1`, 60_000);
    const before = await append(node, "1", "key");
    await server.command("FLUSHALL");
    expect((await node.connection.log!.read(TOPIC, 0, 10)).epoch).toBe("");
    const after = await append(node, "2", "key");
    expect(after).toEqual({ epoch: after.epoch, offset: 1 });
    expect(after.epoch).not.toBe(before.epoch);
    expect((await node.connection.roster!.beat(`${node.name}/1`, 60_000)).isMine).toBe(false);
  });

  it("runs scripts that the server has forgotten", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    const before = await append(node, "1");
    await server.command("SCRIPT", "FLUSH");
    const after = await Promise.all(["2", "3", "4"].map((body) => append(node, body)));
    expect(after.map(({ offset }) => offset)).toEqual([2, 3, 4]);
    expect(after[0]!.epoch).toBe(before.epoch);
  });

  it("misses no acknowledged entry while its subscription is killed again and again", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const [writer, reader] = [await openNode(rig, "writer"), await openNode(rig, "reader")];
    await reader.connection.subscribe(`t:${TOPIC}`);
    const acked: number[] = [];
    for (let kills = 0; kills < 5; kills++) {
      for (let i = 0; i < 50; i++) acked.push((await append(writer, "x")).offset);
      await killClients(
        server,
        (line) => line.includes(` name=${rig.prefix}-${reader.name} `) && / (sub|ssub)=[1-9]/.test(line),
      );
      await untilHeard(reader, kills + 1);
    }
    const { top, entries } = await writer.connection.log!.read(TOPIC, 0, 1_000);
    expect(top).toBe(250);
    expect(acked).toEqual(entries.map(([offset]) => offset));
    const live = reader.of(`t:${TOPIC}`).map((frame) => Number(/^1L\t\S+\t(\d+)\n/.exec(frame)![1]));
    expect(isAscending(live)).toBe(true);
    expect([reader.downs.length, reader.ups]).toEqual([5, 5]);
    expect(writer.downs).toEqual([]);
  });

  it("answers commands that were sent before the subscription was lost", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const operations = Array.from({ length: 500 }, () => append(node, "x"));
    await killClients(server, (line) => line.includes(`name=${rig.prefix}-${node.name} `) && / sub=[1-9]/.test(line));
    expect((await Promise.all(operations)).at(-1)!.offset).toBe(500);
    await untilHeard(node);
  });

  it("is cut by a small output buffer limit, and subscribes again", async () => {
    const server = await startRedis({ settings: { "client-output-buffer-limit": "pubsub 64kb 64kb 1" } });
    const rig = rigOf(server);
    const [sender, node] = [await openNode(rig, "sender"), await openNode(rig)];
    await node.connection.subscribe(`t:${TOPIC}`);
    for (let i = 0; node.downs.length === 0 && i < 1_000; i++)
      await sender.connection.send(`t:${TOPIC}`, "x".repeat(MIB));
    await untilHeard(node);
    await sender.connection.send(`t:${TOPIC}`, "small");
    await node.until(`t:${TOPIC}`, 1, (frame) => frame === "small");
  });

  it("opens its connections anew when asked to", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    await node.connection.subscribe(`t:${TOPIC}`);
    server.signal("SIGSTOP");
    const lost = outcomeOf(node.connection.send(`t:${TOPIC}`, "lost"));
    await new Promise((resolve) => setImmediate(resolve));
    node.connection.reconnect(new Error("no echo"));
    expect(await lost).toBe("unknown");
    expect(node.downs[0]!.message).toContain("no echo");
    expect(await outcomeOf(node.connection.send(`t:${TOPIC}`, "down"))).toBe("not-sent");
    server.signal("SIGCONT");
    await untilHeard(node);
    await node.connection.send(`t:${TOPIC}`, "up");
    await node.until(`t:${TOPIC}`, 1, (frame) => frame === "up");
  });

  it("gives a connection up that answers nothing for 15 s, and has bounds meanwhile", async () => {
    const server = await startRedis();
    const [byBytes, byCount] = [await openNode(rigOf(server)), await openNode(rigOf(server))];
    server.signal("SIGSTOP");
    const frame = "x".repeat(MIB);
    const long = Array.from({ length: 17 }, () => byBytes.connection.send("a:all", frame)).map(outcomeOf);
    expect(await long[16]).toBe("not-sent");
    const many = Array.from({ length: 10_001 }, () => byCount.connection.send("a:all", "")).map(outcomeOf);
    expect(await many[10_000]).toBe("not-sent");
    const outcomes = await Promise.all([...long, ...many]);
    expect(outcomes.filter((outcome) => outcome === "unknown")).toHaveLength(16 + 10_000);
    // Not because of the bounds: a ping has room beyond them.
    for (const node of [byBytes, byCount])
      expect(node.downs[0]!.message).toMatch(/Socket timeout|no answer for 15000 ms/);
    server.signal("SIGCONT");
    await Promise.all([byBytes, byCount].map((node) => untilHeard(node)));
  }, 60_000);

  it("gives a connection up whose commands are not answered for 15 s, although it sends on", async () => {
    const server = await startRedis();
    const proxy = use(await RedisProxy.to(server.port));
    const node = await openNode(redisRig({ url: proxy.url }, []));
    expect(proxy.mute("others")).toBe(1);
    const outcomes = new Set<string>();
    const sendOn = (): number => {
      void outcomeOf(node.connection.send("a:all", "x")).then((outcome) => outcomes.add(outcome));
      return node.downs.length;
    };
    await eventually(sendOn, (count) => count > 0, 40_000);
    expect(node.downs[0]!.message).toContain("no answer for 15000 ms");
    await untilHeard(node);
    expect(outcomes).toContain("unknown");
    expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
  }, 60_000);

  it("connects again after its subscriptions were cut while it connected", async () => {
    const server = await startRedis();
    const proxy = use(await RedisProxy.to(server.port));
    const node = await openNode(redisRig({ url: proxy.url }, []));
    let cuts = 0;
    proxy.onProbe = () => {
      if (cuts++ === 0) proxy.cutUnused();
    };
    node.connection.reconnect(new Error("a test"));
    await untilHeard(node);
    expect(cuts).toBeGreaterThan(1);
    expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
    await node.until("a:all", 1);
  });

  it("notices that its server was a replica meanwhile, although the run id is the same", async () => {
    const server = await startRedis();
    const other = await startRedis({ settings: { replicaof: `127.0.0.1 ${server.port}` } });
    const node = await openNode(rigOf(server));
    await node.connection.roster!.enter(`${node.name}/1`, 60_000);
    const before = await append(node, "1");
    await eventually(
      () => other.command<string[]>("KEYS", "*"),
      (keys) => keys.some((key) => key.includes(":m:")),
    );
    await other.command("REPLICAOF", "NO", "ONE");
    // Only here. It is lost when this server gets the data of the other one.
    expect(await append(node, "2")).toEqual({ epoch: before.epoch, offset: 2 });
    await server.command("REPLICAOF", "127.0.0.1", String(other.port));
    await eventually(
      () => server.command<string>("INFO", "replication"),
      (info) => info.includes("master_link_status:up"),
    );
    expect(await outcomeOf(append(node, "refused"))).toBe("not-sent");
    await server.command("REPLICAOF", "NO", "ONE");
    await untilHeard(node);
    const after = await append(node, "3");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    expect((await node.connection.roster!.beat(`${node.name}/1`, 60_000)).isMine).toBe(false);
  });

  it.each<[string, (node: Listening) => Promise<unknown>]>([
    ["log", ({ connection }) => connection.log!.read(TOPIC, 0, 10)],
    ["members", ({ connection }) => connection.roster!.list(TOPIC)],
  ])("reads no %s at a server that became a replica", async (_what, read) => {
    const [server, other] = [await startRedis(), await startRedis()];
    const node = await openNode(rigOf(server));
    await append(node, "1");
    await read(node);
    await server.command("REPLICAOF", "127.0.0.1", String(other.port));
    expect(await outcomeOf(read(node))).toBe("not-sent");
    expect(node.downs[0]!.message).toContain("READONLY");
  });

  it("reads a log while the server refuses to write", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    const { epoch } = await append(node, "1");
    await server.command("CONFIG", "SET", "min-replicas-to-write", "1");
    expect(await outcomeOf(append(node, "2"))).toBe("not-sent");
    expect(await node.connection.log!.read(TOPIC, 0, 10)).toEqual({ epoch, top: 1, entries: [[1, "1"]] });
  });

  it("notices at a beat that its server became a replica", async () => {
    const [server, other] = [await startRedis(), await startRedis()];
    const node = await openNode(rigOf(server));
    await node.connection.roster!.enter(`${node.name}/1`, 60_000);
    await server.command("REPLICAOF", "127.0.0.1", String(other.port));
    expect(await outcomeOf(node.connection.roster!.beat(`${node.name}/1`, 60_000))).toBe("not-sent");
    expect(node.downs[0]!.message).toContain("no longer the same primary");
    await eventually(
      () => node.downs.at(-1)!.message,
      (message) => message.includes("it is a replica"),
    );
  });
});

describe("the engine redis, over one address for a server and its replica", () => {
  it("does not take a count of 0 as a proof when the server forwards messages to a replica", async () => {
    const [before, after] = [await startRedis(), await startRedis()];
    const { prefix } = redisRig({}, []);
    const callee = use(await Listening.open(redis({ url: before.url, prefix }), "callee"));
    const caller = use(await Listening.open(redis({ url: after.url, prefix }), "caller"));
    const inbox: Channel = `n:${callee.name}`;
    expect(await caller.connection.send(inbox, "to a server without replicas")).toBe(0);
    expect(caller.facts!.undercounts).toBe(false);
    await before.command("REPLICAOF", "127.0.0.1", String(after.port));
    await eventually(
      () => before.command<string>("INFO", "replication"),
      (info) => info.includes("master_link_status:up"),
    );
    // The callee has not noticed that its server is no longer the primary.
    expect(await caller.connection.send(inbox, "forwarded")).toBe(0);
    expect(caller.facts!.undercounts).toBe(true);
    expect(await callee.until(inbox, 1)).toEqual(["forwarded"]);
  });

  it("does not take a count of 0 as a proof when a replica was connected a moment ago", async () => {
    const server = await startRedis();
    const replica = await startRedis({ settings: { replicaof: `127.0.0.1 ${server.port}` } });
    const node = await openNode(rigOf(server));
    const untilReplicas = (count: number): Promise<string> =>
      eventually(
        () => server.command<string>("INFO", "replication"),
        (info) => info.includes(`connected_slaves:${count}`),
      );
    await untilReplicas(1);
    await replica.kill();
    await untilReplicas(0);
    // If the replica had only lost its connection, it would get this message from the backlog.
    expect(await node.connection.send("n:gone", "x")).toBe(0);
    expect(node.facts!.undercounts).toBe(true);
  });
});

/** Starts a cluster of one server. */
async function startCluster(): Promise<RedisServer> {
  const server = await startRedis({ kind: "cluster" });
  await server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
  await eventually(
    () => server.command<string>("CLUSTER", "INFO"),
    (info) => info.includes("cluster_state:ok"),
  );
  return server;
}

describe("the engine redis, when a server ends a subscription", () => {
  it("subscribes again if the server of a cluster keeps the slot, or gets it back", async () => {
    const server = await startCluster();
    const rig = redisRig({ cluster: [server.url] }, []);
    const node = await openNode(rig);
    await node.connection.subscribe(`t:${TOPIC}`);
    const slot = await server.command<number>("CLUSTER", "KEYSLOT", keyOf(rig, `t:${TOPIC}`));
    // Removes the slot from its owner, which is added again.
    await server.command("CLUSTER", "SETSLOT", String(slot), "NODE", await server.command("CLUSTER", "MYID"));
    await untilHeard(node);
    expect(node.heard[0]).toContain(`t:${TOPIC}`);
    expect(await node.connection.send(`t:${TOPIC}`, "again")).toBe(1);
    expect(await node.until(`t:${TOPIC}`, 1)).toEqual(["again"]);
    expect(node.downs).toEqual([]);
  });

  it("notices at a beat that a subscription has ended which the client library did not report", async () => {
    const server = await startCluster();
    const rig = redisRig({ cluster: [server.url] }, []);
    const node = await openNode(rig);
    const { roster } = node.connection;
    await roster!.enter(`${node.name}/1`, 60_000);
    await node.connection.subscribe(`t:${TOPIC}`);
    const slot = await server.command<number>("CLUSTER", "KEYSLOT", keyOf(rig, `t:${TOPIC}`));
    const id = await server.command<string>("CLUSTER", "MYID");
    const admin = createClient({ url: server.url });
    await admin.connect();
    server.signal("SIGSTOP");
    // The server ends the subscription, and then answers what the beat has asked by the same connection.
    const ended = admin.sendCommand(["CLUSTER", "SETSLOT", String(slot), "NODE", id]);
    await new Promise((resolve) => setImmediate(resolve));
    const beat = roster!.beat(`${node.name}/1`, 60_000);
    await new Promise((resolve) => setImmediate(resolve));
    server.signal("SIGCONT");
    await Promise.all([ended, beat]);
    admin.destroy();
    await untilHeard(node);
    expect(node.heard[0]).toContain(`t:${TOPIC}`);
    expect(await node.connection.send(`t:${TOPIC}`, "again")).toBe(1);
    expect(await node.until(`t:${TOPIC}`, 1)).toEqual(["again"]);
    expect(node.downs).toEqual([]);
  });
});

it("the engine redis gives a subscription up that is not answered, although topics come and go", async () => {
  const server = await startCluster();
  const proxy = use(await RedisProxy.to(server.port));
  // The server reports this address for itself.
  await server.command("CONFIG", "SET", "cluster-announce-port", new URL(proxy.url).port);
  const node = await openNode(redisRig({ cluster: [proxy.url] }, []));
  expect(proxy.mute("subscribers")).toBe(1);
  let topics = 0;
  const subscribe = (): number => {
    void outcomeOf(node.connection.subscribe(`t:${topics++}`));
    return node.downs.length;
  };
  await eventually(subscribe, (count) => count > 0);
  expect(node.downs[0]!.message).toContain("no answer for 1500 ms");
  await untilHeard(node);
  await node.connection.subscribe(`t:${TOPIC}`);
  expect(await node.connection.send(`t:${TOPIC}`, "again")).toBe(1);
});

describe("the engine redis, when a node dies", () => {
  it("removes the members of an expired lease, each once, whichever nodes beat", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const [dead, a, b] = [await openNode(rig, "dead"), await openNode(rig, "a"), await openNode(rig, "b")];
    const topics = ["one", "two", "three"];
    await Promise.all(topics.map((topic) => a.connection.subscribe(`t:${topic}`)));
    await dead.connection.roster!.enter(`${dead.name}/1`, 300);
    for (const { connection, name } of [a, b]) await connection.roster!.enter(`${name}/1`, 60_000);
    const ids = Array.from({ length: 450 }, (_, i): RosterId => `${dead.name}/1.m${i}`);
    const puts = topics.flatMap((topic) => ids.map((id) => dead.connection.roster!.put(topic, id, "1")));
    await Promise.all(puts);
    await b.connection.roster!.put("one", `${b.name}/1.stays`, "1");
    const beatAll = (): Promise<unknown> =>
      Promise.all([a, b].map(({ connection, name }) => connection.roster!.beat(`${name}/1`, 60_000)));
    const lists = await eventually(
      async () => {
        await beatAll();
        return Promise.all(topics.map((topic) => a.connection.roster!.list(topic)));
      },
      (parts) => parts.every(({ members }, i) => members.length === (i === 0 ? 1 : 0)),
    );
    expect(lists[0]!.members).toEqual([[`${b.name}/1.stays`, "1"]]);
    for (const [i, topic] of topics.entries()) {
      const frames = await a.until(`t:${topic}`, 900 + (i === 0 ? 1 : 0));
      const left = frames.filter((frame) => frame.startsWith("1l"));
      const versions = left.map((frame) => Number(frame.split("\t")[1]));
      expect(versions).toEqual(versions.map((_, at) => versions[0]! + at));
      expect(new Set(left.map((frame, at) => frame.replace(String(versions[at]), "")))).toEqual(
        new Set(ids.map((id) => rosterFrame(0, id, undefined).replace("\t0\t", "\t\t"))),
      );
    }
    expect((await dead.connection.roster!.beat(`${dead.name}/1`, 300)).isMine).toBe(false);
    for (const node of [dead, a, b]) await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("lets another node reap, if the one that began to is gone", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const [prefix, { name }] = [rig.prefix, node];
    await node.connection.roster!.enter(`${name}/1`, 60_000);
    await node.connection.roster!.put(TOPIC, "gone/1.x", "1");
    // As a node leaves it that has claimed the incarnation, and then dies, when its claim has ended.
    const leases = (await server.command<string[]>("KEYS", `${prefix}:*:nodes`))[0]!;
    await server.command("ZADD", leases.replace(/nodes$/, "dead"), "1", "gone/1");
    await node.connection.roster!.beat(`${name}/1`, 60_000);
    await eventually(
      () => node.connection.roster!.list(TOPIC),
      ({ members }) => members.length === 0,
    );
    await node.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("lets another node reap after a lease, if the one that claimed to do it died", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const node = await openNode(rig);
    const { roster } = node.connection;
    await roster!.enter(`${node.name}/1`, 60_000);
    await roster!.put(TOPIC, "gone/1.x", "1");
    const leases = (await server.command<string[]>("KEYS", `${rig.prefix}:*:nodes`))[0]!;
    const dead = leases.replace(/nodes$/, "dead");
    await server.command("ZADD", dead, "1", "gone/1");
    // The claimer beats once, and then is gone.
    const run = (script: ScriptName, ...args: string[]): Promise<unknown> =>
      server.command(
        "EVAL",
        sourceOf(script, { isCluster: false, isTimed: false }),
        "2",
        leases,
        dead,
        "claimer/1",
        "1000",
        ...args,
      );
    await run("enter");
    expect(await run("beat", "0")).toEqual([1, expect.any(Array), "gone/1"]);
    await roster!.beat(`${node.name}/1`, 60_000);
    expect((await roster!.list(TOPIC)).members).toHaveLength(1);
    await eventually(
      async () => {
        await roster!.beat(`${node.name}/1`, 60_000);
        return roster!.list(TOPIC);
      },
      ({ members }) => members.length === 0,
      5_000,
    );
  });

  it("reaps the members of an incarnation whose lease was lost, and those of no live one", async () => {
    const server = await startRedis();
    const rig = rigOf(server);
    const [node, other] = [await openNode(rig), await openNode(rig, "other")];
    const { roster } = node.connection;
    await roster!.enter(`${node.name}/1`, 60_000);
    await roster!.beat(`${node.name}/1`, 60_000);
    await other.connection.roster!.enter(`${other.name}/1`, 60_000);
    await other.connection.roster!.put(TOPIC, `${other.name}/1.a`, "1");
    const members = (await server.command<string[]>("KEYS", `${rig.prefix}:*:w:*`))[0]!;
    // As a node leaves it that puts a member after FLUSHALL, and dies before it notices that it has no lease.
    await server.command("HSET", members, "gone/1.x", "1");
    expect((await roster!.list(TOPIC)).members).toHaveLength(2);
    await roster!.beat(`${node.name}/1`, 2_000);
    expect((await roster!.list(TOPIC)).members).toHaveLength(2);
    const { members: left } = await eventually(
      async () => {
        await roster!.beat(`${node.name}/1`, 2_000);
        return roster!.list(TOPIC);
      },
      (part) => part.members.length < 2,
      15_000,
    );
    expect(left).toEqual([[`${other.name}/1.a`, "1"]]);
    for (const one of [node, other]) await one.connection.close();
    expect(await rig.leftovers()).toEqual([]);
  });

  it("keeps the members of the next incarnation of a node that was given up", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    const { roster } = node.connection;
    await roster!.enter(`${node.name}/1`, 100);
    await roster!.put(TOPIC, `${node.name}/1.a`, "1");
    await eventually(
      () => roster!.beat(`${node.name}/2`, 60_000).then(() => Date.now()),
      () => true,
    );
    const lost = await eventually(
      async () => {
        // The lease is only looked at: another incarnation beats.
        await roster!.beat(`${node.name}/9`, 100);
        return (await server.command<string[]>("KEYS", "*:dead")).length;
      },
      (count) => count > 0,
    );
    expect(lost).toBe(1);
    expect((await roster!.beat(`${node.name}/1`, 100)).isMine).toBe(false);
    await roster!.enter(`${node.name}/2`, 60_000);
    await roster!.put(TOPIC, `${node.name}/2.a`, "1");
    const { members } = await eventually(
      () => roster!.list(TOPIC),
      (part) => part.members.length === 1,
    );
    expect(members).toEqual([[`${node.name}/2.a`, "1"]]);
  });
});

describe("the longest frame over Redis", () => {
  it("crosses", async () => {
    const server = await startRedis();
    const rig = redisRig({ url: server.url, leaseMs: 60_000 }, [server.url]);
    const [a, b] = [await openNode(rig, "a"), await openNode(rig, "b")];
    const frame = "x".repeat(16 * MIB);
    expect(await a.connection.send(`n:${b.name}`, frame)).toBe(1);
    const [received] = await b.until(`n:${b.name}`, 1);
    expect(received === frame).toBe(true);
    expect([...a.downs, ...b.downs]).toEqual([]);
  });

  it("is that of a publication and of a notification: a longer one rejects with `TooLargeError`, or is dropped", async () => {
    const server = await startRedis();
    // An echo behind such a frame is late.
    const rig = redisRig({ url: server.url, leaseMs: 60_000 }, [server.url]);
    const nodes = [0, 1].map(() => makeNode({ engine: rig.engine(), topics: () => ({ log: LOG }) }));
    onTestFinished(() => closeAll(nodes));
    const [a, b] = nodes as [Node, Node];
    await eventually(
      () => nodes.every((node) => node.server.health().ok),
      (isUp) => isUp,
    );
    const topic = a.server.topic("room");
    const text = "x".repeat(16 * MIB - 1024);
    await topic.publish("said", { text });
    const { entries } = await b.server.topic("room").read();
    expect((entries[0]!.params as { text: string }).text === text).toBe(true);
    expect(await rejection(topic.publish("said", { text: `${text}${"x".repeat(1024)}` }))).toBeInstanceOf(
      TooLargeError,
    );
    expect((await topic.read()).entries).toHaveLength(1);
    const { dropped } = a.server.stats().engine!;
    topic.notify("said", { text: `${text}${"x".repeat(1024)}` });
    expect(a.server.stats().engine).toMatchObject({ dropped: dropped + 1, reconnects: 0 });
  });
});

/** Returns the error with which a node of these options does not open. */
async function refusalOf(options: RedisOptions): Promise<EngineError> {
  const node = use(Listening.create(redisRig(options, []).engine(), "node"));
  return node.connection.open().then(
    () => expect.fail("it is open"),
    (error: unknown) => error as EngineError,
  );
}

it("the engine redis keeps the members of a topic that does not change for longer than a day", async () => {
  const server = await startRedis();
  const rig = rigOf(server);
  const node = await openNode(rig);
  const { roster } = node.connection;
  const incarnation: Incarnation = `${node.name}/1`;
  await roster!.enter(incarnation, 60_000);
  await roster!.put(TOPIC, `${incarnation}.ann`, '"ann"');
  const [key] = await server.command<string[]>("KEYS", `${rig.prefix}:1:*:w:*`);
  const leftMs = (): Promise<number> => server.command<number>("PTTL", key!);
  // 23 hours later.
  await server.command("PEXPIRE", key!, "3600000");
  await roster!.beat(incarnation, 60_000);
  expect(await leftMs()).toBeLessThanOrEqual(3_600_000);
  const present = performance.now.bind(performance);
  const clock = vi.spyOn(performance, "now").mockImplementation(() => present() + 23 * 3_600_000);
  await roster!.beat(incarnation, 60_000);
  clock.mockRestore();
  await eventually(leftMs, (ms) => ms > 23 * 3_600_000);
});

it("the engine redis subscribes up to 500 channels by one command, also after a loss", async () => {
  const server = await startRedis();
  const node = await openNode(rigOf(server));
  const commands = async (): Promise<number> =>
    Number(/cmdstat_subscribe:calls=(\d+)/.exec(await server.command<string>("INFO", "commandstats"))?.[1]);
  const before = await commands();
  await Promise.all(Array.from({ length: 1_200 }, (_, i) => node.connection.subscribe(`t:${i}`)));
  expect((await commands()) - before).toBe(3);
  await server.kill();
  await server.start();
  await untilHeard(node);
  expect(await commands()).toBe(3);
});

describe("the engine redis, at the start", () => {
  it("waits for at most 20 s before it tries again", async () => {
    const node = use(Listening.create(redis({ url: `redis://127.0.0.1:${await freePort()}` }), "node"));
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const random = vi.spyOn(Math, "random").mockReturnValue(0.99999);
    try {
      const opening = outcomeOf(node.connection.open());
      const failed = async (times: number): Promise<void> => {
        while (node.downs.length < times) await turn();
        await turn();
      };
      // The bound of the delay doubles with each failure.
      for (let times = 1; times <= 10; times++) {
        await failed(times);
        await vi.advanceTimersByTimeAsync(Math.min(100 * 2 ** times, 20_000));
      }
      await failed(11);
      await vi.advanceTimersByTimeAsync(19_900);
      for (let i = 0; i < 100; i++) await turn();
      expect(node.downs).toHaveLength(11);
      await vi.advanceTimersByTimeAsync(100);
      await failed(12);
      await node.connection.close();
      expect(await opening).toBe("not-sent");
    } finally {
      random.mockRestore();
      vi.useRealTimers();
    }
  });

  it("tries again until Redis is there, and reports each failed attempt without the password", async () => {
    const server = await startRedis({ users: ["user default on >se:cret ~* &* +@all"] });
    await server.kill();
    const url = server.url.replace("redis://", "redis://:se%3Acret@");
    const node = use(Listening.create(redisRig({ url }, []).engine(), "node"));
    const opened = node.connection.open();
    await eventually(
      () => node.downs.length,
      (count) => count >= 2,
    );
    await server.start();
    await opened;
    expect(node.downs[0]!.message).toContain("ECONNREFUSED");
    for (const { message, cause } of node.downs) expect(`${message} ${String(cause)}`).not.toMatch(/se(:|%3A)cret/);
    expect(node.ups).toBe(0);
  });

  it("rejects a wrong password at once", async () => {
    const server = await startRedis({ users: ["user default on >secret ~* &* +@all"] });
    for (const options of [{ password: "wrong" }, {}]) {
      const error = await refusalOf({ url: server.url, ...options });
      expect(error).toBeInstanceOf(EngineError);
      expect(error.message).toMatch(/WRONGPASS|NOAUTH/);
      expect(error.message).not.toContain("wrong");
    }
  });

  it("names the commands that its user may not run", async () => {
    const user = "user default on nopass ~* &* +@all -publish -xadd -hincrby";
    const server = await startRedis({ users: [user] });
    const { message } = await refusalOf({ url: server.url });
    for (const command of ["PUBLISH", "XADD", "HINCRBY"]) expect(message).toContain(`${command}: `);
    expect(message).not.toContain("ZADD");
    expect(await server.command<string[]>("KEYS", "*")).toEqual([]);
  });

  it("waits for a server that refuses to write for a while", async () => {
    const server = await startRedis({ settings: { "min-replicas-to-write": "1" } });
    const node = use(Listening.create(rigOf(server).engine(), "node"));
    const opened = outcomeOf(node.connection.open());
    await eventually(
      () => node.downs.length,
      (count) => count >= 2,
    );
    expect(node.downs[0]!.message).toMatch(/refuses commands of the engine: .*NOREPLICAS/);
    await server.command("CONFIG", "SET", "min-replicas-to-write", "0");
    expect(await opened).toBe("done");
  });

  it("rejects channels that its user may not use", async () => {
    const server = await startRedis({ users: ["user default on nopass ~* resetchannels &other:* +@all"] });
    expect((await refusalOf({ url: server.url })).message).toMatch(/can't publish|No permissions to access a channel/);
  });

  it("rejects the wrong kind of server", async () => {
    const [single, member] = [await startRedis(), await startRedis({ kind: "cluster" })];
    expect((await refusalOf({ url: member.url })).message).toContain("use the option `cluster`");
    const slots = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    await member.command(...slots);
    await eventually(
      () => member.command<string>("CLUSTER", "INFO"),
      (info) => info.includes("cluster_state:ok"),
    );
    const node = use(await Listening.open(redisRig({ cluster: [member.url] }, []).engine(), "node"));
    expect(node.facts).toMatchObject({ order: "topic", unmet: [] });
    const unmet = use(Listening.create(redisRig({ cluster: [single.url] }, []).engine(), "node"));
    unmet.connection.open().catch(() => {});
    await eventually(
      () => unmet.downs.length,
      (count) => count > 0,
    );
    expect(unmet.downs[0]!.message).toContain("cluster");
  });

  it("reports that logs may be evicted", async () => {
    const settings = { maxmemory: "100mb", "maxmemory-policy": "allkeys-lru" };
    const server = await startRedis({ settings });
    const node = await openNode(rigOf(server));
    expect(node.facts).toMatchObject({ maxFrameBytes: 16 * MIB, counts: true, order: "node" });
    expect(node.facts!.unmet).toEqual([expect.stringContaining("maxmemory-policy is allkeys-lru")]);
    await server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu");
    node.connection.reconnect(new Error("a test"));
    await eventually(
      () => node.facts!.unmet,
      ([sentence]) => sentence?.includes("maxmemory-policy is allkeys-lfu") === true,
    );
  });

  it("appends an entry of the longest size", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    const { maxFrameBytes } = node.facts!;
    expect(await append(node, "x".repeat(maxFrameBytes))).toMatchObject({ offset: 1 });
    expect((await node.connection.log!.read(TOPIC, 0, 1)).entries[0]![1]).toHaveLength(maxFrameBytes);
  });

  it("rejects an append that the server has no memory for, and nothing of it is there", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    const { epoch } = await append(node, "1");
    await server.command("CONFIG", "SET", "maxmemory", "1");
    expect(await outcomeOf(append(node, "2"))).toBe("not-sent");
    await server.command("CONFIG", "SET", "maxmemory", "0");
    expect(await append(node, "3")).toEqual({ epoch, offset: 2 });
  });

  it("closes while it connects, and then no socket is left", async () => {
    const server = await startRedis();
    server.signal("SIGSTOP");
    const node = Listening.create(redisRig({ url: server.url }, []).engine(), "node");
    const opened = outcomeOf(node.connection.open());
    await new Promise((resolve) => setImmediate(resolve));
    const closedAt = performance.now();
    await node.connection.close();
    expect(await opened).toBe("not-sent");
    // The client library would wait for 15 s.
    expect(performance.now() - closedAt).toBeLessThan(10_000);
    server.signal("SIGCONT");
    const names = async (): Promise<string> => server.command<string>("CLIENT", "LIST");
    await eventually(names, (list) => !list.includes(node.name));
    expect(node.downs).toEqual([]);
  });

  it("closes within 5 s when Redis does not answer", async () => {
    const server = await startRedis();
    const node = await openNode(rigOf(server));
    await node.connection.roster!.enter(`${node.name}/1`, 60_000);
    server.signal("SIGSTOP");
    const startedAt = performance.now();
    await node.connection.close();
    expect(performance.now() - startedAt).toBeLessThan(5_500);
    server.signal("SIGCONT");
  });

  it("leaves no socket and no timer when it closes while Redis does not answer", async () => {
    const server = await startRedis();
    const untilReleased = watchHandles();
    const before = countHandles();
    const node = await openNode(rigOf(server));
    await node.connection.roster!.enter(`${node.name}/1`, 60_000);
    server.signal("SIGSTOP");
    const lost = outcomeOf(append(node, "lost"));
    expect(countHandles()).toBeGreaterThan(before);
    await node.connection.close();
    expect(await lost).toBe("unknown");
    await untilReleased();
    server.signal("SIGCONT");
  });

  it.each<[string, (url: string) => RedisOptions]>([
    ["a server", (url) => ({ url })],
    ["a cluster", (url) => ({ cluster: [url] })],
    ["a Sentinel", (url) => ({ sentinel: { name: "main", urls: [url] } })],
  ])("leaves no socket and no timer when it closes while %s is away", async (_what, optionsOf) => {
    const untilReleased = watchHandles();
    const node = Listening.create(redisRig(optionsOf(`redis://127.0.0.1:${await freePort()}`), []).engine(), "node");
    const opened = outcomeOf(node.connection.open());
    await eventually(
      () => node.downs.length,
      (count) => count >= 2,
    );
    await node.connection.close();
    expect(await opened).toBe("not-sent");
    await untilReleased();
  });

  it("connects by a socket in the file system, and uses the database of its URL", async () => {
    const socket = join(tmpdir(), `reciproc-${process.pid}.sock`);
    const server = await startRedis({ settings: { unixsocket: socket } });
    const [byPath, byNumber] = [
      await openNode(redisRig({ url: `unix://${socket}` }, [])),
      await openNode(redisRig({ url: `${server.url}/3` }, [])),
    ];
    for (const node of [byPath, byNumber]) await append(node, "1");
    expect(await server.command<string>("INFO", "keyspace")).toMatch(/db0:keys=2,[^]*db3:keys=2,/);
  });

  it("keeps applications with different prefixes apart", async () => {
    const server = await startRedis();
    const rigs = [rigOf(server), rigOf(server)];
    const nodes = [await openNode(rigs[0]!), await openNode(rigs[1]!)] as const;
    await nodes[0].connection.send("a:all", "x");
    await nodes[0].until("a:all", 1);
    await nodes[1].connection.send("a:all", "y");
    expect(await nodes[1].until("a:all", 1)).toEqual(["y"]);
    expect(keyOf(rigs[0]!, "a:all")).not.toBe(keyOf(rigs[1]!, "a:all"));
  });
});

/** Kills the connections of one server whose line of `CLIENT LIST` fits. */
async function killClients(server: RedisServer, fits: (line: string) => boolean): Promise<void> {
  const list = await server.command<string>("CLIENT", "LIST");
  const ids = list.split("\n").flatMap((line) => (fits(line) ? [/^id=(\d+)/.exec(line)![1]!] : []));
  expect(ids.length).toBeGreaterThan(0);
  for (const id of ids) await server.command("CLIENT", "KILL", "ID", id);
}
