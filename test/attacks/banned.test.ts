import { expect, it } from "vitest";
import { memory, type AnyPeer } from "../../src/node.js";
import { ByHand, LIMITS, serving } from "../server/by-hand.js";
import { turn, useVirtualClock } from "../support/time.js";

// A ban is complete only while each node hears the beats of the others.
useVirtualClock();

async function arrive(url: string, offersAuth: boolean, ticks: number, name: string): Promise<void> {
  const headers = { "x-name": name, "x-ticks": String(ticks) };
  const byHand = await ByHand.open(url, { returns: true, offersAuth, headers }).catch(() => undefined);
  byHand?.say({ hello: offersAuth ? { auth: name } : { session: true, limits: LIMITS } });
  for (let i = 0; i < ticks; i++) await turn();
  if (offersAuth) byHand?.say({ hello: { session: true, limits: LIMITS } });
}

it("a user that is banned on one node keeps no peer on any, in whichever step of its arrival the ban comes", async () => {
  const engine = memory();
  const banned = new Set<string>();
  const peers: AnyPeer[] = [];
  const start = async (): Promise<Awaited<ReturnType<typeof serving<string>>>> => {
    const world = await serving<string>({
      engine,
      // Decides, and then takes a few ticks to say so.
      authenticate: async ({ headers }, auth) => {
        const name = (auth ?? headers["x-name"]) as string;
        const isAllowed = !banned.has(name);
        for (let ticks = Number(headers["x-ticks"]); ticks > 0; ticks--) await turn();
        return isAllowed ? name : null;
      },
      principal: (name) => name,
    });
    world.server.on("peer", (peer) => peers.push(peer as AnyPeer));
    return world;
  };
  const [here, there] = [await start(), await start()];
  for (let step = 0; step < 24; step++) {
    const name = `eve-${step}`;
    const arrivals = [here, there].flatMap(({ url }) =>
      [0, 3, 6].flatMap((ticks) => [false, true].map((offersAuth) => arrive(url, offersAuth, ticks, name))),
    );
    for (let i = 0; i < step; i++) await turn();
    banned.add(name);
    expect((await here.server.principal(name).disconnect(4403, "banned")).isComplete).toBe(true);
    await Promise.all(arrivals);
    for (let i = 0; i < 12; i++) await turn();
  }
  // A ban that comes late closes peers that are open, also those that opened elsewhere meanwhile.
  expect(peers.length).toBeGreaterThan(0);
  await Promise.all(peers.map(({ closed }) => closed));
});
