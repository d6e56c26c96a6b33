/** `server.principal`: the peers of one user on all nodes, and what is not known of them. */
import { beforeEach, expect, it } from "vitest";
import { pass } from "../support/time.js";
import { gate, turn } from "../support/turns.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import { joinSilent } from "../server/members.js";
import { makeNode, makeNodes, settled, useFleet, type Node } from "./nodes.js";

useFleet();

const OPTIONS = { principal: ({ name }: { name: string }) => name };
/** After this time, each node has seen those that were there at its second beat. */
const BEAT_MS = 4_000;

let engine: FaultyEngine;
beforeEach(() => void (engine = new FaultyEngine()));

const add = (count: number): Node[] => makeNodes(count, OPTIONS, engine);
const idsOf = (peers: readonly { id: string }[]): string[] => peers.map(({ id }) => id);
const link = (i: number): FaultyLink => engine.links[i]!;
const received = ({ server }: Node): number => server.stats().engine!.received;

/** Asks a node for the peers of bob. Puts their ids, and whether they are all, into the list that it returns. */
function ask({ server }: Node): (string[] | boolean)[] {
  const answer: (string[] | boolean)[] = [];
  void server
    .principal("bob")
    .peers()
    .then(({ peers, isComplete }) => answer.push(idsOf(peers), isComplete));
  return answer;
}

it("is found by all nodes, also over `accept`, and its peers are closed with code and reason", async () => {
  const [a, b] = add(2) as [Node, Node];
  const eve = await b.client("eve");
  const bobs = [
    (await a.client("bob")).peer,
    (await b.client("bob")).peer,
    joinSilent(b.server, {}, { name: "bob" }).peer,
  ];
  for (const { server } of [a, b]) {
    const { peers, isComplete } = await server.principal("bob").peers();
    expect([new Set(idsOf(peers)), isComplete]).toEqual([new Set(idsOf(bobs)), true]);
  }
  await expect(a.server.principal("eve").disconnect(1001)).rejects.toThrow("Expected `code`");
  expect(await a.server.principal("bob").disconnect(4003, "banned")).toEqual({ closed: 3, isComplete: true });
  for (const peer of bobs) expect(await peer.closed).toMatchObject({ code: 4003, reason: "banned" });
  expect([eve.got, eve.client.state]).toEqual([[], "open"]);
});

it("sends no frame to a node without a peer of it", async () => {
  const [a, b, c] = add(3) as [Node, Node, Node];
  const bob = await b.client("bob");
  const principal = a.server.principal("bob");
  await pass(BEAT_MS);
  const before = received(c);
  principal.notify("said", { n: 1 });
  const { outcomes, isComplete } = await principal.request("asked", { n: 2 });
  expect(outcomes.map(({ peer, status }) => [peer.id, status])).toEqual([[bob.peer.id, "fulfilled"]]);
  expect([isComplete, bob.got.map(([method]) => method)]).toEqual([true, ["said", "asked"]]);
  await expect(principal.request("asked", { n: 1n })).rejects.toThrow(TypeError);
  expect(await principal.disconnect()).toEqual({ closed: 1, isComplete: true });
  expect(received(c)).toBe(before);
  await pass(5_100);
  const after = received(b);
  principal.notify("said");
  await turn();
  expect(received(b)).toBe(after);
});

it("has a name of at most 8,192 characters of any kind, whose end may be that of another name", async () => {
  const [a, b] = add(2) as [Node, Node];
  const name = "é".repeat(8_192);
  for (const wrong of [`${name}é`, "\ud800", undefined, 5])
    expect(() => a.server.principal(wrong as string)).toThrow("a well-formed string of at most 8192 characters");
  const end = name.slice(-130);
  const [bob, eve] = [await b.client(`bob${end}`), await b.client(`eve${end}`)];
  expect(await a.server.principal(name).disconnect()).toEqual({ closed: 0, isComplete: true });
  await bob.client.close();
  await pass(6_000);
  a.server.principal(`eve${end}`).notify("said");
  expect(await eve.until(1)).toEqual([["said", undefined]]);
  expect(b.server.stats().engine!.foreign).toBe(0);
});

it("requires the option `principal`", () => {
  expect(() => makeNode({}).server.principal("bob")).toThrow("requires the option `principal`");
});

