/** Nodes over an engine with random faults, and their clients, in virtual time. */
import { expect, it } from "vitest";
import { FAULTS, play, type Fault } from "./chaos.js";
import { useFleet, type Node } from "./nodes.js";
import { after } from "./world.js";

useFleet();

it.each([1, 2])("loses, repeats and reorders nothing that is not reported: seed %i", async (seed) => {
  const { figures } = await play({ seed, clients: 8, faults: Object.keys(FAULTS) as Fault[] });
  const happened = ["calls with a result", "calls with an unknown outcome", "lost connections reported"];
  const ofTopics = ["notifications that had to arrive", "notifications lost", "gaps reported to members"];
  const ofLogs = ["publications that arrived", "joins that were complete", "boards loaded", "boards changed"];
  for (const name of [...happened, ...ofTopics, ...ofLogs, "changes made"])
    expect([name, figures[name]]).toEqual([name, expect.toSatisfy((count: number) => count > 0)]);
});

/** How long all nodes serve between two disturbances of a deployment. */
const BETWEEN_MS = 700;

it("a deployment settles every call with its true outcome, loses no publication, and lists no member twice", async () => {
  const { figures, world } = await play({ seed: 4, clients: 30 }, async (one) => {
    for (const [i, route] of ["n1", "n2", "n3"].entries()) {
      for (const isBlind of [false, true]) {
        await after(BETWEEN_MS);
        // A client that loses its socket between two sessions may be listed twice (RELIABILITY.md, "Several nodes").
        await one.untilMembers();
        one.isBlind = isBlind;
        one.cut(5);
      }
      await after(BETWEEN_MS);
      await one.untilMembers();
      one.isBlind = false;
      const { node, run } = one.nodes.get(route)!;
      // The balancer may know of a drain, or learn of it when the node has ended: then the node refuses clients with 503.
      if (i !== 1) one.nodes.delete(route);
      await (node as Node).server.drain({ timeoutMs: 10_000, retryMs: 300 });
      run.endedAt = performance.now();
      await one.start(route);
    }
  });
  const { clients, oracle, routed } = world;
  // Every client was on a node that was replaced, and sockets that were only cut found their session again.
  expect(clients.filter(({ lost }) => lost === 0)).toEqual([]);
  expect(clients.filter(({ resumed, lost }) => resumed > lost).length).toBeGreaterThan(0);
  expect(routed).toBeGreaterThan(5);
  expect(figures).toMatchObject({ "joins with a gap": clients.length, "gaps reported to members": 0 });
  const { "calls with a result": results = 0 } = figures;
  expect(results).toBeGreaterThan(oracle.calls.length * 0.9);
});
