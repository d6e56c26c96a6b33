/** Clients over sockets that are silent, and that subscribe often. */
import { expect, it, vi } from "vitest";
import { serve, Subscriptions, type ServerContext } from "../../src/node.js";
import { plainPeer, sendUpgrade } from "../support/network.js";
import { request } from "../support/raw.js";
import { pass, useVirtualClock } from "../support/time.js";
import { nextPeer } from "./by-hand.js";

useVirtualClock();

it("a peer that does not answer pings is cut, and its close gives the reason", async () => {
  await using server = await serve({ port: 0, heartbeat: { intervalMs: 100, deadAfterMs: 200 } });
  const arrived = nextPeer(server);
  (await sendUpgrade(server.url)).pause();
  const peer = await arrived;
  await pass(200);
  expect(await peer.closed).toMatchObject({
    code: 1006,
    error: { message: expect.stringContaining("heard for 200") },
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
