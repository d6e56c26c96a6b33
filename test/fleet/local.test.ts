/** What topics, peers and principals do on one server: the same without an engine as with one. */
import { describe, expect, it } from "vitest";
import { EngineError, memory, TooLargeError } from "../../src/node.js";
import { rejection } from "../support/turns.js";
import { closeAll, expectSoon, failure, gapsOf, makeNode, settled, useFleet, type Client, type Node } from "./nodes.js";

useFleet();

const LOG = { length: 3, ttlMs: 60_000 };
const OPTIONS = {
  topics: () => ({ log: LOG, members: "member" }),
  principal: ({ name }: { name: string }) => name,
};
const said = ({ got }: Client): number[] => got.filter(([method]) => method === "said").map(([, { n }]) => n as number);

const add = ([x, y]: number[]): number => x! + y!;

describe.each([
  ["without an engine", undefined],
  ["with one", memory],
])("a server %s", (_title, makeEngine) => {
  const make = (options: object = {}): Node => makeNode({ ...OPTIONS, ...options, engine: makeEngine?.() }, { add });

  it("sends a peer that joins what it has missed, or reports a gap", async () => {
    const node = make();
    const topic = node.server.topic("room");
    const [ann, bob, cid] = [await node.client("ann"), await node.client("bob"), await node.client("cid")];
    const { at: first, outcome: none } = await topic.join(ann.peer);
    expect([first, none, await topic.read()]).toEqual([expect.stringMatching(/^[\w-]+\.0$/), "gap", { at: first, outcome: "gap", entries: [] }]); // prettier-ignore
    // A log has a position while it is empty.
    expect(await topic.join(bob.peer, { since: first })).toEqual({ at: first, outcome: "complete" });
    topic.delete(bob.peer);
    const at: string[] = [];
    for (let n = 1; n <= 5; n++) at.push(await topic.publish("said", { n }));
    expect(await topic.join(bob.peer, { since: at[2] })).toEqual({ at: at[4], outcome: "complete" });
    for (const since of [at[4]!.replace(".", "x."), `${at[4]}0`, 5])
      expect(await topic.join(cid.peer, { since })).toEqual({ at: at[4], outcome: "gap" });
    // A member has all that was sent since.
    for (const [since, outcome] of [[at[4], "complete"] as const, [at[3], "gap"] as const])
      expect(await topic.join(cid.peer, { since })).toEqual({ at: at[4], outcome });
    expect(await topic.read({ since: at[4] })).toEqual({ at: at[4], outcome: "complete", entries: [] });
    await topic.publish("said", { n: 6 });
    await expectSoon(() => [ann, bob, cid].map(said), [[1, 2, 3, 4, 5, 6], [4, 5, 6], [6]]);
    // With an engine, the node has more of the log.
    topic.delete(ann.peer);
    const outcome = makeEngine === undefined ? "gap" : "complete";
    expect(await topic.join(ann.peer, { since: at[0] })).toMatchObject({ outcome });
    topic.delete(ann.peer);
    const { entries, ...rest } = await topic.read({ since: at[3], limit: 1 });
    expect([entries, rest]).toEqual([
      [{ at: at[4], method: "said", params: { n: 5, at: at[4] } }],
      { at: at[4], outcome: "complete" },
    ]);
    expect((await topic.read({ since: at[0] })).outcome).toBe("gap");
  });

  it("publishes once for a key, and nothing that is too long", async () => {
    const node = make();
    const topic = node.server.topic("room");
    const ann = await node.client("ann");
    const short = await node.client("short", { limits: { maxMessageBytes: 10_000 } });
    // Shows the limit to the server.
    await rejection(short.client.request("none"));
    const gaps = gapsOf(node);
    for (const { peer } of [ann, short]) await topic.join(peer);
    const since = await topic.publish("said", { n: 1 }, { key: "k" });
    expect(await topic.publish("said", { n: 2 }, { key: "k" })).toBe(since);
    await topic.publish("said", { n: 3, text: "x".repeat(10_000) });
    await expectSoon(() => [said(ann), said(short), gaps.length], [[1, 3], [1], 1]);
    topic.delete(short.peer);
    expect((await topic.join(short.peer, { since })).outcome).toBe("gap");
    expect(said(short)).toEqual([1]);
    expect(await rejection(topic.publish("said", { text: "x".repeat(2 ** 24) }))).toBeInstanceOf(TooLargeError);
    expect((await topic.read()).entries).toHaveLength(2);
  });

  it("lists members, and tells the others and the watchers of each", async () => {
    const node = make();
    const topic = node.server.topic("room");
    const [ann, bob] = [await node.client("ann"), await node.client("bob")];
    const events: unknown[] = [];
    const end = topic.watch((event, { as }) => events.push([event, as]));
    await topic.join(ann.peer, { as: 1 });
    for (const as of [2, 2, { a: [] }]) await topic.join(bob.peer, { as });
    const other = topic.watch(() => {});
    for (const stop of [other, other, other]) stop();
    expect(await topic.members()).toEqual([
      { id: ann.peer.id, as: 1 },
      { id: bob.peer.id, as: { a: [] } },
    ]);
    topic.delete(bob.peer);
    await ann.until(3);
    await settled(ann.client.close());
    const all = [
      ["joined", 1],
      ["joined", 2],
      ["joined", { a: [] }],
      ["left", { a: [] }],
      ["left", 1],
    ] as const;
    await expectSoon(() => events, all);
    const at = expect.stringMatching(/\.0$/) as string;
    const heard = all.slice(1, 4).map(([event, as]) => ["member", { event, id: bob.peer.id, as, at }]);
    await expectSoon(() => bob.got, []);
    expect(ann.got).toEqual(heard);
    end();
    end();
    await expect(topic.join(ann.peer, { as: 1 })).rejects.toMatchObject({
      code: "CONNECTION_LOST",
      outcome: "not-sent",
    });
    expect([await topic.members(), events.length, topic.size]).toEqual([[], 5, 0]);
  });

  it("calls and closes peers by their ids, and those of a principal", async () => {
    const node = make();
    const [ann, bob] = [await node.client("ann"), await node.client("bob")];
    expect(await node.server.peer(ann.peer.id).request("add", [1, 2])).toBe(3);
    const none = node.server.peer(`${ann.peer.id}0`);
    for (const use of [() => none.request("add", [1, 2]), () => none.close()])
      expect(await failure(use())).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent" });
    const principal = node.server.principal("bob");
    expect((await settled(principal.peers())).peers.map(({ id }) => id)).toEqual([bob.peer.id]);
    principal.notify("said", { n: 1 });
    await expectSoon(() => [said(bob), said(ann)], [[1], []]);
    expect(await settled(principal.disconnect(4_001))).toEqual({ closed: 1, isComplete: true });
    await settled(node.server.peer(ann.peer.id).close());
    expect((await settled(Promise.all([bob, ann].map(({ peer }) => peer.closed)))).map(({ code }) => code)).toEqual([
      4_001, 1_000,
    ]);
  });

  it("refuses what needs it when it is closed", async () => {
    const node = make();
    const topic = node.server.topic("room");
    const ann = await node.client("ann");
    await settled(closeAll([node]));
    for (const use of [topic.publish("said"), topic.read(), topic.members()])
      expect(await rejection(use)).toBeInstanceOf(EngineError);
    expect(await rejection(topic.join(ann.peer))).toMatchObject({ outcome: "not-sent" });
  });
});
