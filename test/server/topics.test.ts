import { describe, expect, it } from "vitest";
import { memory, type AnyMethods, type AnyPeer, type Topic as TopicOf } from "../../src/node.js";
import { pass, raising, rejection, turn, useVirtualClock } from "../support/time.js";
import { join, joinSilent, makeServer, networkOf, type Member } from "./members.js";
import { stringsIn } from "./reachable.js";

type Topic = TopicOf<AnyMethods, AnyMethods, unknown>;

const ignore = (): void => {};
const fail = raising(new Error("bug in a listener"));

useVirtualClock();

describe("a topic", () => {
  it("omits the peers in `except`, also in a request and in those of all peers: peers, ids, handles, lists and Sets", async () => {
    await using server = makeServer();
    const members = [1, 2, 3].map(() => joinSilent(server));
    const [a, b, c] = members.map(({ peer }) => peer) as [AnyPeer, AnyPeer, AnyPeer];
    const topic = server.topic("news").add(a).add(b).add(c);
    const rows: [except: unknown, reached: AnyPeer[]][] = [
      ["a peer that has closed", [a, b, c]],
      [a, [b, c]],
      [b.id, [a, c]],
      [server.peer(c.id), [a, b]],
      [new Set([a, c.id]), [b]],
      [[a, a.id, server.peer(b.id), "gone"], [c]],
      [[a, b, c], []],
    ];
    for (const [value, reached] of rows) {
      for (const group of [topic, server.peers]) {
        const options = { except: value as never };
        group.notify("said", {}, options);
        const all = group.request("who", {}, { ...options, timeoutMs: 10 });
        const sent = members.filter((member) => member.sent.splice(0).length === 2);
        expect(sent.map(({ peer }) => peer)).toEqual(reached);
        await pass(10);
        expect((await all).map(({ peer }) => peer)).toEqual(reached);
      }
    }
  });

  it("refuses an `except` that names no peer, and sends nothing", async () => {
    await using server = makeServer();
    await using other = makeServer();
    const { peer, sent } = joinSilent(server);
    const foreign = joinSilent(other).peer;
    const topic = server.topic("news").add(peer);
    const ids = Array.from({ length: 257 }, (_, i) => String(i));
    const wrong = [true, null, 5, "", "x".repeat(129), {}, [undefined], [[peer]], new Map([[peer, 1]]), ids];
    for (const except of [...wrong, foreign, new Set([foreign])]) {
      const options = { except: except as never };
      for (const group of [topic, server.peers]) {
        expect(() => group.notify("said", {}, options)).toThrow("`except`");
        expect((await rejection(group.request("vote", {}, options))).message).toContain("`except`");
      }
    }
    topic.notify("end", {}, { except: ids.slice(1) });
    expect(sent).toEqual([expect.stringContaining('"end"')]);
  });

  it("notifies only those that are its members at the call, also if a listener adds and closes others meanwhile", async () => {
    await using server = makeServer();
    const full = joinSilent(server, { send: () => false });
    const [stays, closes, late] = [joinSilent(server), joinSilent(server), joinSilent(server)];
    const topic = server.topic("news").add(full.peer).add(stays.peer).add(closes.peer);
    const missed: unknown[] = [];
    server.on("missed", (peer) => {
      missed.push(peer);
      topic.add(late.peer);
      void closes.peer.close();
    });
    topic.notify("said", [1]);
    expect([stays, closes, late].map(({ sent }) => sent.length)).toEqual([1, 0, 0]);
    expect(missed).toEqual([full.peer]);
    topic.notify("said", [2]);
    expect(late.sent).toHaveLength(1);
  });

  it("throws a TypeError for a value that is no peer of its server, and nothing changes", async () => {
    await using server = makeServer({ engine: memory() });
    await using other = makeServer();
    const { peer } = await join(server);
    const foreign = await join(other);
    const topic = server.topic("news").add(peer);
    for (const value of [undefined, null, peer.id, server.peer(peer.id), { state: "closed" }]) {
      const wrong = value as typeof peer;
      for (const use of ["add", "delete", "has"] as const) expect(() => topic[use](wrong)).toThrow("`peer`");
      expect(() => server.peers.has(wrong)).toThrow("`peer`");
      expect(await rejection(topic.join(wrong))).toBeInstanceOf(TypeError);
    }
    for (const theirs of [foreign.peer, foreign.client]) expect(() => topic.add(theirs)).toThrow(TypeError);
    expect(topic.delete(foreign.peer)).toBe(false);
    expect([[...topic], server.stats().topics]).toEqual([[peer], 1]);
  });

  it("has a name of 1 to 512 bytes, also that of an inherited member; any other value throws a TypeError, and changes nothing", async () => {
    await using server = makeServer();
    const { peer } = joinSilent(server);
    const wrong = [undefined, 5, { toString: () => "news" }, "", "x".repeat(513), "ß".repeat(257), "\ud800", "\0a"];
    for (const name of wrong) expect(() => server.topic(name as string)).toThrow("`name`");
    for (const name of ["ß".repeat(256), "__proto__", "constructor"])
      expect([server.topic(name).size, ...server.topic(name).add(peer)]).toEqual([0, peer]);
    expect(server.stats().topics).toBe(3);
  });
});

