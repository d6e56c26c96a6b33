/**
 * What every engine does when its broker ends, stands still, loses its data, or refuses something. `describeFailures` runs the same tests
 * over each kind of broker. What is a rule of one broker only is in the files of that broker.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { EngineError, type Engine } from "../../src/topics/engine.js";
import { joinSilent } from "../server/members.js";
import { closeAll, makeNode, type Node } from "../fleet/nodes.js";
import type { Program } from "../support/program.js";
import { Relay } from "../support/relay.js";
import {
  answered,
  LOG,
  logFrame,
  outcomeOf,
  refusalOf,
  TestNode,
  TOPIC,
  use,
  watchHandles,
  written,
  type EngineRig,
} from "./kit.js";

/** How a broker of a test is configured. `password`: `se:cret`. `untrusted`: with TLS, by a certificate of its own. */
export type Variant = "plain" | "password" | "untrusted" | "small output";

/** A rig of a broker, and what its names begin with. */
export interface PrefixedRig extends EngineRig {
  readonly prefix: string;
}

/** One kind of broker, whose servers lose everything when they are killed. */
export interface BrokerKind<S extends Program & { readonly url: string }> {
  readonly name: string;
  /** The user of the variant `password`. */
  readonly user: string;
  create(variant: Variant): Promise<S>;
  /** Removes everything that a server has of a prefix. */
  purge(server: S, prefix: string): Promise<unknown>;
  rig(server: S, options: { readonly url: string; readonly prefix?: string; readonly leaseMs?: number }): PrefixedRig;
  /** Returns the names of the clients of a server, one for each connection. */
  names(server: S): Promise<string[]>;
}

/** Servers of a broker that serve together, of which one has what the tests append. */
export interface Group {
  /** Returns a rig with a prefix of its own. */
  rig(): Promise<PrefixedRig>;
  /** Kills or stops the server that has the topic of the tests. `replaced`: resolves when another one can serve. */
  failover(rig: PrefixedRig, how: "kill" | "pause"): Promise<{ replaced(): Promise<void>; restore(): Promise<void> }>;
  /** Returns an engine of the server that `failover` disturbs, if an engine can have that one only. */
  witness?(rig: PrefixedRig): Promise<Engine>;
}

const MIB = 2 ** 20;
/** The lease of nodes with members, which is the default, and how long a fault lasts that outlives it. */
const [LEASE_MS, FAULT_MS] = [10_000, 16_000];
const CHANNEL = `t:${TOPIC}` as const;

/** Does something for some at a time, so that it is in time on a busy machine. */
async function inParts<T>(all: readonly T[], act: (one: T) => Promise<unknown>): Promise<void> {
  for (let i = 0; i < all.length; i += 500) await Promise.all(all.slice(i, i + 500).map(act));
}

/** Publishes to a topic, again if a broker that was not scheduled for seconds answers too late. Returns the outcome. */
async function publish({ server }: Node, topic: string): Promise<string> {
  for (;;) {
    const outcome = await outcomeOf(server.topic(topic).publish("said", { topic }));
    if (outcome !== "unknown") return outcome;
  }
}

const stop = (server: Program): Promise<void> => server.pause().then(() => sleep(FAULT_MS));
const outcomesOf = (operations: Promise<unknown>[]): Promise<string[]> => Promise.all(operations.map(outcomeOf));

/** Begins one operation of each kind. */
const operationsOf = (node: TestNode): Promise<unknown>[] => [
  node.connection.send("a:all", "lost"),
  node.connection.subscribe("t:other"),
  node.append("lost"),
];