it.each<[what: string, facts: FaultyEngine["facts"], counted: FaultyLink["counted"], isExact: boolean]>([
  ["exactly", {}, (count) => count, true],
  ["perhaps too few", { undercounts: true }, () => 0, false],
  ["none", {}, () => undefined, false],
])(
  "waits for the nodes that the broker counts, and for 200 ms if it counts %s",
  async (_what, facts, counted, isExact) => {
    engine.facts = facts;
    const [a, b] = add(2) as [Node, Node];
    const bob = await b.client("bob");
    link(0).counted = counted;
    link(1).hold();
    const answer = ask(a);
    await pass(100);
    expect(answer).toEqual([]);
    link(1).release();
    await pass(90);
    const all = [[bob.peer.id], true];
    expect(answer).toEqual(isExact ? all : []);
    await pass(10);
    expect(answer).toEqual(all);
  },
);

it.each<[what: string, disturb: () => unknown, waitMs: number]>([
  ["an answer is lost", () => void (link(0).loses = (_channel, frame) => frame.startsWith("1r")), 5_000],
  ["the broker does not answer", () => void link(0).blocks("send"), 5_000],
  ["a node is silent", () => (link(1).down(), pass(5_100)), 0],
  ["the connection is down", () => link(0).down(), 0],
])("is not complete if %s", async (_what, disturb, waitMs) => {
  const [a, b] = add(2) as [Node, Node];
  await b.client("bob");
  await pass(BEAT_MS);
  await disturb();
  const answer = ask(a);
  await pass(Math.max(waitMs - 1, 0));
  expect(answer).toEqual(waitMs > 0 ? [] : [[], false]);
  await pass(1);
  expect(answer).toEqual([[], false]);
});

it("ends with what is known when the server closes", async () => {
  const [a, b] = add(2) as [Node, Node];
  const [own] = [await a.client("bob"), await b.client("bob")];
  link(1).loses = () => true;
  const answer = ask(a);
  await turn();
  await settled(a.server.close());
  expect(answer).toEqual([[own.peer.id], false]);
});

it.each<[what: string, begin: () => unknown, end: () => unknown]>([
  ["the connection is restored", () => link(1).down(), () => link(1).up()],
  ["the broker has failed to subscribe", () => link(1).fails("subscribe"), () => {}],
  ["the broker restarts", () => {}, () => engine.restart()],
])("is reached when %s", async (_what, begin, end) => {
  const [a, b] = add(2) as [Node, Node];
  await turn();
  await begin();
  const bob = await b.client("bob");
  await end();
  await pass(1_000);
  a.server.principal("bob").notify("said", { n: 1 });
  expect(await bob.until(1)).toEqual([["said", { n: 1 }]]);
});

it("closes a client that another node was authenticating, and none that is authenticated later", async () => {
  let answer = gate();
  const authenticate = async (): Promise<object> => {
    await answer.promise;
    return { name: "bob" };
  };
  const [a] = add(1) as [Node];
  const b = makeNode({ ...OPTIONS, engine, authenticate });
  const early = b.client();
  await pass(1_000);
  expect(await a.server.principal("bob").disconnect(4403, "banned")).toEqual({ closed: 0, isComplete: true });
  answer.resolve();
  const { peer } = await settled(early);
  expect(await settled(peer.closed)).toMatchObject({ code: 4403, reason: "banned" });
  answer = gate();
  const later = b.client();
  // The node is still subscribed, and gets the close again.
  await pass(4_000);
  answer.resolve();
  const { peer: stays } = await settled(later);
  await pass(30_000);
  expect(stays.state).toBe("open");
});

it.each<[what: string, begin: () => void, end: () => void]>([
  ["had no connection for a moment", () => link(1).down(), () => link(1).up()],
  ["was not subscribed, which is not noticed", () => link(1).fails("subscribe", { times: 20 }), () => {}],
])("closes the peers of a node that %s", async (_what, begin, end) => {
  const [a, b] = add(2) as [Node, Node];
  await turn();
  begin();
  const bob = await b.client("bob");
  const closing = a.server.principal("bob").disconnect(4403, "banned");
  expect(await closing).toEqual({ closed: 0, isComplete: true });
  await pass(18_000);
  expect(bob.peer.state).toBe("open");
  end();
  expect(await settled(bob.peer.closed)).toMatchObject({ code: 4403, reason: "banned" });
});

it("sends at most 123 bytes of a reason", async () => {
  const [a, b] = add(2) as [Node, Node];
  const bob = await b.client("bob");
  const reason = "é".repeat(61);
  await a.server.principal("bob").disconnect(4403, `${reason}é`);
  expect(link(0).sent.at(-1)).toContain(`"${reason}"`);
  expect(await settled(bob.peer.closed)).toMatchObject({ reason });
});