describe("the events of a topic", () => {
  it("are emitted once for each peer that joins or is deleted, after the change, and not for a closed peer", async () => {
    await using server = makeServer();
    const [a, b, closed] = [joinSilent(server), joinSilent(server), joinSilent(server)];
    await closed.peer.close();
    const topic = server.topic("den");
    const events: unknown[] = [];
    topic.on("join", (...args) => events.push([...args, topic.has(args[0]), topic.size]));
    topic.on("leave", (...args) => events.push([...args, topic.has(args[0]), topic.size]));
    topic.add(a.peer).add(b.peer).add(a.peer).add(closed.peer);
    server.topic("other").add(a.peer);
    expect([topic.delete(a.peer), topic.delete(a.peer)]).toEqual([true, false]);
    expect(events.flat()).toEqual([a.peer, true, 1, b.peer, true, 2, a.peer, "deleted", false, 1]);
  });

  it.each<[string, (member: Member, server: AsyncDisposable & { close(): Promise<void> }) => Promise<void>]>([
    ["its server", ({ peer }) => peer.close()],
    ["its client", ({ client }) => client.close()],
    ["a server that closes", (_member, server) => server.close()],
  ])("have a peer that %s closes, which has left all topics by then, before its own `close`", async (_side, close) => {
    await using server = makeServer();
    const a = await join(server);
    const events: unknown[] = [];
    const [one, two] = [server.topic("one").add(a.peer), server.topic("two").add(a.peer)];
    const sizes = (): number[] => [one.size, two.size, server.peers.size];
    for (const topic of [one, two])
      topic.on("leave", (peer, reason) => {
        events.push([peer, reason, ...sizes()]);
        // It can neither be deleted twice nor be added again.
        expect([one.delete(peer), two.delete(peer), one.add(peer).size]).toEqual([false, false, 0]);
      });
    a.peer.on("close", () => events.push(["close", ...sizes()]));
    await close(a, server);
    await a.peer.closed;
    const left = [a.peer, "closed", 0, 0, 0];
    expect(events).toEqual([left, left, ["close", 0, 0, 0]]);
  });

  it("omit a socket that is lost and a session that resumes, and have the end of the session", async () => {
    await using server = makeServer({ session: { ttlMs: 1_000 } });
    const network = networkOf(server);
    const { peer, client } = await join(server);
    for (let i = 0; i < 2; i++) await rejection(client.request("nothing", [], { timeoutMs: 1 }));
    const events: unknown[] = [];
    const topic = server.topic("den");
    topic.on("join", () => events.push("join")).on("leave", (one, reason) => events.push([one, reason, one.state]));
    topic.add(peer);
    const resumed = peer.waitFor("resume");
    network.cut();
    expect([peer.state, topic.has(peer)]).toEqual(["suspended", true]);
    await pass(0);
    await resumed;
    expect([topic.has(peer), ...events]).toEqual([true, "join"]);
    network.cut();
    network.stop();
    await pass(999);
    expect([topic.has(peer), ...events]).toEqual([true, "join"]);
    await pass(1);
    expect([topic.has(peer), ...events]).toEqual([false, "join", [peer, "closed", "closed"]]);
    expect((await peer.closed).code).toBe(1006);
  });
});

describe("the listeners of a topic", () => {
  it("belong to its name: any object of the topic adds, calls and removes them, also while it has no members", async () => {
    await using server = makeServer();
    const { peer } = joinSilent(server);
    const seen: unknown[] = [];
    const listener = (joined: AnyPeer): void => void seen.push(joined);
    const topic = server.topic("den");
    expect(topic.on("join", listener)).toBe(topic);
    expect(server.stats().topics).toBe(0);
    for (let i = 0; i < 2; i++) server.topic("den").add(peer).delete(peer);
    expect(seen).toEqual([peer, peer]);
    server.topic("den").off("join", listener).add(peer);
    expect([seen.length, ...topic]).toEqual([2, peer]);
  });

  it("throw a TypeError for an unknown event, or unless they are functions", async () => {
    await using server = makeServer();
    const topic = server.topic("den").on("join", ignore);
    for (const how of ["on", "once", "off"] as const) expect(() => topic[how]("join", 5 as never)).toThrow(TypeError);
    for (const how of ["on", "once"] as const) expect(() => topic[how]("joined" as "join", ignore)).toThrow("`joined`");
  });

  it("report what they throw or reject with to the server's `error`, and stop no other listener", async () => {
    await using server = makeServer();
    const { peer } = joinSilent(server);
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
    listen(server.topic("the name of a topic"), joinSilent(server).peer);
    expect(stringsIn(server)).not.toContain("the name of a topic");
    server.topic("the name of a topic").on("join", ignore);
    expect(stringsIn(server)).toContain("the name of a topic");
  });
});
