/** How a world ends: which side closes, live or suspended, and what the other side must report. */
import { excuse } from "./oracle.js";
import type { World } from "./world.js";

interface Ending {
  /** Whether the ending waits for a session to expire. */
  readonly waits?: boolean;
  end(world: World): Promise<unknown>;
}

export type EndingKind = "clientCloses" | "serverCloses" | "clientClosesAway" | "vanish" | "drain";

export const ENDINGS: Readonly<Record<EndingKind, Ending>> = {
  clientCloses: {
    async end(world) {
      const { current, client } = world;
      excuse(current, "the client closes");
      void client.close();
      await world.until("both ends are over", () => current.isOver && current.other!.isOver);
    },
  },
  /** A client that is closed with 1000 does not reconnect. */
  serverCloses: {
    async end(world) {
      const { current, client, serverPeer } = world;
      excuse(current, "the server closes");
      void serverPeer!.close();
      await world.until("the client is closed for good", () => client.state === "closed" && current.isOver);
    },
  },
  clientClosesAway: {
    waits: true,
    async end(world) {
      const { current, client } = world;
      world.proxy.refusals = Infinity;
      world.proxy.newest?.cut();
      await world.until("the client is suspended", () => client.state === "suspended");
      excuse(current, "the client closes");
      const { other } = current;
      void client.close();
      if (!current.isOver) world.oracle.fail("close() while suspended did not settle at once");
      await world.until("the server gives up who does not come back", () => other!.isOver);
      world.proxy.refusals = 0;
    },
  },
  vanish: {
    waits: true,
    async end(world) {
      const { current, client } = world;
      world.proxy.refusals = Infinity;
      world.proxy.newest?.cut();
      await world.until("both ends are over in their time", () => current.isOver && current.other!.isOver);
      excuse(world.current, "the client closes");
      void client.close();
    },
  },
  drain: {
    async end(world) {
      const { current, client, server } = world;
      excuse(current, "the server goes away");
      world.proxy.refusals = Infinity;
      await server.drain({ timeoutMs: world.plan.patienceMs, retryMs: 5 });
      // A client whose heartbeat disconnected it earlier cannot know the close.
      const isCutOff = (): boolean => world.hasHeartbeat && client.state === "suspended";
      await world.until("the client knows", () => current.isOver || isCutOff());
      excuse(world.current, "the client closes");
      void client.close();
    },
  },
};
