/** Two nodes with a topic that has a log. */
import { FaultyEngine } from "./faulty.js";
import { makeNodes, type Client, type Node } from "./nodes.js";

export const RULES = { topics: () => ({ log: { length: 200, ttlMs: 600_000 } }) };

/** Makes two nodes with a logged topic "room", and a member on each. */
export async function room(options: object = {}): Promise<[FaultyEngine, a: Node, b: Node, ann: Client, bob: Client]> {
  const engine = new FaultyEngine();
  const [a, b] = makeNodes(2, { ...RULES, ...options }, engine) as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [engine, a, b, ann, bob];
}

/** Returns the numbers that a client got, in order. */
export const numbers = ({ got }: Client): number[] => got.filter(([method]) => method === "said").map(([, { n }]) => n);

export const count = (from: number, to: number): number[] => Array.from({ length: to - from + 1 }, (_, i) => from + i);

/** Publishes numbers, one after the other. Returns the last position. */
export async function say(node: Node, from: number, to = from): Promise<string> {
  let at = "";
  for (let n = from; n <= to; n++) at = await node.server.topic("room").publish("said", { n });
  return at;
}

/** Returns the gaps that a node reports from now on. */
export function gapsOf({ server }: Node): unknown[] {
  const gaps: unknown[] = [];
  server.on("gap", (topic, reason) => gaps.push([topic, reason]));
  return gaps;
}
