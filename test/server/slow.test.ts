import { expect, it, vi } from "vitest";
import { frame, frameHead, PONG, TEXT } from "../../bench/attacks/floods.js";
import { serve, Subscriptions, type ServerContext } from "../../src/node.js";
import { rawSocket, target } from "../attacks/support/server.js";
import { plainPeer } from "../support/network.js";
import { request } from "../support/raw.js";
import { pass, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

const TIMES = { intervalMs: 100, deadAfterMs: 200 };

it.each<[string, typeof TIMES | false, parts: readonly Buffer[]]>([
  ["is silent is cut, and its close gives the reason", TIMES, []],
  ["is silent stays without a heartbeat", false, []],
  ["answers pings stays until it stops", TIMES, Array<Buffer>(5).fill(frame(PONG, ""))],
  [
    "sends a message slowly stays until it stops",
    TIMES,
    [frameHead(TEXT, 2_000), ...Array<Buffer>(5).fill(Buffer.alloc(100))],
  ],
])("a peer that %s", async (_what, heartbeat, parts) => {
  await using on = await target({ heartbeat });
  using raw = await rawSocket(on);
  const { peer } = raw;
  let bytes = peer.stats().bytesReceived;
  for (const part of parts) {
    await raw.write(part);
    bytes += part.length;
    while (peer.state === "open" && peer.stats().bytesReceived < bytes) await turn();
    await pass(150);
    expect(peer.state).toBe("open");
  }
  await pass(250);
  await turn();
  if (heartbeat === false) return expect(peer.state).toBe("open");
  expect(await peer.closed).toMatchObject({
    code: 1006,
    error: { message: expect.stringContaining("received for 2") },
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
