import { expect, it } from "vitest";
import { frame, frameHead, PONG, TEXT } from "../../bench/attacks/floods.js";
import { rawSocket, target } from "../attacks/support/server.js";
import { pass, turn, until, useVirtualClock } from "../support/time.js";

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
  let pings = 0;
  raw.socket.on("data", (data: Buffer) => (pings += data.toString("latin1").split("\x89\0").length - 1));
  let bytes = peer.stats().bytesReceived;
  for (const part of parts) {
    await raw.write(part);
    bytes += part.length;
    while (peer.state === "open" && peer.stats().bytesReceived < bytes) await turn();
    await pass(150);
    expect(peer.state).toBe("open");
  }
  await until(() => parts.length === 0 || pings > 0);
  await pass(250);
  await turn();
  if (heartbeat === false) return expect(peer.state).toBe("open");
  expect(await peer.closed).toMatchObject({
    code: 1006,
    error: { message: expect.stringContaining("received for 2") },
  });
});
