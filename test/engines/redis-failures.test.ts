/** What the engine does when one server of Redis fails: the suite of all brokers, and what only Redis does. */
import { createClient } from "@redis/client";
import { describe, expect, it } from "vitest";
import type { Channel } from "../../src/fleet/engine.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { RedisServer, type RedisServerOptions } from "../support/redis.js";
import { Relay, type Line } from "../support/relay.js";
import { describeFailures, type PrefixedRig } from "./failures.js";
import { jump, outcomeOf, TestNode, TOPIC, untilNothingLeft, use, written } from "./kit.js";
import { keyOf, REDIS, redisRig, relayRedis, untilReplication } from "./redis-rig.js";

describeFailures(REDIS);

const CHANNEL = `t:${TOPIC}` as const;

interface Started {
  readonly server: RedisServer;
  readonly rig: PrefixedRig;
}

async function start(options: RedisServerOptions = {}, engine: RedisOptions = {}): Promise<Started> {
  const server = use(await RedisServer.create(options));
  return { server, rig: redisRig({ url: server.url, ...engine }, [server.url]) };
}

async function startAgain(server: RedisServer, node: TestNode): Promise<void> {
  await server.kill();
  await server.start();
  await node.untilHeard();
}

/** Makes a server a replica of another one. */
async function follow(server: RedisServer, { port }: RedisServer): Promise<void> {
  await server.command("REPLICAOF", "127.0.0.1", String(port));
}

/** Kills the subscription of a node. */
async function killSubscription(server: RedisServer, node: TestNode): Promise<void> {
  const list = (await server.command<string>("CLIENT", "LIST")).split("\n");
  const line = list.find((one) => one.includes(`${node.name} `) && / s?sub=[1-9]/.test(one));
  await server.command("CLIENT", "KILL", "ID", /^id=(\d+)/.exec(line!)![1]!);
}

const keyLike = async (server: RedisServer, pattern: string): Promise<string> =>
  (await server.command<string[]>("KEYS", pattern))[0]!;

describe("the engine redis, when its server is started from a snapshot", () => {
  it("continues no log, whose end is lost, and gives the incarnation up, whose members may be lost", async () => {
    const { server, rig } = await start();
    const node = await TestNode.enter(rig.engine());
    const before = await node.append("1", "key");
    await server.command("SAVE");
    await node.append("2");
    await node.put("lost");
    await startAgain(server, node);
    expect(await node.read(0)).toEqual({ epoch: "", top: 0, entries: [] });
    // The position of an earlier epoch is not repeated for its key.
    const { epoch, offset } = await node.append("3", "key");
    expect([offset, epoch === before.epoch]).toEqual([1, false]);
    expect(await node.read()).toEqual({ epoch, top: 1, entries: [[1, "3"]] });
    expect(await node.beat()).toEqual({ isMine: false, live: [] });
    await node.enterAgain();
  });

  it('continues the log if `history` is "durable"', async () => {
    const { server, rig } = await start({}, { history: "durable" });
    const node = await TestNode.open(rig.engine());
    const before = await node.append("1", "key");
    await server.command("SAVE");
    await node.append("2");
    await startAgain(server, node);
    expect(await node.append("3", "key")).toEqual(before);
    expect(await node.append("3")).toEqual({ ...before, offset: 2 });
  });
});

it("the engine redis removes its own members when it closes, although the list of them is lost", async () => {
  const { server, rig } = await start();
  const node = await TestNode.enter(rig.engine());
  await server.command("DEL", await keyLike(server, `${rig.prefix}:*:o:*`));
  await node.connection.close();
  await untilNothingLeft(rig);
});

describe("the engine redis, when it loses one of its two connections", () => {
  it("answers commands that were sent before the subscription was lost", async () => {
    const { server, rig } = await start();
    const node = await TestNode.open(rig.engine());
    const operations = Array.from({ length: 500 }, () => node.append("x"));
    await killSubscription(server, node);
    expect((await Promise.all(operations)).at(-1)!.offset).toBe(500);
    await node.untilHeard();
  });

  it("connects again after its subscriptions were cut while it connected", async () => {
    const { server } = await start();
    const { relay, url, subscribers } = await relayRedis(server);
    const node = await TestNode.open(redisRig({ url }).engine());
    const scripted = new Set<Line>();
    const { pass } = relay;
    let probes = 0;
    relay.pass = (bytes, to, line) => {
      if (to === "server" && bytes.includes("EVALSHA")) {
        scripted.add(line);
        // The script that shows which commands the server accepts.
        if (bytes.includes(":probe") && probes++ === 0)
          for (const other of relay.lines) if (!subscribers.has(other) && !scripted.has(other)) other.cut();
      }
      return pass(bytes, to, line);
    };
    node.connection.reconnect(new Error("a test"));
    await node.untilHeard();
    expect(probes).toBeGreaterThan(1);
    expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
    await node.until("a:all", 1);
  });

  it("runs scripts that the server has forgotten", async () => {
    const { server, rig } = await start();
    const node = await TestNode.open(rig.engine());
    const { epoch } = await node.append("1");
    await server.command("SCRIPT", "FLUSH");
    const after = await Promise.all(["2", "3", "4"].map((body) => node.append(body)));
    expect(after).toEqual([2, 3, 4].map((offset) => ({ epoch, offset })));
  });
});

