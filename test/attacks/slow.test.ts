import { describe, expect, it, vi } from "vitest";
import type { AnyPeer, ServerContext } from "../../src/node.js";
import { inspect } from "../../src/peer/peer.js";
import { portOf } from "../support/network.js";
import { request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";
import { attacker } from "./support/attacker.js";
import { floodBeside } from "./support/bystander.js";
import { expectKept, MIB } from "./support/memory.js";
import { frame, rawSocket, target, TEXT, upgradeText } from "./support/server.js";

const CAP = 4 * MIB;
/** The queue limit. */
const BURST = 8 * CAP;
const LONG = "x".repeat(64 * 1024);
/** The size of a message with that text, with its envelope and its frame. */
const MESSAGE_BYTES = LONG.length + 200;

/** The number of notifications. 10,000 take a minute. */
const NOTIFICATIONS = Number(process.env["RECIPROC_SLOW_NOTIFICATIONS"] ?? 1000);
const READERS = 99;

/** Returns the most queued bytes of a peer, polled each tick until it is closed or `isEnough` returns true. */
async function mostUnsent(peer: AnyPeer, isEnough: () => boolean = () => false): Promise<number> {
  let most = 0;
  while (peer.state === "open" && !isEnough()) {
    most = Math.max(most, peer.stats().unsentBytes);
    await turn();
  }
  return most;
}

describe("a client that never reads beside 99 that do", () => {
  it(
    `gets half of maxUnsentBytes of ${NOTIFICATIONS} broadcasts of 64 KiB, and the 99 get every byte`,
    { timeout: 300_000 },
    async () => {
      // The readers only read: they answer no pings.
      await using on = await target({ heartbeat: false });
      using slow = await rawSocket(on);
      slow.socket.pause();
      await using readers = await attacker();
      const text = JSON.stringify({ jsonrpc: "2.0", method: "n", params: [LONG] });
      const frameBytes = 10 + text.length;
      await readers.read({
        port: portOf(on.url),
        connections: READERS,
        text: upgradeText(on.url),
        bytes: NOTIFICATIONS * frameBytes,
      });
      await vi.waitFor(() => expect(on.server.peers.size).toBe(READERS + 1));
      const others = on.peers.filter((peer) => peer !== slow.peer);
      let mostUnsentBytes = 0;
      let mostResident = process.memoryUsage().rss;
      const residentBefore = mostResident;
      for (let i = 0; i < NOTIFICATIONS; i++) {
        on.server.peers.notify("n", [LONG]);
        mostUnsentBytes = Math.max(mostUnsentBytes, slow.peer.stats().unsentBytes);
        // As fast as the readers read, and no faster.
        do await turn();
        while (others.some((peer) => peer.stats().unsentBytes > MIB));
        if (i % 20 === 0) mostResident = Math.max(mostResident, process.memoryUsage().rss);
      }
      expect(await readers.allRead()).toEqual(Array(READERS).fill(NOTIFICATIONS * frameBytes));
      expect(mostUnsentBytes).toBeGreaterThan(CAP / 2);
      expect(mostUnsentBytes).toBeLessThanOrEqual(CAP / 2 + MESSAGE_BYTES);
      const { dropped, notificationsSent } = slow.peer.stats();
      expect(dropped).toBeGreaterThan(0);
      expect(dropped + notificationsSent).toBe(NOTIFICATIONS);
      expect(slow.peer.state).toBe("open");
      for (const peer of others) expect(peer.stats()).toMatchObject({ dropped: 0, notificationsSent: NOTIFICATIONS });
      // The queues of 99 readers, and the garbage of the collector.
      expect((mostResident - residentBefore) / MIB).toBeLessThan(READERS + 200);
    },
  );
});

describe("a client that calls and never reads", () => {
  const methods = {
    long: () => LONG,
    async *stream() {
      for (;;) yield LONG;
    },
    async report(_params: unknown, { progress, signal }: ServerContext) {
      while (!signal.aborted) {
        progress(LONG);
        await turn();
      }
    },
  };

  it.each(["plain", "packed"] as const)(
    "is closed with 1013 at once for 1,024 results of 1 MiB in one tick: eight times maxUnsentBytes and one response are queued at most (%s)",
    async (link) => {
      const huge = "x".repeat(MIB - 100);
      const answers = gate();
      let waiting = 0;
      const huges = {
        async huge() {
          waiting++;
          await answers.promise;
          return huge;
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
      const most = await mostUnsent(raw.peer, () => inspect(raw.peer).running === 0);
      expect(most).toBeLessThanOrEqual(BURST + 2 * MIB);
      // The client disconnects without an answer to the close.
      raw.socket.destroy();
      expect(await raw.peer.closed).toMatchObject({
        code: 1013,
        reason: `more than ${BURST} bytes wait to be read`,
      });
    },
  );

  it("is closed with 1013 for progress, and the handler that reports it is aborted", async () => {
    await using on = await target({ methods });
    using raw = await rawSocket(on);
    raw.socket.pause();
    await raw.write(frame(TEXT, JSON.stringify(request(1, "report", { workDoneToken: 1 }))));
    const most = await mostUnsent(raw.peer);
    expect(most).toBeGreaterThan(CAP);
    expect(most).toBeLessThanOrEqual(BURST + MESSAGE_BYTES);
    await vi.waitFor(() => expect(inspect(raw.peer)).toMatchObject({ running: 0, progress: 0 }));
  });

  it("gets a quarter of maxUnsentBytes and one reply of its streams, whose sources are returned at its end", async () => {
    await using on = await target({ methods });
    using raw = await rawSocket(on);
    raw.socket.pause();
    const texts = Array.from({ length: 200 }, (_, id) => request(id, "stream")).concat(
      Array.from({ length: 200 }, (_, i) => request(`n${i}`, "$/enumerator/next", { token: i + 1 })),
    );
    for (const text of texts) await raw.write(frame(TEXT, JSON.stringify(text)));
    let turns = 0;
    const most = await mostUnsent(raw.peer, () => ++turns > 500);
    // The system buffers more, and the 200 responses without values are added.
    expect(most).toBeGreaterThan(CAP / 4);
    expect(most).toBeLessThanOrEqual(CAP / 4 + 2 * MESSAGE_BYTES);
    expect(inspect(raw.peer)).toMatchObject({ running: 0, streams: 200 });
    raw.socket.destroy();
    await raw.peer.closed;
    expect(inspect(raw.peer)).toMatchObject({ running: 0, streams: 0 });
  });

  it("delays no other client, and leaves nothing at its end", async () => {
    await using attack = await attacker();
    await using on = await target({ methods });
    await expectKept(4 * MIB, async () => {
      const texts = ['{"jsonrpc":"2.0","id":$i,"method":"long"}', '{"jsonrpc":"2.0","id":$i,"method":"stream"}'];
      await floodBeside(attack, { url: on.url, texts, burst: 1, everyMs: 4, reads: false, connections: 2 });
      const peers = on.peers.splice(0);
      await Promise.all(peers.map((peer) => peer.closed));
      for (const peer of peers) expect(inspect(peer)).toMatchObject({ pending: 0, running: 0, streams: 0 });
    });
  });
});