/** Runs the tests over one kind of broker. */
export function describeFailures<S extends Program & { readonly url: string }>(kind: BrokerKind<S>): void {
  const { name: kindName } = kind;

  /** Starts a server. `rigAt`: returns a rig of another port or password. */
  const start = async (variant: Variant = "plain") => {
    const server = use(await kind.create(variant));
    const rigAt = ({ port = server.port, password = "", ...others }): PrefixedRig => {
      const url = Object.assign(new URL(server.url), { port: String(port), password });
      if (password !== "") url.username = kind.user;
      return kind.rig(server, { url: url.href, ...others });
    };
    return { server, rig: rigAt({}), rigAt };
  };

  describe(`the engine ${kindName}, when its broker ends`, () => {
    it.each(["SIGKILL", "SIGTERM"] as const)(
      "reconnects, subscribes again, and begins another epoch, after %s",
      async (signal) => {
        const { server, rig } = await start();
        const node = await TestNode.open(rig.engine());
        await node.connection.subscribe(CHANNEL);
        const before = await answered(() => node.append("1", "key"));
        await node.until(CHANNEL, 1);
        await server.kill(signal);
        await node.when(() => node.downs.some(({ message }) => message.includes(new URL(server.url).host)));
        expect(new Set(await outcomesOf(operationsOf(node)))).toEqual(new Set(["not-sent"]));
        await server.start();
        await node.untilHeard();
        expect([node.ups, node.resubscribed]).toEqual([1, ["all"]]);
        expect(await answered(() => node.read())).toEqual({ epoch: "", top: 0, entries: [] });
        // The position of an earlier epoch is not repeated for its key.
        const after = await answered(() => node.append("2", "key"));
        expect(after.offset).toBe(1);
        expect(after.epoch).not.toBe(before.epoch);
        expect(await node.until(CHANNEL, 2)).toContain(logFrame(after.epoch, 1, "2"));
        for (const channel of ["a:all", CHANNEL] as const) {
          await node.connection.send(channel, "again");
          await node.until(channel, 1, (frame) => frame === "again");
        }
      },
    );

    it("rejects what was not answered as unknown, and repeats nothing", async () => {
      const { server, rig } = await start();
      const [a, b] = [await TestNode.open(rig.engine()), await TestNode.open(rig.engine())];
      // Later ones need no other command before they are written.
      await answered(() => a.append("1", "key"));
      await server.pause();
      const outcomes = outcomesOf(operationsOf(a));
      await written();
      await server.kill();
      expect(new Set(await outcomes)).toEqual(new Set(["unknown"]));
      await server.start();
      await Promise.all([a, b].map((node) => node.untilHeard()));
      expect((await answered(() => a.read())).top).toBe(0);
      expect([...a.received, ...b.received]).toEqual([]);
    });

    it("tries again at the start until it is there, and reports each failed attempt without the password", async () => {
      const { server, rigAt } = await start("password");
      await server.kill();
      const node = use(new TestNode(rigAt({ password: "se:cret" }).engine()));
      const opened = node.connection.open();
      await node.untilDown(2);
      await server.start();
      await opened;
      expect(node.downs[0]!.message).toMatch(/ECONNREFUSED|connection refused/i);
      for (const { message, cause } of node.downs) expect(`${message} ${String(cause)}`).not.toMatch(/se(:|%3A)cret/);
      expect(node.ups).toBe(0);
    });
  });

  describe(`the engine ${kindName}, when connections are lost`, () => {
    it("is cut as a slow reader, and subscribes again", async () => {
      const { server, rig, rigAt } = await start("small output");
      const sender = await TestNode.open(rig.engine(), "sender");
      const relay = use(await Relay.to(server.port));
      const node = await TestNode.open(rigAt({ port: relay.port, prefix: rig.prefix }).engine());
      await node.connection.subscribe(CHANNEL);
      const count = async (): Promise<number> =>
        (await kind.names(server)).filter((client) => client.includes(node.name)).length;
      const before = await count();
      relay.pause("server");
      const frame = "x".repeat(Math.min(MIB, sender.facts!.maxFrameBytes));
      while ((await count()) === before) await sender.connection.send(CHANNEL, frame);
      relay.mend();
      await node.untilHeard();
      expect(node.downs.length).toBeGreaterThan(0);
      await sender.connection.send(CHANNEL, "small");
      await node.until(CHANNEL, 1, (text) => text === "small");
      expect(sender.downs).toEqual([]);
    });

    it("opens its connections anew when asked to", async () => {
      const { server, rig } = await start();
      const node = await TestNode.open(rig.engine());
      await node.connection.subscribe(CHANNEL);
      await server.pause();
      const lost = outcomeOf(node.connection.send(CHANNEL, "lost"));
      await written();
      const late = outcomeOf(node.connection.subscribe("t:late"));
      node.connection.reconnect(new Error("no echo"));
      expect([await lost, (await late) === "done"]).toEqual(["unknown", false]);
      expect(node.downs[0]!.message).toContain("no echo");
      expect(await outcomeOf(node.connection.send(CHANNEL, "down"))).toBe("not-sent");
      node.connection.reconnect(new Error("it is down"));
      server.resume();
      await node.untilHeard();
      await node.connection.send(CHANNEL, "up");
      await node.until(CHANNEL, 1, (frame) => frame === "up");
      expect(node.resubscribed).toEqual(["all"]);
    });

    it("gives a connection up that answers nothing", async () => {
      const { server, rig } = await start();
      const node = await TestNode.open(rig.engine());
      await server.pause();
      const lost = outcomesOf([node.connection.send("a:all", "lost"), node.connection.subscribe(CHANNEL)]);
      await node.untilDown();
      expect(await lost).toEqual(["unknown", "unknown"]);
      server.resume();
      await node.untilHeard();
      expect(await outcomeOf(node.connection.send("a:all", "again"))).toBe("done");
    });

    it("closes while it connects, and then no connection is left", async () => {
      const { server, rig } = await start();
      await server.pause();
      const node = new TestNode(rig.engine());
      const opened = outcomeOf(node.connection.open());
      await written();
      await node.connection.close();
      expect(await opened).toBe("not-sent");
      server.resume();
      await expect.poll(async () => (await kind.names(server)).join()).not.toContain(node.name);
      expect(node.downs).toEqual([]);
    });

    it.each(["kill", "pause"] as const)("closes after a %s, and then no socket and no timer is left", async (verb) => {
      const { server, rig } = await start();
      const untilReleased = watchHandles();
      const node = await TestNode.open(rig.engine());
      await server[verb]();
      const lost = outcomeOf(node.connection.send("a:all", "lost"));
      await (verb === "kill" ? node.untilDown(4) : written());
      const { length } = node.downs;
      await node.connection.close();
      expect(["unknown", "not-sent"]).toContain(await lost);
      await untilReleased();
      expect(node.downs).toHaveLength(length);
      server.resume();
    });
  });

  describe(`the engine ${kindName}, when it is refused`, () => {
    it("rejects a wrong password at once, and does not name it", async () => {
      const { rigAt } = await start("password");
      for (const password of ["wrong", ""]) {
        const error = await refusalOf(rigAt({ password }).engine());
        expect(error).toBeInstanceOf(EngineError);
        expect(error.message).toMatch(/WRONGPASS|NOAUTH|authorization violation/i);
        expect(error.message).not.toContain("wrong");
      }
    });

    it("rejects a certificate that is not trusted, at once", async () => {
      const { rig } = await start("untrusted");
      const error = await refusalOf(rig.engine());
      expect(error).toMatchObject({ name: "EngineError", outcome: "not-sent" });
      expect(error.message).toMatch(/self.signed certificate/);
    });
  });

  describe(`the logs of the engine ${kindName}`, () => {
    it("have an entry of the longest size, and such a frame crosses", async () => {
      const { rig } = await start();
      const node = await TestNode.open(rig.engine());
      const frame = "x".repeat(node.facts!.maxFrameBytes);
      expect(await answered(() => node.append(frame, "key"))).toMatchObject({ offset: 1 });
      expect((await answered(() => node.read(1))).entries[0]![1] === frame).toBe(true);
      await node.connection.send("a:all", frame);
      const [received] = await node.until("a:all", 1);
      expect(received === frame).toBe(true);
      expect(node.downs).toEqual([]);
    });
  });

  describe(`the members of nodes over the engine ${kindName}`, () => {
    const rooms = Array.from({ length: 50 }, (_, i) => `room ${i}`);
    const PEERS = 600;
    const many = `${(PEERS * rooms.length).toLocaleString("en")} of one node and its 1,000 logs`;
    const logged = Array.from({ length: 1_000 }, (_, i) => `logged ${i}`);

    /** Makes two nodes, of which the first one has many members, and follows many logs. `relay`: carries what it sends and receives. */
    const members = async () => {
      const { server, rigAt } = await start();
      const relay = use(await Relay.to(server.port));
      const rig = rigAt({ port: relay.port, leaseMs: LEASE_MS });
      const options = { topics: (name: string) => (name.startsWith("logged") ? { log: LOG } : { members: true }) };
      const other = rigAt({ leaseMs: LEASE_MS, prefix: rig.prefix });
      const [a, b] = [rig, other].map(({ engine }) => makeNode({ ...options, engine: engine() })) as [Node, Node];
      onTestFinished(() => closeAll([a, b]));
      const left: string[] = [];
      for (const room of rooms) b.server.topic(room).watch((event) => event === "left" && left.push(room));
      const peers = Array.from({ length: PEERS }, (_, i) => joinSilent(a.server, {}, { name: String(i) }).peer);
      for (const room of rooms)
        await Promise.all(peers.map((peer) => answered(() => a.server.topic(room).join(peer, { as: 1 }))));
      const silent = new Set(logged);
      const onSend = (text: string): void => void silent.delete(JSON.parse(text).params.topic as string);
      const { peer: hearing } = joinSilent(a.server, { onSend }, { name: "hearing" });
      await inParts(logged, (topic) => answered(() => a.server.topic(topic).join(hearing)));
      /** Resolves when the second node lists so many in each room. */
      const untilSeen = (count = PEERS): Promise<void> =>
        vi.waitFor(
          async () => {
            const lists = await Promise.all(rooms.map((room) => b.server.topic(room).members()));
            expect(new Set(lists.map(({ length }) => length))).toEqual(new Set([count]));
          },
          { interval: 20 },
        );
      /** Resolves when each node has published to each log, without a refusal, and the first one got that. */
      const untilHealed = async (): Promise<void> => {
        // Until a node is connected again, and has found a stream of NATS that was deleted, it may refuse a publication.
        await Promise.all([a, b].map((node) => answered(() => node.server.topic("logged").publish("said", {}))));
        const say = async (topic: string): Promise<void> =>
          expect(await Promise.all([a, b].map((node) => publish(node, topic)))).toEqual(["done", "done"]);
        const repeated: Promise<void>[] = [];
        // Perhaps what was said is in the gap.
        const sayAgain = (topic: string): void => void repeated.push(say(topic));
        a.server.on("gap", sayAgain);
        await inParts(logged, say);
        await vi.waitFor(() => expect(silent.size).toBe(0), { interval: 20 });
        a.server.off("gap", sayAgain);
        await Promise.all(repeated);
      };
      /** Resolves when all are there again, after a fault that has ended. Prints how long that took. */
      const untilBack = async (fault: string): Promise<void> => {
        const endedAt = performance.now();
        const print = (what: string): unknown =>
          process.stdout.write(`${kindName}, ${fault}: ${what} after ${Math.round(performance.now() - endedAt)} ms\n`);
        await untilSeen();
        print("all members");
        await untilHealed();
        print("all logs");
      };
      await untilSeen();
      // A broker that was not scheduled for a lease meanwhile is no fault of the test.
      left.length = 0;
      return { server, prefix: rig.prefix, relay, left, untilSeen, untilBack };
    };
    it.each<[what: string, fault: (server: S, prefix: string) => Promise<unknown>]>([
      ["is killed and starts again", (server) => server.kill().then(() => server.start())],
      ["loses its data", (server, prefix) => kind.purge(server, prefix)],
      // That time passes is the fault.
      ["stands still for longer than a lease", (server) => stop(server).then(() => server.resume())],
    ])(`stay, ${many}, and none leaves, when the broker %s`, async (what, fault) => {
      const { server, prefix, left, untilBack } = await members();
      await fault(server, prefix);
      await untilBack(what);
      expect(left).toEqual([]);
    });

    it.each([
      ["cut", "close", "open"],
      ["paused", "pause", "mend"],
    ] as const)(`are there again, ${many}, when it was %s for a lease`, async (how, begin, end) => {
      const { relay, untilSeen, untilBack } = await members();
      await relay[begin]();
      await untilSeen(0);
      await relay[end]();
      await untilBack(how);
    });
  });
}

