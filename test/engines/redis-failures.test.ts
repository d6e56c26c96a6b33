/** What the engine does when one server of Redis fails: the suite of all brokers, and what only Redis does. */
import { createClient } from "@redis/client";
import { describe, expect, it } from "vitest";
import type { Channel, Position } from "../../src/topics/engine.js";
import { redis, type RedisOptions } from "../../src/redis/index.js";
import { RedisServer, type RedisServerOptions } from "../support/redis.js";
import type { Line } from "../support/relay.js";
import { describeFailures, type PrefixedRig } from "./failures.js";
import { answered, outcomeOf, page, TestNode, TOPIC, use, written } from "./kit.js";
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

describe("the engine redis, when its server is started from a snapshot", () => {
  it("continues no log, whose end is lost", async () => {
    const { server, rig } = await start();
    const node = await TestNode.open(rig.engine());
    const before = await node.append("1", "key");
    await server.command("SAVE");
    await node.append("2");
    await startAgain(server, node);
    expect(await node.read(0)).toEqual({ epoch: "", top: 0, entries: [] });
    // The position of an earlier epoch is not repeated for its key.
    const { epoch, offset } = await node.append("3", "key");
    expect([offset, epoch === before.epoch]).toEqual([1, false]);
    expect(await node.read()).toEqual({ epoch, top: 1, entries: [[1, "3"]] });
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

it("the engine redis rejects an entry that the server has no memory for, and nothing of it is there", async () => {
  const { rig } = await start({ settings: { maxmemory: "4mb" } });
  const node = await TestNode.open(rig.engine());
  const body = "x".repeat(50_000);
  const accepted: Position[] = [];
  const append = (): Promise<string> => outcomeOf(node.append(body).then((position) => accepted.push(position)));
  let outcome = "done";
  while (outcome === "done") outcome = await append();
  expect([outcome, await append()]).toEqual(["not-sent", "not-sent"]);
  const { top, entries } = await node.connection.log!.read(TOPIC, 0, page(1_000, 2 ** 23));
  expect(top).toBe(accepted.length);
  expect(entries.map(([offset]) => offset)).toEqual(accepted.map(({ offset }) => offset));
});

it.each<[key: string, what: string, places: unknown[], left: string[]]>([
  ["l", "the entries of a log, which continues", [1, 3], ["3"]],
  ["m", "the position of a log: another one begins", ["other", "other"], ["1", "3"]],
  ["k", "the key of a publication, which may be logged twice", [3, 4], ["1", "2", "1", "3"]],
])("the engine redis loses by the eviction of a key %s only %s", async (key, _what, places, left) => {
  const { server, rig } = await start();
  const node = await TestNode.open(rig.engine());
  const { epoch } = await node.append("1", "key");
  await node.append("2");
  expect(await server.command("DEL", ...(await server.command<string[]>("KEYS", `*:${key}:*`)))).toBe(1);
  const after = [await node.append("1", "key"), await node.append("3")];
  const found = after.map((one) => (one.epoch === epoch ? one.offset : "other"));
  expect([found, (await node.read()).entries.map(([, body]) => body)]).toEqual([places, left]);
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
  });

  it("notices it when it reads, and by itself", async () => {
    const [{ server, rig }, { server: other }] = [await start(), await start()];
    const [reader, idle] = [await TestNode.open(rig.engine()), await TestNode.open(rig.engine())];
    await follow(server, other);
    expect(await outcomeOf(reader.read())).toBe("not-sent");
    await idle.untilDown();
    for (const [node, text] of [
      [reader, "READONLY"],
      [idle, "no longer the same primary"],
    ] as const) {
      // prettier-ignore
      expect(node.downs[0]!.message).toContain(text);
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

/**
 * A cluster of one server. `end`: ends the subscription of the slot of a channel, by removing the slot and adding it again. An engine gives
 * the server up when it has answered nothing for half of `silenceMs`.
 */
const startCluster = async (
  silenceMs = 20_000,
): Promise<Started & { end: (channel: Channel) => Promise<string[]> }> => {
  const { server } = await start({ kind: "cluster", settings: { "cluster-node-timeout": String(silenceMs) } });
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
  expect(node.resubscribed[0]).toContain(CHANNEL);
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

  it("notices it by itself if the client library did not report it", async () => {
    const { server, rig, end } = await startCluster();
    const node = await TestNode.open(rig.engine());
    for (const channel of ["t:other", CHANNEL] as const) await node.connection.subscribe(channel);
    const command = await end(CHANNEL);
    const admin = createClient({ url: server.url });
    await admin.connect();
    await server.pause();
    // The server ends the subscription, and then answers what the library has asked by the same connection.
    const ended = admin.sendCommand(command);
    await written();
    node.connection.unsubscribe("t:other");
    await written();
    server.resume();
    await ended;
    admin.destroy();
    await untilSubscribedAgain(node);
  });

  it("gives one up that is not answered, although topics come and go", async () => {
    const { server } = await startCluster(3_000);
    const { relay, url, subscribers } = await relayRedis(server);
    // The server reports this address for itself.
    await server.command("CONFIG", "SET", "cluster-announce-port", String(relay.port));
    const node = await TestNode.open(redisRig({ cluster: [url] }).engine());
    for (const line of subscribers) line.mute("client");
    for (let topics = 0; node.downs.length === 0; topics++) {
      void outcomeOf(node.connection.subscribe(`t:${topics}`));
      await server.command("PING");
    }
    expect(node.downs[0]!.message).toContain("no answer for");
    await node.untilHeard();
    await answered(() => node.connection.subscribe(CHANNEL));
    await expect.poll(() => node.connection.send(CHANNEL, "again")).toBe(1);
  });
});

it.each([
  ["back", 3_600, "done", ["1", "2", "3"]],
  ["forward", -3_600, "not-sent", ["1", "3"]],
])("the engine redis loses nothing when the clock of a primary goes %s an hour", async (way, back, outcome, left) => {
  const { server } = await startCluster();
  const { relay, url } = await relayRedis(server);
  await server.command("CONFIG", "SET", "cluster-announce-port", String(relay.port));
  const { pass } = relay;
  let [backSeconds, answers] = [0, 0];
  // What the server says of its clock, and what a node says of that.
  const times = {
    client: /(?<=\*2\r\n\$10\r\n)\d{10}(?=\r\n\$\d\r\n\d+\r\n)/g,
    server: /(?<=\$16\r\n)\d{16}(?=\r\n)/g,
  };
  relay.pass = (bytes, to, line) => {
    const shift = (time: string): string => {
      if (to === "client") answers++;
      return String(Number(time) + (to === "client" ? -backSeconds : backSeconds * 1e6));
    };
    return pass(Buffer.from(bytes.toString("latin1").replace(times[to], shift), "latin1"), to, line);
  };
  const node = await TestNode.open(redisRig({ cluster: [url] }).engine());
  const { epoch } = await node.append("1");
  backSeconds = back;
  expect(await outcomeOf(node.append("2"))).toBe(outcome);
  await expect.poll(() => answers).toBeGreaterThan(answers + 1);
  expect(await answered(() => node.append("3", "key"))).toEqual({ epoch, offset: left.length });
  expect((await answered(() => node.read())).entries.map(([, body]) => body)).toEqual(left);
  expect(node.downs.map(String).join()).toMatch(way === "forward" ? /may be replaced/ : /^$/);
});

it("the engine redis subscribes up to 500 channels by one command after a loss", async () => {
  const { server, rig } = await start();
  const node = await TestNode.open(rig.engine());
  const commands = async (): Promise<number> =>
    Number(/cmdstat_subscribe:calls=(\d+)/.exec(await server.command<string>("INFO", "commandstats"))?.[1]);
  await Promise.all(Array.from({ length: 1_200 }, (_, i) => node.connection.subscribe(`t:${i}`)));
  await startAgain(server, node);
  expect(await commands()).toBe(3);
});

it("the engine redis subscribes to what its user may, beside what it may not", async () => {
  const { server, rig } = await start();
  const node = await TestNode.open(rig.engine());
  const patterns = ["a:all", "n:*", "t:*"].map((channel) => `&${rig.prefix}:1:*:${channel}`);
  await server.command("ACL", "SETUSER", "default", "resetchannels", ...patterns);
  const subscribing = (["u:.bob", "t:room"] as const).map((channel) => node.connection.subscribe(channel));
  const [refused, room] = await Promise.allSettled(subscribing);
  expect([refused, room]).toMatchObject([{ reason: { code: "ENGINE", outcome: "not-sent" } }, { status: "fulfilled" }]);
});
