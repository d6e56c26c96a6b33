/** How the engine starts over Redis, which servers it refuses, and how it reaches them. */
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { RedisOptions } from "../../src/redis/index.js";
import { freePort } from "../support/ports.js";
import { RedisServer, type RedisServerOptions } from "../support/redis.js";
import { outcomeOf, refusalOf, TestNode, use, watchHandles } from "./kit.js";
import { redisRig } from "./redis-rig.js";

const MIB = 2 ** 20;

async function start(options: RedisServerOptions = {}): Promise<RedisServer> {
  return use(await RedisServer.create(options));
}

/** Resolves with the text of the error with which a node of these options does not open. */
async function reasonOf(options: RedisOptions): Promise<string> {
  return (await refusalOf(redisRig(options).engine())).message;
}

describe("the engine redis, at the start", () => {
  it("waits for a server that refuses to write for a while, and reads if it refuses later", async () => {
    const server = await start({ settings: { "min-replicas-to-write": "1" } });
    const node = use(new TestNode(redisRig({ url: server.url }).engine()));
    const opened = outcomeOf(node.connection.open());
    await node.untilDown(2);
    expect(node.downs[0]!.message).toMatch(/refuses commands of the engine: .*NOREPLICAS/);
    await server.command("CONFIG", "SET", "min-replicas-to-write", "0");
    expect(await opened).toBe("done");
    const { epoch } = await node.append("1");
    await server.command("CONFIG", "SET", "min-replicas-to-write", "1");
    expect(await outcomeOf(node.append("2"))).toBe("not-sent");
    expect(await node.read()).toEqual({ epoch, top: 1, entries: [[1, "1"]] });
  });

  it("names the commands that its user may not run, and rejects channels that it may not use", async () => {
    const server = await start({
      users: [
        "user default on nopass ~* &* +@all -publish -xadd -hincrby",
        "user other on nopass ~* resetchannels &other:* +@all",
      ],
    });
    const reason = await reasonOf({ url: server.url });
    for (const command of ["PUBLISH", "XADD", "HINCRBY"]) expect(reason).toContain(`${command}: `);
    expect(reason).not.toContain("ZADD");
    expect(await server.command<string[]>("KEYS", "*")).toEqual([]);
    const refused = await reasonOf({ url: server.url, username: "other", password: "any" });
    expect(refused).toMatch(/can't publish|No permissions to access a channel/);
  });

  it("rejects the wrong kind of server", async () => {
    const [single, member] = [await start(), await start({ kind: "cluster" })];
    expect(await reasonOf({ url: member.url })).toContain("use the option `cluster`");
    await member.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383");
    await expect.poll(() => member.command("CLUSTER", "INFO")).toContain("cluster_state:ok");
    const node = await TestNode.open(redisRig({ cluster: [member.url] }).engine());
    expect(node.facts).toMatchObject({ undercounts: true, unmet: [] });
    const unmet = use(new TestNode(redisRig({ cluster: [single.url] }).engine()));
    unmet.connection.open().catch(() => {});
    await unmet.untilDown();
    expect(unmet.downs[0]!.message).toContain("cluster");
  });

  it("reports that logs may be evicted", async () => {
    const server = await start({ settings: { maxmemory: "100mb", "maxmemory-policy": "allkeys-lru" } });
    const node = await TestNode.open(redisRig({ url: server.url }).engine());
    expect(node.facts).toMatchObject({ maxFrameBytes: 16 * MIB });
    expect(node.facts!.unmet).toEqual([expect.stringContaining("maxmemory-policy is allkeys-lru")]);
    await server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu");
    node.connection.reconnect(new Error("a test"));
    await expect.poll(() => node.facts!.unmet).toEqual([expect.stringContaining("maxmemory-policy is allkeys-lfu")]);
  });

  it.each<[string, (url: string) => RedisOptions]>([
    ["a cluster", (url) => ({ cluster: [url] })],
    ["a Sentinel", (url) => ({ sentinel: { name: "main", urls: [url] } })],
  ])("leaves no socket and no timer when it closes while %s is away", async (_what, optionsOf) => {
    const untilReleased = watchHandles();
    const node = new TestNode(redisRig(optionsOf(`redis://127.0.0.1:${await freePort()}`)).engine());
    const opened = outcomeOf(node.connection.open());
    await node.untilDown(2);
    await node.connection.close();
    expect(await opened).toBe("not-sent");
    await untilReleased();
  });

  it("connects by a socket in the file system, and uses the database of its URL", async () => {
    const socket = join(tmpdir(), `reciproc-${process.pid}.sock`);
    const server = await start({ settings: { unixsocket: socket } });
    for (const url of [`unix://${socket}`, `${server.url}/3`])
      await (await TestNode.open(redisRig({ url }).engine())).append("1");
    expect(await server.command<string>("INFO", "keyspace")).toMatch(/db0:keys=2,[^]*db3:keys=2,/);
  });
});