/** Runs the tests over servers of which one fails. `isReplaced`: whether another one serves when it is silent. */
export function describeFailover(name: string, groupOf: () => Group, isReplaced = true): void {
  describe(`the engine ${name}, when a server fails`, () => {
    it("begins another epoch, because the end of a log may be lost", async () => {
      const group = groupOf();
      const rig = await group.rig();
      const node = await TestNode.open(rig.engine());
      await node.connection.subscribe(CHANNEL);
      const before = await answered(() => node.append("1", "key"));
      const { replaced, restore } = await group.failover(rig, "kill");
      await replaced();
      await node.untilHeard();
      const after = await answered(() => node.append("2", "key"));
      expect(after.offset).toBe(1);
      expect(after.epoch).not.toBe(before.epoch);
      // A server that is not scheduled may be given up again, and then a frame is lost.
      while (!node.of(CHANNEL).some((frame) => !frame.includes(before.epoch))) await answered(() => node.append("3"));
      await restore();
    });

    if (!isReplaced) return;

    it("runs no late command on a server that was stopped and replaced", async () => {
      while (!(await stopAndReplace(groupOf())));
    });
  });
}

/** Returns false if a server that is not scheduled was given up, so that nothing was late, or a frame was lost. */
async function stopAndReplace(group: Group): Promise<boolean> {
  const rig = await group.rig();
  const node = await TestNode.open(rig.engine());
  const witness = group.witness && (await TestNode.open(await group.witness(rig)));
  for (const one of [node, witness]) await one?.connection.subscribe(CHANNEL);
  const before = await answered(() => node.append("before", "before"));
  const { replaced, restore } = await group.failover(rig, "pause");
  const isFirst = node.downs.length === 0;
  const late = Promise.all([node.append("late"), node.read()].map(outcomeOf));
  await node.untilDown();
  await replaced();
  await restore();
  if (!isFirst) return false;
  expect(await late).toEqual(["unknown", "unknown"]);
  await node.untilHeard();
  const { length: downs } = node.downs;
  const after = await answered(() => node.append("after", "key"));
  const frames = [logFrame(before.epoch, 1, "before"), logFrame(after.epoch, 1, "after")];
  await node.when(() => node.of(CHANNEL).includes(frames[1]!) || node.downs.length > downs);
  const read = await answered(() => node.read());
  if (node.downs.length > downs) return false;
  expect(after.epoch).not.toBe(before.epoch);
  expect(read).toEqual({ epoch: after.epoch, top: 1, entries: [[1, "after"]] });
  // The server that was replaced refused what came late.
  expect(node.of(CHANNEL)).toEqual(frames);
  if (witness !== undefined) expect(witness.of(CHANNEL)).toEqual(frames.slice(0, 1));
  return true;
}
