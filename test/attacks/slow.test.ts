import { describe, expect, it, vi } from "vitest";
import { frame, TEXT } from "../../bench/attacks/floods.js";
import type { AnyPeer } from "../../src/node.js";
import { connect } from "../support/connect.js";
import { request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { rawSocket, target } from "./support/server.js";

const MIB = 2 ** 20;
const CAP = 4 * MIB;
const BURST = 8 * CAP;
const LONG = "x".repeat(64 * 1024);
const MESSAGE_BYTES = LONG.length + 200;

/** Returns the most queued bytes of a peer, polled each tick until it is closed or `isEnough` returns true. */
async function mostUnsent(peer: AnyPeer, isEnough: () => boolean = () => false): Promise<number> {
  let most = 0;
  while (peer.state === "open" && !isEnough()) {
    most = Math.max(most, peer.stats().unsentBytes);
    await turn();
  }
  return most;
}

describe("a client that calls and never reads", () => {
  const methods = {
    async *stream() {
      for (;;) yield LONG;
    },
  };

  it.each(["plain", "packed"] as const)(
    "is closed with 1013 at once for 1,024 results of 64 KiB in one tick: eight times maxUnsentBytes and one response are queued at most (%s)",
    async (link) => {
      const answers = gate();
      let waiting = 0;
      const huges = {
        async huge() {
          waiting++;
          await answers.promise;
          return LONG;
        },
      };
      await using on = await target({ methods: huges });
      const isPacked = link === "packed";
      using raw = await rawSocket(on, isPacked ? { "Sec-WebSocket-Protocol": "reciproc.v1" } : {});
      raw.socket.pause();
      const limits = { maxMessageBytes: MIB, logFrames: 4096, logLength: CAP };
      if (isPacked) await raw.write(frame(TEXT, JSON.stringify({ hello: { session: true, limits } })));
      const calls = Array.from({ length: 1024 }, (_, id) => request(id, "huge"));
      await raw.write(Buffer.concat(calls.map((one) => frame(TEXT, JSON.stringify(isPacked ? [one] : one)))));
      await vi.waitFor(() => expect(waiting).toBe(1024));
      answers.resolve();
      const most = await mostUnsent(raw.peer, () => raw.peer.stats().running === 0);
      expect(most).toBeLessThanOrEqual(BURST + MESSAGE_BYTES);
      // The client disconnects without an answer to the close.
      raw.socket.destroy();
      expect(await raw.peer.closed).toMatchObject({ code: 1013, reason: expect.stringContaining(`${BURST} bytes`) });
    },
  );

  it("gets a quarter of maxUnsentBytes and one reply of its streams, whose sources are returned at its end", async () => {
    await using on = await target({ methods });
    using raw = await rawSocket(on);
    raw.socket.pause();
    const texts = Array.from({ length: 200 }, (_, id) => request(id, "stream")).concat(
      Array.from({ length: 200 }, (_, i) => request(`n${i}`, "$/enumerator/next", { token: i + 1 })),
    );
    for (const text of texts) await raw.write(frame(TEXT, JSON.stringify(text)));
    const isFull = ({ requestsReceived, unsentBytes } = raw.peer.stats()): boolean =>
      requestsReceived === 400 && unsentBytes > CAP / 4;
    const most = await mostUnsent(raw.peer, isFull);
    await using other = await connect(on.url);
    expect(await other.request("here")).toBe(true);
    // The system buffers more, and the 200 responses without values are added.
    expect(Math.max(most, raw.peer.stats().unsentBytes)).toBeLessThanOrEqual(CAP / 4 + 2 * MESSAGE_BYTES);
    expect(raw.peer.stats()).toMatchObject({ running: 0, streams: 200 });
    raw.socket.destroy();
    await raw.peer.closed;
    expect(raw.peer.stats()).toMatchObject({ running: 0, streams: 0 });
  });
});
