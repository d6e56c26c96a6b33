/** Clients over sockets that read slowly or not at all, that are silent, and that subscribe often. */
import { describe, expect, it, vi } from "vitest";
import { serve, Subscriptions, type Server, type ServerContext } from "../../src/node.js";
import { plainPeer, sendUpgrade } from "../support/network.js";
import { request } from "../support/raw.js";
import { pass, useVirtualClock } from "../support/time.js";
import { turn } from "../support/turns.js";
import { nextPeer } from "./by-hand.js";

const CAP = 512 * 1024;
const LIMITS = { maxUnsentBytes: CAP, maxReplyBytes: CAP };
const LONG = "x".repeat(64 * 1024);

useVirtualClock();

/** Connects a client that never reads. Returns its socket and the server's peer for it. */
async function slowReader(server: Server) {
  const arrived = nextPeer(server);
  const socket = await sendUpgrade(server.url);
  const peer = await arrived;
  socket.pause();
  return { peer, socket };
}

describe("a peer that never reads", () => {
  it("is closed by a broadcast if `whenSlow` says so", async () => {
    await using server = await serve({ port: 0, limits: LIMITS });
    const { peer, socket } = await slowReader(server);
    for (let i = 0; i < 500 && peer.state === "open"; i++) {
      server.peers.notify("n", [LONG], { whenSlow: "close" });
      await turn();
    }
    expect([peer.state, peer.stats().dropped]).toEqual(["closed", 0]);
    socket.destroy();
    await peer.closed;
    const bad = (): unknown => server.peers.notify("n", [], { whenSlow: "wait" as never });
    expect(bad).toThrow(TypeError);
    expect(bad).toThrow("`whenSlow`");
  });
});

describe("a peer that does not answer pings", () => {
  const heartbeat = { intervalMs: 100, deadAfterMs: 200 };

  it("is cut, and its close gives the reason", async () => {
    await using server = await serve({ port: 0, heartbeat });
    const { peer } = await slowReader(server);
    await pass(200);
    expect(await peer.closed).toMatchObject({
      code: 1006,
      error: { message: expect.stringContaining("heard for 200") },
    });
  });
});

it("sends one ping for all that subscribe in 5 ms, so a client of `ws` with default options can do it 300 times at once", async () => {
  const kind = new Subscriptions<number>({ method: "said", limits: { maxPerPeer: 300 } });
  const subscribe = (_params: unknown, context: ServerContext): string => {
    const { id, notify } = kind.open(context);
    notify(1);
    return id as string;
  };
  await using server = await serve({ port: 0, methods: { subscribe } });
  using client = await plainPeer(server.url);
  let pings = 0;
  client.webSocket.on("ping", () => pings++);
  for (let i = 0; i < 300; i++) client.webSocket.send(JSON.stringify(request(i, "subscribe")));
  const count = (member: string): number => client.received.filter((text) => text.includes(`"${member}":`)).length;
  await vi.waitFor(() => expect([count("id"), count("method") > 0, pings]).toEqual([300, true, 1]));
  await pass(5);
  await vi.waitFor(() => expect([count("id"), count("method"), pings]).toEqual([300, 300, 2]));
});