describe("the engine redis, when its server becomes a replica", () => {
  it("notices that it was one meanwhile, although the run id is the same", async () => {
    const [{ server, rig }, { server: other }] = [await start(), await start()];
    await follow(other, server);
    const node = await TestNode.open(rig.engine());
    await node.enter();
    const before = await node.append("1");
    await expect.poll(() => other.command<string[]>("KEYS", "*:m:*")).toHaveLength(1);
    await other.command("REPLICAOF", "NO", "ONE");
    // Only here. It is lost when this server gets the data of the other one.
    expect(await node.append("2")).toEqual({ epoch: before.epoch, offset: 2 });
    await follow(server, other);
    await untilReplication(server, "master_link_status:up");
    expect(await outcomeOf(node.append("refused"))).toBe("not-sent");
    await server.command("REPLICAOF", "NO", "ONE");
    await node.untilHeard();
    const after = await node.append("3");
    expect(after.offset).toBe(1);
    expect(after.epoch).not.toBe(before.epoch);
    expect((await node.beat()).isMine).toBe(false);
  });

  it("notices it when it reads, lists or beats", async () => {
    const [{ server, rig }, { server: other }] = [await start(), await start()];
    const nodes = await Promise.all([1, 2, 3].map(() => TestNode.enter(rig.engine())));
    const operations = [
      (node: TestNode) => node.read(),
      (node: TestNode) => node.members(),
      (node: TestNode) => node.beat(),
    ];
    await follow(server, other);
    for (const [i, node] of nodes.entries()) {
      expect(await outcomeOf(operations[i]!(node))).toBe("not-sent");
      expect(node.downs[0]!.message).toContain(i < 2 ? "READONLY" : "no longer the same primary");
      await node.when(() => node.downs.at(-1)!.message.includes("it is a replica"));
    }
  });

  it("does not take a count of 0 as a proof when the server forwards messages to a replica", async () => {
    const [{ server: before }, { server: after, rig }] = [await start(), await start()];
    const callee = await TestNode.open(redis({ url: before.url, prefix: rig.prefix }), "callee");
    const caller = await TestNode.open(rig.engine(), "caller");
    const inbox: Channel = `n:${callee.name}`;
    expect(await caller.connection.send(inbox, "to a server without replicas")).toBe(0);
    expect(caller.facts!.undercounts).toBe(false);
    await follow(before, after);
    await untilReplication(before, "master_link_status:up");
    // The callee has not noticed that its server is no longer the primary.
    expect(await caller.connection.send(inbox, "forwarded")).toBe(0);
    expect(caller.facts!.undercounts).toBe(true);
    expect(await callee.until(inbox, 1)).toEqual(["forwarded"]);
  });

  it("does not take a count of 0 as a proof when a replica was connected a moment ago", async () => {
    const [{ server, rig }, { server: replica }] = [await start(), await start()];
    await follow(replica, server);
    const node = await TestNode.open(rig.engine());
    await untilReplication(server, "connected_slaves:1");
    await replica.kill();
    await untilReplication(server, "connected_slaves:0");
    // If the replica had only lost its connection, it would get this message from the backlog.
    expect(await node.connection.send("n:gone", "x")).toBe(0);
    expect(node.facts!.undercounts).toBe(true);
  });
});

/** A cluster of one server. `end`: ends the subscription of the slot of a channel, by removing the slot and adding it again. */
const startCluster = async (): Promise<Started & { end: (channel: Channel) => Promise<string[]> }> => {
  const { server } = await start({ kind: "cluster" });
  await server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
  await expect.poll(() => server.command("CLUSTER", "INFO")).toContain("cluster_state:ok");
  const rig = redisRig({ cluster: [server.url] });
  const end = async (channel: Channel): Promise<string[]> => {
    const slot = await server.command<number>("CLUSTER", "KEYSLOT", keyOf(rig, channel));
    return ["CLUSTER", "SETSLOT", String(slot), "NODE", await server.command("CLUSTER", "MYID")];
  };
  return { server, rig, end };
};

const untilSubscribedAgain = async (node: TestNode): Promise<void> => {
  await node.untilHeard();
  expect(node.heard[0]).toContain(CHANNEL);
  expect(await node.connection.send(CHANNEL, "again")).toBe(1);
  expect(await node.until(CHANNEL, 1)).toEqual(["again"]);
  expect(node.downs).toEqual([]);
};

