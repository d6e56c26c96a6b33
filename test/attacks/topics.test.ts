/** A client chooses the name of a topic, and handlers pass it on unchecked. */
import { expect, it } from "vitest";
import type { AnyPeer, Server } from "../../src/node.js";
import { closeAll, makeNodes } from "../fleet/nodes.js";

interface Context {
  readonly peer: AnyPeer;
  readonly server: Server<any, any, any>;
}

/** The handlers of a chat whose author forgot to check `room`. */
const CHAT = {
  join: async ({ room }: { room: string }, { peer, server }: Context) => void (await server.topic(room).join(peer)),
  enter: ({ room }: { room: string }, { peer, server }: Context) => void server.topic(room).add(peer),
  say: ({ room, text }: { room: string; text: string }, { peer, server }: Context) =>
    server.topic(room).notify("said", { text }, { except: peer }),
};

/** What a client may send as the name of a room. */
const ROOMS: unknown[] = [undefined, null, 5, ["den"], {}, "", "x".repeat(1_000_000), "\udfff", "a\ud800b"];

it("a client that sends a wrong room, or none, reaches no client of any node", async () => {
  const nodes = makeNodes(3, { methods: CHAT });
  const [mallory, ...others] = await Promise.all(nodes.map((node) => node.client()));
  for (const room of ROOMS) {
    for (const method of ["say", "join", "enter"]) {
      const call = mallory!.client.request(method, { room, text: "spam" });
      await expect(call).rejects.toMatchObject({ code: -32603 });
    }
  }
  for (const { server } of nodes) expect(server.stats().topics).toBe(0);
  nodes[0]!.server.peers.notify("end");
  for (const client of others) expect(await client.until(1)).toEqual([["end", undefined]]);
  await closeAll(nodes);
});
