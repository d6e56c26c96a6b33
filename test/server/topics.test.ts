import { describe, expect, it } from "vitest";
import { memory, type Engine, type Topic } from "../../src/node.js";
import { turn } from "../support/turns.js";
import { join, joinSilent, makeServer, type Member } from "./members.js";
import { stringsIn } from "./reachable.js";

describe("a topic", () => {
  it("contains the added peers once each, in order of addition", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    const topic = server.topic("news");
    expect(topic.size).toBe(0);
    expect(topic.add(a.peer).add(b.peer).add(a.peer)).toBe(topic);
    expect(topic.size).toBe(2);
    expect([...topic]).toEqual([a.peer, b.peer]);
    expect(server.topic("news").size).toBe(2);
    expect(server.topic("other").size).toBe(0);
    expect(topic.delete(a.peer)).toBe(true);
    expect(topic.delete(a.peer)).toBe(false);
    expect([...topic]).toEqual([b.peer]);
  });

  it("notifies only its members, except a peer in `except`", async () => {
    await using server = makeServer();
    const members = [await join(server), await join(server), await join(server)];
    const [a, b, outsider] = members as [Member, Member, Member];
    const topic = server.topic("news").add(a.peer).add(b.peer);
    topic.notify("said", { n: 1 });
    topic.notify("said", { n: 2 }, { except: a.peer });
    topic.notify("bare");
    topic.notify("said", [3], { except: outsider.peer });
    topic.notify("said", [4], { except: undefined });
    await turn();
    const all = [
      ["bare", undefined],
      ["said", [3]],
      ["said", [4]],
    ];
    expect(a.got).toEqual([["said", { n: 1 }], ...all]);
    expect(b.got).toEqual([["said", { n: 1 }], ["said", { n: 2 }], ...all]);
    expect(outsider.got).toEqual([]);
  });

  it("omits all peers of a list or a Set in `except`: peers, ids, and what `server.peer` returns", async () => {
    await using server = makeServer();
    const members = [await join(server), await join(server), await join(server)];
    const [a, b, c] = members as [Member, Member, Member];
    const topic = server.topic("news");
    for (const { peer } of members) topic.add(peer);
    const excepts: [unknown, Member[]][] = [
      [[a.peer, b.peer], [c]],
      [new Set([a.peer, c.peer.id]), [b]],
      [[b.peer.id, c.peer.id], [a]],
      [b.peer.id, [a, c]],
      [[], members],
      [new Set(), members],
      ["a peer that has closed", members],
      [
        [a.peer, a.peer.id, "gone"],
        [b, c],
      ],
      [server.peer(c.peer.id), [a, b]],
      [[a.peer, server.peer(b.peer.id)], [c]],
    ];
    for (const [n, [except]] of excepts.entries()) {
      topic.notify("said", { n }, { except: except as never });
      server.peers.notify("all", { n }, { except: except as never });
    }
    await turn();
    for (const member of members) {
      const expected = excepts.flatMap(([, reached], n) =>
        reached.includes(member)
          ? [
              ["said", { n }],
              ["all", { n }],
            ]
          : [],
      );
      expect(member.got).toEqual(expected);
    }
  });

  it("accepts its closed peers, and those of an HTTP POST, in `except`: they get nothing anyway", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    const topic = server.topic("news").add(a.peer).add(b.peer);
    await a.peer.close();
    topic.notify("said", [1], { except: a.peer });
    topic.notify("said", [2], { except: [a.peer, b.peer] });
    topic.notify("said", [3]);
    await turn();
    expect(b.got).toEqual([
      ["said", [1]],
      ["said", [3]],
    ]);
  });

  it("refuses an `except` that names no peer, and sends nothing", async () => {
    await using server = makeServer();
    await using other = makeServer();
    const { peer, client, got } = await join(server);
    const foreign = await join(other);
    const topic = server.topic("news").add(peer);
    const wrong: unknown[] = [
      true,
      null,
      5,
      "",
      "x".repeat(129),
      {},
      { id: peer.id },
      topic,
      server.peers,
      new Map([[peer, 1]]),
      client,
      foreign.peer,
      [undefined],
      [[peer]],
      new Set([foreign.peer]),
      [peer, { id: peer.id }],
      Array.from({ length: 257 }, (_, i) => String(i)),
    ];
    for (const except of wrong) {
      const options = { except: except as never };
      for (const group of [topic, server.peers]) {
        expect(() => group.notify("said", {}, options)).toThrow(
          "Expected `except` to be a peer of this server or of one with its engine, the id of one, or a list or a Set",
        );
        await expect(group.request("vote", {}, options)).rejects.toThrow("Expected `except` to be a peer");
      }
    }
    topic.notify("end", {}, { except: Array.from({ length: 256 }, (_, i) => String(i)) });
    await turn();
    expect(got).toEqual([["end", {}]]);
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

  it("encodes a notification once for all its members", async () => {
    await using server = makeServer();
    const members = await Promise.all(Array.from({ length: 5 }, () => join(server)));
    const topic = server.topic("news");
    for (const { peer } of members) topic.add(peer);
    let encoded = 0;
    const params = { toJSON: () => ({ encoded: ++encoded }) };
    topic.notify("said", params);
    server.peers.notify("said", params);
    await turn();
    expect(encoded).toBe(2);
    for (const { got } of members)
      expect(got).toEqual([
        ["said", { encoded: 1 }],
        ["said", { encoded: 2 }],
      ]);
  });

  it.each<[string, (member: Member) => Promise<void>]>([
    ["the server", ({ peer }) => peer.close()],
    ["the client", ({ client }) => client.close()],
  ])("removes a peer that %s closes", async (_side, close) => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    const [one, two] = [server.topic("one"), server.topic("two")];
    for (const { peer } of [a, b]) one.add(peer);
    two.add(a.peer);
    await close(a);
    await a.peer.closed;
    expect([...one]).toEqual([b.peer]);
    expect(two.size).toBe(0);
  });

  it("keeps nothing of a peer that closed", async () => {
    await using server = makeServer();
    const [a, b] = [await join(server), await join(server)];
    for (const { peer } of [a, b]) for (const name of ["one", "two"]) server.topic(name).add(peer);
    Object.assign(a.peer.data, { note: "the data of a" });
    Object.assign(b.peer.data, { note: "the data of b" });
    expect(stringsIn(server)).toContain("the data of a");
    await a.peer.close();
    // Its line is in memory until the client has noticed the close.
    await a.client.closed;
    await turn();
    const strings = stringsIn(server);
    expect(strings).toContain("the data of b");
    expect(strings).not.toContain("the data of a");
  });

  it("removes a peer before its close is reported", async () => {
    await using server = makeServer();
    const { peer, client } = await join(server);
    const topic = server.topic("news").add(peer);
    const sizes: number[] = [];
    peer.on("close", () => sizes.push(topic.size, server.peers.size));
    await client.close();
    await peer.closed;
    expect(sizes).toEqual([0, 0]);
  });

  it("stays valid however often it was empty", async () => {
    await using server = makeServer();
    const kept = server.topic("news");
    const { peer, got } = await join(server);
    kept.add(peer);
    kept.delete(peer);
    server.topic("news").add(peer);
    expect(kept.size).toBe(1);
    kept.notify("said", [1]);
    await turn();
    expect(got).toEqual([["said", [1]]]);
    server.topic("news").delete(peer);
    kept.add(peer);
    expect([...server.topic("news")]).toEqual([peer]);
  });

  it("throws a TypeError for another server's peer", async () => {
    await using server = makeServer();
    await using other = makeServer();
    const { peer, client } = await join(other);
    expect(() => server.topic("news").add(peer)).toThrow(TypeError);
    expect(() => server.topic("news").add(client)).toThrow("a topic takes peers of its own server only");
    expect(server.topic("news").size).toBe(0);
    expect(server.topic("news").delete(peer)).toBe(false);
  });

  it.each<[string, { engine?: Engine }]>([
    ["alone", {}],
    ["with an engine", { engine: memory() }],
  ])("throws a TypeError for a value that is no peer, and nothing changes (%s)", async (_which, options) => {
    await using server = makeServer(options);
    const { peer } = await join(server);
    const topic = server.topic("news").add(peer);
    const values: [unknown, string][] = [
      [undefined, "`undefined`"],
      [null, "`null`"],
      [peer.id, `\`${peer.id}\` (string)`],
      [server.peer(peer.id), "an object"],
      [{ state: "closed" }, "an object"],
    ];
    for (const [value, shown] of values) {
      const message = `Expected \`peer\` to be a \`Peer\`, and no id or handle of one, got ${shown}`;
      const wrong = value as typeof peer;
      for (const use of ["add", "delete", "has"] as const) expect(() => topic[use](wrong)).toThrow(message);
      expect(() => server.peers.has(wrong)).toThrow(message);
      await expect(topic.join(wrong)).rejects.toThrow(message);
    }
    expect([...topic]).toEqual([peer]);
    expect(server.stats().topics).toBe(1);
  });

  it.each<[string, unknown]>([
    ["no name", undefined],
    ["null", null],
    ["a number", 5],
    ["an object", { toString: () => "news" }],
    ["an empty string", ""],
    ["513 bytes", "x".repeat(513)],
    ["514 bytes of UTF-8", "ß".repeat(257)],
    ["a lone surrogate", "\ud800"],
  ])("throws a TypeError for %s instead of a name, and nothing exists after it", async (_what, name) => {
    await using server = makeServer();
    const { peer, got } = await join(server);
    const rule = "Expected `name` to be a well-formed string of 1 to 512 bytes of UTF-8, got ";
    const throwing = (use: (topic: Topic<any, any, any>) => unknown): void =>
      expect(() => use(server.topic(name as string))).toThrow(rule);
    throwing((topic) => topic.add(peer));
    throwing((topic) => topic.notify("said"));
    throwing((topic) => topic.on("join", () => {}));
    throwing((topic) => topic.size);
    expect(server.stats().topics).toBe(0);
    server.peers.notify("bare");
    await turn();
    expect(got).toEqual([["bare", undefined]]);
  });

  it("takes the longest name, and names that differ in one unit", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    const names = ["ß".repeat(256), "x".repeat(512), `${"x".repeat(511)}y`, "😀", "\0", "5"];
    for (const name of names) server.topic(name).add(peer);
    expect(server.stats().topics).toBe(names.length);
    await peer.close();
    expect(server.stats().topics).toBe(0);
  });

  it("ignores a closed peer without an error: it may have closed a moment ago", async () => {
    await using server = makeServer();
    const { peer } = await join(server);
    await peer.close();
    expect(server.topic("news").add(peer).size).toBe(0);
  });

  it.each(["__proto__", "constructor", "toString"])("can be named %j", async (name) => {
    await using server = makeServer();
    expect(server.topic(name).size).toBe(0);
    const { peer } = await join(server);
    expect([...server.topic(name).add(peer)]).toEqual([peer]);
  });

  it("sends nothing if the params cannot be encoded", async () => {
    await using server = makeServer();
    const { peer, got } = await join(server);
    const topic = server.topic("news").add(peer);
    expect(() => topic.notify("said", 5)).toThrow(TypeError);
    expect(() => topic.notify("said", [1n])).toThrow(TypeError);
    await turn();
    expect(got).toEqual([]);
  });

  it("can be iterated while its members close or are deleted", async () => {
    await using server = makeServer();
    const members = [await join(server), await join(server), await join(server)];
    const topic = server.topic("news");
    for (const { peer } of members) topic.add(peer);
    let seen = 0;
    for (const peer of topic) {
      seen++;
      if (seen === 1) topic.delete(peer);
      else void peer.close();
    }
    expect(seen).toBe(3);
    expect([topic.size, server.peers.size]).toEqual([0, 1]);
  });
});
