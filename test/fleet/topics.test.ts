import { afterEach, describe, expect, it } from "vitest";
import { closeAll, makeNodes, type Client, type Node } from "./nodes.js";

let nodes: Node[] = [];
afterEach(() => closeAll(nodes));

/** Two nodes with one member each in a topic. */
async function room(options?: object): Promise<[Node, Node, Client, Client]> {
  nodes = makeNodes(2, options);
  const [a, b] = nodes as [Node, Node];
  const [ann, bob] = [await a.client("ann"), await b.client("bob")];
  await a.server.topic("room").join(ann.peer);
  await b.server.topic("room").join(bob.peer);
  return [a, b, ann, bob];
}

describe("notify of a topic", () => {
  it("reaches the members on all nodes, once", async () => {
    const [a, b, ann, bob] = await room();
    a.server.topic("room").notify("said", { n: 1 });
    b.server.topic("room").notify("said", { n: 2 });
    a.server.topic("other").notify("said", { n: 3 });
    a.server.topic("room").notify("end");
    expect(await bob.until(3)).toEqual([
      ["said", { n: 2 }],
      ["said", { n: 1 }],
      ["end", undefined],
    ]);
    expect(await ann.until(3)).toContainEqual(["said", { n: 2 }]);
    expect(ann.got).toHaveLength(3);
  });
});
