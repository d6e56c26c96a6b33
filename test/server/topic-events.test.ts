import { describe, expect, it } from "vitest";
import { type AnyMethods, type AnyPeer, type LeaveReason, type Topic as TopicOf } from "../../src/node.js";
import { gate, turn } from "../support/turns.js";
import { begun, connect, describeNetworks, drop, emitted, nextPeer, serving } from "./by-hand.js";
import { join, joinSilent, makeServer } from "./members.js";
import { stringsIn } from "./reachable.js";

type Topic = TopicOf<AnyMethods, AnyMethods, unknown>;

const ignore = (): void => {};

const fail = (): never => {
  throw new Error("bug in a listener");
};

describe("the event `join` of a topic", () => {
  it("is emitted once for each peer that is added, which is a member by then", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    const topic = server.topic("den");
    const joined: unknown[] = [];
    topic.on("join", (peer, ...rest) => joined.push([peer, topic.has(peer), topic.size, rest]));
    topic.add(a.peer).add(b.peer).add(a.peer);
    server.topic("other").add(a.peer);
    expect(joined).toEqual([
      [a.peer, true, 1, []],
      [b.peer, true, 2, []],
    ]);
  });

  it("is not emitted for a peer that is closed or refused", async () => {
    await using server = makeServer();
    await using other = makeServer();
    const joined: unknown[] = [];
    const topic = server.topic("den").on("join", (peer) => joined.push(peer));
    const { peer } = await join(server);
    await peer.close();
    topic.add(peer);
    const foreign = await join(other);
    expect(() => topic.add(foreign.peer)).toThrow(TypeError);
    expect(joined).toEqual([]);
  });
});

describe("the event `leave` of a topic", () => {
  it("is emitted for a peer that is deleted", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const left: unknown[] = [];
    const topic = server.topic("den").add(peer);
    topic.on("leave", (...args) => left.push([...args, topic.has(peer)]));
    expect(topic.delete(peer)).toBe(true);
    expect(topic.delete(peer)).toBe(false);
    expect(left).toEqual([[peer, "deleted", false]]);
  });

  it.each<[string, (member: { peer: AnyPeer; client: AnyPeer }) => Promise<void>]>([
    ["the server", ({ peer }) => peer.close()],
    ["the client", ({ client }) => client.close()],
  ])("is emitted for a peer that %s closes, which has left all topics by then", async (_side, close) => {
    await using server = makeServer();
    const a = await join(server);
    const left: unknown[] = [];
    const topics = ["one", "two"].map((name) => server.topic(name).add(a.peer));
    for (const topic of topics) {
      topic.on("leave", (peer, reason) => left.push([peer, reason, topics.map(({ size }) => size), server.peers.size]));
    }
    a.peer.on("close", () => left.push("close"));
    await close(a);
    await a.peer.closed;
    expect(left).toEqual([[a.peer, "closed", [0, 0], 0], [a.peer, "closed", [0, 0], 0], "close"]);
  });

  it("is emitted for every peer of a server that closes", async () => {
    const server = makeServer();
    const peers = [(await join(server)).peer, (await join(server)).peer];
    const left: unknown[] = [];
    const topic = server.topic("den").on("leave", (peer, reason) => left.push([peer, reason]));
    for (const peer of peers) topic.add(peer);
    await server.close();
    expect(left).toEqual(peers.map((peer) => [peer, "closed"]));
  });

  it("lets a listener notify those who stay", async () => {
    await using server = makeServer();
    const [a, b] = [joinSilent(server), joinSilent(server)];
    const topic = server.topic("den").add(a.peer).add(b.peer);
    topic.on("leave", (_peer, reason) => topic.notify("left", { reason }));
    await a.peer.close();
    expect(a.sent).toEqual([]);
    expect(b.sent.map((text) => JSON.parse(text) as unknown)).toEqual([
      { jsonrpc: "2.0", method: "left", params: { reason: "closed" } },
    ]);
    expect(server.stats().dropped).toBe(0);
  });

  it("lets a listener neither add a closed peer again nor delete it twice", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const [one, two] = [server.topic("one").add(peer), server.topic("two").add(peer)];
    const left: unknown[] = [];
    for (const topic of [one, two]) {
      topic.on("leave", (leaving) => {
        left.push([one.delete(leaving), two.delete(leaving), one.add(leaving).size]);
      });
    }
    await peer.close();
    expect(left).toEqual([
      [false, false, 0],
      [false, false, 0],
    ]);
  });
});

