/** `server.principal`: the peers of one user on all nodes, and the nodes that did not answer. */
import { beforeEach, expect, it } from "vitest";
import { EngineError } from "../../src/node.js";
import { pass } from "../support/time.js";
import { gate, turn } from "../support/turns.js";
import { FaultyEngine, type FaultyLink } from "./faulty.js";
import { joinSilent } from "../server/members.js";
import { makeNode, makeNodes, settled, useFleet, type Node } from "./nodes.js";

useFleet();

const OPTIONS = { principal: ({ name }: { name: string }) => name };
/** How long a principal waits for answers, and a little more. */
const GATHER_MS = 5_100;
/** After this time, each node has seen those that were there at its second beat. */
const BEAT_MS = 4_000;
const isQuestion = (_channel: string, frame: string): boolean => frame.startsWith("1u");

let engine: FaultyEngine;
beforeEach(() => void (engine = new FaultyEngine()));

const add = (count: number): Node[] => makeNodes(count, OPTIONS, engine);
const idsOf = (peers: readonly { id: string }[]): string[] => peers.map(({ id }) => id);
const link = (i: number): FaultyLink => engine.links[i]!;

/** Asks a node for the peers of bob. Returns their ids, and the nodes that did not answer. */
async function ask({ server }: Node, waitMs = GATHER_MS): Promise<[ids: string[], unheard: readonly string[]]> {
  let answer: [string[], readonly string[]] | undefined;
  void server
    .principal("bob")
    .peers()
    .then(({ peers, unheard }) => (answer = [idsOf(peers), unheard]));
  await pass(waitMs);
  if (answer === undefined) throw new Error(`no answer in ${waitMs} ms`);
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
  for (const node of [a, b]) {
    const [ids, unheard] = await ask(node, 0);
    expect([new Set(ids), unheard]).toEqual([new Set(idsOf(bobs)), []]);
  }
  await expect(a.server.principal("eve").disconnect(1001)).rejects.toThrow("Expected `code`");
  expect(await a.server.principal("bob").disconnect(4003, "banned")).toEqual({ closed: 3, unheard: [] });
  for (const peer of bobs) expect(await peer.closed).toMatchObject({ code: 4003, reason: "banned" });
  expect([eve.got, eve.client.state]).toEqual([[], "open"]);
});

it("has a name of at most 8,192 characters of any kind", async () => {
  const [a, b] = add(2) as [Node, Node];
  const name = "é".repeat(8_192);
  for (const wrong of [`${name}é`, "\ud800", undefined, 5])
    expect(() => a.server.principal(wrong as string)).toThrow("a well-formed string of at most 8192 characters");
  expect(await a.server.principal(name).disconnect()).toEqual({ closed: 0, unheard: [] });
  expect(b.server.stats().engine!.foreign).toBe(0);
});

it("requires the option `principal`", () => {
  expect(() => makeNode({}).server.principal("bob")).toThrow("requires the option `principal`");
});

it("names the nodes that did not answer in 5 s, or whose answer was too long, and keeps the answers of the others", async () => {
  const [a, b] = add(2) as [Node, Node];
  const [own, bob] = [await a.client("bob"), await b.client("bob")];
  await pass(BEAT_MS);
  const from = b.server.nodes.id;
  link(1).loses = isQuestion;
  expect(await ask(a)).toEqual([[own.peer.id], [from]]);
  const asking = a.server.principal("bob").peers();
  await turn();
  await link(1).send(`n:${a.server.nodes.id}`, `1a\t2\t${from}\tlarge\tunknown\n{"bytes":2000000}`);
  expect((await asking).unheard).toEqual([from]);
  link(0).down();
  expect(await ask(a, 0)).toEqual([[own.peer.id], [from, "?"]]);
  expect(bob.peer.state).toBe("open");
});

it("waits for a node that came before the question, if the broker does not count", async () => {
  engine.counts = false;
  const [a] = add(1) as [Node];
  await pass(BEAT_MS);
  const [b] = add(1) as [Node];
  const bob = await b.client("bob");
  link(1).hold();
  const asking = a.server.principal("bob").peers();
  await pass(100);
  link(1).release();
  const { peers, unheard } = await asking;
  expect([idsOf(peers), unheard]).toEqual([[bob.peer.id], []]);
});

it("ends after 5 s, and says that there may be other nodes if the question does not come back", async () => {
  engine.counts = false;
  const [a, b] = add(2) as [Node, Node];
  const own = await a.client("bob");
  await pass(BEAT_MS);
  link(1).loses = link(0).loses = isQuestion;
  const [early, late] = [ask(a, 4_900).catch(String), ask(a, 5_100)];
  expect(await early).toContain("no answer");
  expect(await late).toEqual([[own.peer.id], [b.server.nodes.id, "?"]]);
  link(0).down();
  expect(await a.server.principal("bob").disconnect()).toEqual({ closed: 1, unheard: [b.server.nodes.id, "?"] });
});

it.each([
  ["comes after all other answers", false],
  ["does not come", true],
])("names a node that came after the last beat, if the count of the broker %s", async (_what, isLost) => {
  const [a, b] = add(2) as [Node, Node];
  await pass(BEAT_MS);
  const [c] = add(1) as [Node];
  engine.unheard.add(c.server.nodes.id);
  const [bob] = [await b.client("bob"), await c.client("bob")];
  expect(a.server.nodes.live).toHaveLength(2);
  link(2).loses = isQuestion;
  const count = gate();
  link(0).after = (command) => (command === "send" ? count.promise : undefined);
  const asking = ask(a);
  engine.unheard.clear();
  await turn();
  if (isLost) count.reject(new EngineError("faulty: lost", "unknown"));
  else count.resolve();
  expect(await settled(asking)).toEqual([[bob.peer.id], [c.server.nodes.id, ...(isLost ? ["?"] : [])]]);
});

it("reports a node that the broker counts and that was given up, because it may have peers", async () => {
  const [a, b] = add(2) as [Node, Node];
  const bob = await b.client("bob");
  // Its process is stopped.
  link(1).loses = () => true;
  link(1).before = () => new Promise(() => {});
  await pass(14_000);
  expect([a.server.nodes.live, a.server.stats().engine!.nodes]).toEqual([[a.server.nodes.id], 1]);
  expect(await ask(a)).toEqual([[], ["?"]]);
  expect(bob.peer.state).toBe("open");
});
