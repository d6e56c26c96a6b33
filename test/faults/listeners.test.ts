/** A network that is cut inside code of the application: each event of either side, and other code that runs in between. */
import { describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";

useVirtualClock();

const EVENTS = ["suspend", "attempt", "lost", "resume", "close"] as const;
/** Code of the application that runs while a connection changes its state. */
const PLACES = [
  ...EVENTS.map((event) => `client ${event}` as const),
  ...EVENTS.map((event) => `server ${event}` as const),
  "server peer",
  "onOpen",
  "client signal",
  "server signal",
] as const;
type Place = (typeof PLACES)[number];

const CLIENTS = {
  "a session": {},
  "a session and `onOpen`": { onOpen: () => {} },
  "a plain link": { link: "plain", reconnect: true },
  "a plain link and `onOpen`": { link: "plain", onOpen: () => {} },
};

/** The places that a client of a kind reaches after its first socket has ended. */
function isReached(place: Place, end: "cut" | "lose", kind: keyof typeof CLIENTS): boolean {
  const isPlain = kind.startsWith("a plain");
  const isLost = isPlain || end === "lose";
  if (place === "onOpen") return isLost && kind.endsWith("`");
  if (place === "client close" || place === "server attempt" || place === "server lost") return false;
  if (place === "server suspend") return !isPlain;
  if (place === "server resume") return !isLost;
  return isLost || ["client suspend", "client attempt", "client resume"].includes(place);
}

describe.each(Object.keys(CLIENTS) as (keyof typeof CLIENTS)[])("a client with %s", (kind) => {
  describe.each(["cut", "lose"] as const)("whose first socket is ended by network.%s()", (end) => {
    it.each(
      PLACES.filter((place) => isReached(place, end, kind)).flatMap((place) =>
        [1, 3].map((most) => [place, most] as const),
      ),
    )("is answered again if its network is cut inside `%s`, at most %i times", async (at, most) => {
      let cuts = 0;
      let isArmed = false;
      const reach = (place: string): void => {
        if (!isArmed || place !== at || cuts === most) return;
        cuts++;
        kit.network.cut();
      };
      const failures: unknown[] = [];
      const open = new Set<AnyPeer>();
      const follow = (side: string, peer: AnyPeer): void => {
        for (const event of EVENTS)
          peer.on(event, () => {
            const isExpected =
              event === "attempt" ? peer.state === "suspended" : (event === "close") === (peer.state === "closed");
            if (!isExpected) failures.push([side, event, peer.state]);
            reach(`${side} ${event}`);
          });
        peer.on("error", (error) => failures.push(error));
        let notBefore = 0;
        peer.on("attempt", ({ delayMs }) => (notBefore = performance.now() + delayMs));
        peer.on("resume", () => performance.now() < notBefore && failures.push([side, "resumed without a socket"]));
        open.add(peer);
        void peer.closed.then(() => open.delete(peer));
      };
      const never = (side: string) => (_params: unknown, context: { signal: AbortSignal }) =>
        new Promise((_resolve, reject) => {
          context.signal.addEventListener("abort", () => {
            reach(`${side} signal`);
            reject(context.signal.reason as Error);
          });
        });
      const methods = { echo: (params: unknown) => params, never: never("server") };
      await using kit = testServer<any, any>({ methods, timeoutMs: Infinity });
      kit.server.on("peer", (peer) => {
        follow("server", peer as AnyPeer);
        reach("server peer");
      });
      const options = { ...CLIENTS[kind], methods: { never: never("client") }, timeoutMs: Infinity };
      if ("onOpen" in options) options.onOpen = () => reach("onOpen");
      const client = (await kit.connect(kit.server.url, options as object)) as AnyPeer;
      follow("client", client);
      for (let i = 0; i < 2; i++) await client.request("echo", [i]);
      const pending = [client, ...kit.server.peers].map((peer) =>
        peer.request("never").catch((error: unknown) => error),
      );
      await kit.network.settle();
      isArmed = true;
      kit.network[end]();
      for (let i = 0; i < 20; i++) await pass(250);
      expect(cuts).toBeGreaterThan(0);
      expect([client.state, failures]).toEqual(["open", []]);
      expect(await Promise.all([client.request("echo", ["again"]), pass(10)])).toMatchObject([["again"], undefined]);
      // A session that the client has never heard of expires.
      await pass(61_000);
      expect([...open].filter((peer) => peer !== client)).toEqual([...kit.server.peers]);
      expect(kit.server.peers.size).toBe(1);
      await client.close();
      for (const error of await Promise.all(pending)) expect(error).toMatchObject({ name: "ConnectionLostError" });
    });
  });
});
