/** Floods over one connection: what is processed in one tick, while each reading of the clock takes 1 ms. A benchmark has the times. */
import { once } from "node:events";
import { connect as connectTcp, type Socket } from "node:net";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { FLOODS, METHODS, PIPELINES, upgradeText, type Flood } from "../../bench/attacks/floods.js";
import { connect } from "../support/connect.js";
import { portOf } from "../support/network.js";
import { turn } from "../support/turns.js";
import { target, type Target } from "./support/server.js";

const READ_BYTES = 64 * 1024;
/** A connection is processed for 6 ms, and the clock is read at least for each eighth message. */
const MOST_UNITS = 8 * (6 + 1);

// Time must pass with each reading, so that a part ends although the test cannot act within it. A `virtualClock` stands still there.
beforeEach(() => {
  let readings = 0;
  vi.spyOn(performance, "now").mockImplementation(() => ++readings);
});

type Chunk = Pick<Flood, "chunk" | "units">;

/** Sends a flood while another client is served. Asserts how much arrives in one tick, and that it needed as many ticks as its parts. */
async function flood(on: Target, socket: Socket, one: Chunk, read: () => { bytes: number; isOver: boolean }) {
  const { chunk, units } = one;
  await using other = await connect(on.url);
  const chunks = chunk.length > 2 * READ_BYTES ? 2 : 3;
  let last = read();
  const end = last.bytes + chunks * chunk.length;
  let ticks = 0;
  let mostBytes = 0;
  const counting = (async () => {
    for (; !last.isOver && last.bytes < end; ticks++) {
      await turn();
      const now = read();
      mostBytes = Math.max(mostBytes, now.bytes - last.bytes);
      last = now;
    }
  })();
  socket.write(Buffer.concat(Array<Buffer>(chunks).fill(chunk)));
  do expect(await other.request("here")).toBe(true);
  while (!last.isOver && last.bytes < end);
  await counting;
  socket.destroy();
  expect(mostBytes).toBeGreaterThan(0);
  // A frame that is longer than a read, and the read before it. Without a bound, the system hands over all of a flood.
  expect(mostBytes).toBeLessThanOrEqual(chunk.length + READ_BYTES);
  // The last two reads may have arrived, and not be processed.
  const readUnits = units * (chunks - (2 * READ_BYTES) / chunk.length);
  expect(ticks).toBeGreaterThanOrEqual(Math.floor(readUnits / MOST_UNITS));
}

/** Opens a TCP connection that reads and drops what it gets. The test provokes resets. */
async function connected(url: string): Promise<Socket> {
  const socket = connectTcp(portOf(url), "127.0.0.1").on("error", () => {});
  await once(socket, "connect");
  return socket;
}

describe("a flood over one connection", () => {
  it.each(FLOODS)("is processed in parts, and another client is served: $name", async (one) => {
    await using on = await target({ methods: METHODS });
    on.server.removeAllListeners("error").on("error", () => {});
    const coming = on.next();
    const socket = await connected(on.url);
    socket.write(upgradeText(new URL(on.url).host, ...(one.isPacked ? ["Sec-WebSocket-Protocol: reciproc.v1"] : [])));
    await once(socket, "data");
    socket.resume().write(one.first);
    const peer = await coming;
    await flood(on, socket, one, () => ({ bytes: peer.stats().bytesReceived, isOver: peer.state !== "open" }));
    await peer.close(4000);
  });

  it.each(PIPELINES)("is processed in parts, and another client is served: $name", async (one) => {
    await using on = await target({ methods: METHODS });
    const socket = await connected(on.url);
    socket.resume();
    await vi.waitFor(() => expect(on.sockets.size).toBe(1));
    const [server] = on.sockets;
    await flood(on, socket, one, () => ({ bytes: server!.bytesRead, isOver: server!.destroyed }));
  });
});