describe("the engine redis, when a server of a cluster ends a subscription", () => {
  it("subscribes again if the server keeps the slot, or gets it back", async () => {
    const { server, rig, end } = await startCluster();
    const node = await TestNode.open(rig.engine());
    await node.connection.subscribe(CHANNEL);
    await server.command(...(await end(CHANNEL)));
    await untilSubscribedAgain(node);
  });

  it("notices it at a beat if the client library did not report it", async () => {
    const { server, rig, end } = await startCluster();
    const node = await TestNode.open(rig.engine());
    await node.enter();
    await node.connection.subscribe(CHANNEL);
    const command = await end(CHANNEL);
    const admin = createClient({ url: server.url });
    await admin.connect();
    await server.pause();
    // The server ends the subscription, and then answers what the beat has asked by the same connection.
    const ended = admin.sendCommand(command);
    await written();
    const beat = node.beat();
    await written();
    server.resume();
    await Promise.all([ended, beat]);
    admin.destroy();
    await untilSubscribedAgain(node);
  });

  it("gives one up that is not answered, although topics come and go", async () => {
    const { server } = await startCluster();
    const { relay, url, subscribers } = await relayRedis(server);
    // The server reports this address for itself.
    await server.command("CONFIG", "SET", "cluster-announce-port", String(relay.port));
    const node = await TestNode.open(redisRig({ cluster: [url] }).engine());
    expect(subscribers.size).toBe(1);
    for (const line of subscribers) line.mute("client");
    for (let topics = 0; node.downs.length === 0; topics++) {
      void outcomeOf(node.connection.subscribe(`t:${topics}`));
      await server.command("PING");
    }
    expect(node.downs[0]!.message).toContain("no answer for 1500 ms");
    await node.untilHeard();
    await node.connection.subscribe(CHANNEL);
    expect(await node.connection.send(CHANNEL, "again")).toBe(1);
  });
});

describe("the engine redis, when a node dies", () => {
  it("lets another node remove its members after a lease, if the one that claimed to do it dies", async () => {
    const { server, rig } = await start();
    const relay = use(await Relay.to(server.port));
    const node = await TestNode.open(rig.engine());
    await node.enter();
    const claimer = await TestNode.open(redis({ url: `redis://127.0.0.1:${relay.port}`, prefix: rig.prefix }));
    await claimer.enter();
    // Members of an incarnation that another node has begun to remove, and then died.
    await node.connection.roster!.put(TOPIC, "gone/1.x", "1");
    const leases = await keyLike(server, "*:nodes");
    await server.command("ZADD", leases.replace(/nodes$/, "dead"), "1", "gone/1");
    // It claims them, and can do nothing more.
    const claimed = new Promise<void>((resolve) => {
      relay.pass = (bytes, to) => {
        if (to === "server" || !bytes.includes("gone/1")) return bytes;
        relay.pause();
        resolve();
        return undefined;
      };
    });
    void outcomeOf(claimer.beat(1, 1_000));
    await claimed;
    await node.untilReaped([]);
    relay.cut();
  });

  it("removes the members of an incarnation whose lease was lost, and those of no live one", async () => {
    const { server, rig } = await start();
    const [node, other] = [await TestNode.open(rig.engine()), await TestNode.open(rig.engine(), "other")];
    await node.enter();
    await node.beat();
    await other.enter();
    await other.put("a");
    // As a node leaves it that puts a member after FLUSHALL, and dies before it notices that it has no lease.
    await server.command("HSET", await keyLike(server, "*:w:*"), "gone/1.x", "1");
    expect(await node.members()).toHaveLength(2);
    jump(60_001);
    await node.untilReaped([other.id("a")]);
    for (const one of [node, other]) await one.connection.close();
    await untilNothingLeft(rig);
  });
});

describe("the engine redis", () => {
  it("keeps the members of a topic that does not change for longer than a day", async () => {
    const { server, rig } = await start();
    const node = await TestNode.enter(rig.engine());
    const [key] = await server.command<string[]>("KEYS", `${rig.prefix}:1:*:w:*`);
    const leftMs = (): Promise<number> => server.command<number>("PTTL", key!);
    // 23 hours later.
    await server.command("PEXPIRE", key!, "3600000");
    await node.beat();
    expect(await leftMs()).toBeLessThanOrEqual(3_600_000);
    jump(23 * 3_600_000);
    await node.beat();
    await expect.poll(leftMs).toBeGreaterThan(23 * 3_600_000);
  });

  it("subscribes up to 500 channels by one command, also after a loss", async () => {
    const { server, rig } = await start();
    const node = await TestNode.open(rig.engine());
    const commands = async (): Promise<number> =>
      Number(/cmdstat_subscribe:calls=(\d+)/.exec(await server.command<string>("INFO", "commandstats"))?.[1]);
    const before = await commands();
    await Promise.all(Array.from({ length: 1_200 }, (_, i) => node.connection.subscribe(`t:${i}`)));
    expect((await commands()) - before).toBe(3);
    await startAgain(server, node);
    expect(await commands()).toBe(3);
  });
});