describeNetworks("the events of a topic", () => {
  it("omit a socket that is lost and a session that resumes, and have the end of the session", async () => {
    const { server, url, cut } = await serving();
    const coming = nextPeer(server);
    const client = await connect(url, { methods: {} });
    for (let i = 0; i < 2; i++) await client.request("no-such-method").catch(() => {});
    const peer = await coming;
    const events: unknown[] = [];
    const topic = server.topic("den");
    topic.on("join", () => events.push("join")).on("leave", (_peer, reason) => events.push(reason));
    topic.add(peer);
    const suspended = emitted(peer, "suspend");
    const resumed = Promise.all([emitted(peer, "resume"), emitted(client, "resume")]);
    cut();
    await suspended;
    expect([topic.has(peer), ...events]).toEqual([true, "join"]);
    await resumed;
    expect([topic.has(peer), ...events]).toEqual([true, "join"]);
    await client.close();
    await peer.closed;
    expect([topic.has(peer), ...events]).toEqual([false, "join", "closed"]);
  });

  it("have a peer that leaves with `closed` when its session expires", async () => {
    const world = await serving({ session: { ttlMs: 50 } });
    const session = await begun(world);
    const left = gate<unknown>();
    const topic = world.server.topic("den").add(session.peer);
    topic.on("leave", (peer, reason) => left.resolve([peer, reason, peer.state]));
    await drop(session);
    expect(topic.size).toBe(1);
    expect(await left.promise).toEqual([session.peer, "closed", "closed"]);
    expect((await session.peer.closed).code).toBe(1006);
  });
});

describe("the listeners of a topic", () => {
  it("belong to its name: any object of the topic adds, calls and removes them", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const seen: unknown[] = [];
    const listener = (joined: AnyPeer): void => void seen.push(joined);
    const topic = server.topic("den");
    expect(topic.on("join", listener)).toBe(topic);
    server.topic("den").add(peer);
    expect(seen).toEqual([peer]);
    expect(server.topic("den").off("join", listener)).toBeDefined();
    server.topic("den").delete(peer);
    server.topic("den").add(peer);
    expect(seen).toEqual([peer]);
  });

  it("are called once if `once` added them, also by two joins inside each other", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    const topic = server.topic("den");
    const seen: unknown[] = [];
    topic.once("join", (peer) => (seen.push(peer), topic.add(b.peer)));
    topic.once("leave", (peer, reason) => seen.push([peer, reason]));
    topic.add(a.peer);
    for (const { peer } of [a, b]) topic.delete(peer);
    expect(seen).toEqual([a.peer, [a.peer, "deleted"]]);
  });

  it("can be removed if `once` added them", async () => {
    await using server = makeServer();
    const topic = server.topic("den");
    topic
      .once("join", fail)
      .off("join", fail)
      .add((await join(server)).peer);
    expect(topic.size).toBe(1);
  });

  it("stay while the topic has no members, which makes it no topic of the statistics", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const left: LeaveReason[] = [];
    server.topic("den").on("leave", (_peer, reason) => left.push(reason));
    expect(server.stats().topics).toBe(0);
    for (let i = 0; i < 2; i++) server.topic("den").add(peer).delete(peer);
    expect(left).toEqual(["deleted", "deleted"]);
  });

  it.each(["joined", "__proto__", "toString", ""])("throw a TypeError for the unknown event %j", async (name) => {
    await using server = makeServer();
    const topic = server.topic("den");
    expect(() => topic.on(name as "join", () => {})).toThrow(`Unknown event \`${name}\`; known are join, leave`);
    expect(() => topic.once(name as "join", () => {})).toThrow(TypeError);
  });

  it("throw a TypeError unless they are functions", async () => {
    await using server = makeServer();
    const topic = server.topic("den").on("join", () => {});
    for (const how of ["on", "once", "off"] as const) expect(() => topic[how]("join", 5 as never)).toThrow(TypeError);
    expect(() => topic.off("join", undefined as never)).toThrow(TypeError);
  });

  it("report what they throw or reject with to the server's `error`, and stop no other listener", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const errors: unknown[] = [];
    server.on("error", (...args) => errors.push(args));
    const seen: unknown[] = [];
    const topic = server.topic("den");
    topic.on("join", fail).on("join", (joined) => seen.push(joined));
    topic.on("leave", () => Promise.reject(new Error("rejected")) as never);
    expect(topic.add(peer).size).toBe(1);
    expect(seen).toEqual([peer]);
    await peer.close();
    await turn();
    expect(errors).toMatchObject([
      [{ message: "bug in a listener" }, peer, undefined],
      [{ message: "rejected" }, peer, undefined],
    ]);
  });

  it.each<[string, (topic: Topic, peer: AnyPeer) => void]>([
    [
      "`off` removes the last",
      (topic) => topic.on("join", ignore).once("leave", fail).off("leave", fail).off("join", ignore),
    ],
    ["the last, which `once` added, is called", (topic, peer) => topic.once("join", ignore).add(peer).delete(peer)],
    ["the last is refused", (topic) => expect(() => topic.on("joined" as "join", ignore)).toThrow(TypeError)],
  ])("leave nothing of their topic in the server when %s", async (_when, listen) => {
    await using server = makeServer();
    const { peer } = await join(server);
    listen(server.topic("the name of a topic"), peer);
    expect(stringsIn(server)).not.toContain("the name of a topic");
    server.topic("the name of a topic").on("join", ignore);
    expect(stringsIn(server)).toContain("the name of a topic");
  });

  it("stay if one of them removes the last and adds another", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const topic = server.topic("den");
    const seen: string[] = [];
    const first = (): void => {
      topic.off("join", first);
      topic.on("join", () => seen.push("second"));
    };
    topic.on("join", first);
    for (let i = 0; i < 2; i++) topic.add(peer).delete(peer);
    expect(seen).toEqual(["second"]);
  });
});
