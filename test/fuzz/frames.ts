/** Mutated frames against a serving peer. */
import { connect as connectTcp } from "node:net";
import { once } from "node:events";
import { setImmediate as turn } from "node:timers/promises";
import { describe, expect } from "vitest";
import { upgradeText } from "../../bench/attacks/floods.js";
import { connect, serve, type AnyPeer, type Server } from "../../src/node.js";
import { transportWire } from "../conformance/wires.js";
import { expectEmpty } from "../support/pair.js";
import { useVirtualClock } from "../support/time.js";
import { Mutator } from "./mutate.js";
import { canonical, expectReplies, owedTo, waysToWait } from "./reference.js";
import { it, seed, untilQuiet } from "./run.js";
import { methods, served } from "./served.js";

const MAX_BATCH_ENTRIES = 16;
const limits = { maxBatchEntries: MAX_BATCH_ENTRIES, maxMalformedPerMinute: Infinity, maxInFlight: Infinity };

/** Whether the peer makes a call of that id, which is pending for some time. */
const isMade = (id: number): boolean => id >= 1 && id <= 5;

/** Returns the reply to a frame, in each way. */
function repliesTo(frame: string): string[][] {
  return waysToWait(frame, isMade).map((waiting) => {
    const reply = owedTo(frame, served, MAX_BATCH_ENTRIES, waiting);
    return reply === undefined ? [] : [canonical(reply)];
  });
}

const CHUNK = 500;

/** Makes three single calls and two in a batch, ids 1 to 5. Resolves when all are settled. */
function startCalls(peer: AnyPeer): Promise<unknown[]> {
  const batch = peer.batch();
  const calls = [peer, peer, peer, batch, batch].map((caller) => caller.request("ask"));
  batch.send();
  return Promise.allSettled(calls);
}

/** Opens a raw connection that misbehaves in one way, and then ends in one of three ways. */
async function attack(server: Server, mutator: Mutator): Promise<void> {
  const { port } = new URL(server.url);
  const socket = connectTcp(Number(port), "127.0.0.1");
  // A reset is expected.
  socket.on("error", () => {});
  const gone = new Promise((resolve) => socket.once("close", resolve));
  await once(socket, "connect");
  socket.resume();
  const upgrade = upgradeText("127.0.0.1");
  const handshake = mutator.below(4);
  if (handshake === 0) socket.write(mangle(mutator, upgrade));
  else socket.write(handshake === 1 ? upgrade.replace("GET /", "GET /elsewhere") : upgrade);
  if (mutator.below(3) > 0) await turn();
  for (let i = mutator.below(6); i > 0; i--) socket.write(badFrame(mutator));
  if (mutator.below(3) > 0) await turn();
  const ending = mutator.below(4);
  if (ending < 2) socket.resetAndDestroy();
  else if (ending === 2) socket.destroy();
  else socket.end(badFrame(mutator));
  await gone;
}

function mangle(mutator: Mutator, text: string): Buffer {
  const bytes = Buffer.from(text);
  for (let i = mutator.below(4); i >= 0; i--) bytes[mutator.below(bytes.length)] = mutator.below(256);
  return bytes;
}

/** Returns bytes that are a WebSocket frame, almost one, or none. A mask of zero leaves the payload unchanged. */
function badFrame(mutator: Mutator): Buffer {
  if (mutator.below(4) === 0) return mutator.bytes(64);
  const payload = mutator.below(3) === 0 ? mutator.bytes(200) : Buffer.from(mutator.frame());
  const firstByte = mutator.pick([0x81, 0x81, 0x82, 0x01, 0x02, 0x80, 0x00, 0x88, 0x89, 0x8a, 0xc1, 0x83, 0xff]);
  const length = mutator.below(6) === 0 ? mutator.below(65_536) : payload.length;
  const masked = mutator.below(8) === 0 ? 0 : 0x80;
  const header =
    length < 126 ? [firstByte, masked | length] : [firstByte, masked | 126, (length >> 8) & 255, length & 255];
  return Buffer.concat([Buffer.from(header), Buffer.alloc(masked === 0 ? 0 : 4), payload]);
}

export function framesSuite(share: number): void {
  describe("a peer", () => {
    useVirtualClock();
    it("answers each mutated frame with exactly the expected answer", async () => {
      const mutator = new Mutator(seed);
      for (let chunk = 0; chunk < 420 * share; chunk++) {
        // A new peer each time numbers its calls from 1, so that mutated answers match them.
        const wire = await transportWire({ methods, limits });
        const calls = startCalls(wire.peer);
        const frames = Array.from({ length: CHUNK }, () => mutator.frame());
        for (const frame of frames) wire.send(frame);
        await untilQuiet(wire.peer);
        const replies = wire.drain().filter((text) => !text.includes('"method":"ask"'));
        expectReplies(
          frames,
          replies.map((text) => canonical(JSON.parse(text))),
          repliesTo,
        );
        await wire.end();
        expect(await calls).toHaveLength(5);
        expectEmpty(wire.peer);
      }
    });
  });

  it("survives malformed WebSocket frames, broken handshakes and sudden resets", async () => {
    const rounds = 60 * share;
    const mutator = new Mutator(seed + 2);
    const server = await serve({
      port: 0,
      methods,
      limits,
      authenticate: (request) => (request.url === "/nobody" ? null : request.url),
    });
    server.on("error", () => {});
    const peers: AnyPeer[] = [];
    server.on("peer", (peer) => {
      peers.push(peer);
      peer.request("ask").catch(() => {});
    });
    for (let round = 0; round < rounds; round++) {
      await Promise.all(Array.from({ length: 25 }, () => attack(server, mutator)));
      // A well-behaved client is served at the same time.
      const client = await connect(server.url);
      expect(await client.request("echo", [round])).toEqual([round]);
      await client.close();
    }
    await Promise.all(peers.map((peer) => peer.closed));
    expect(peers.length).toBeGreaterThan(5 * rounds);
    expect(server.peers.size).toBe(0);
    for (const peer of peers) expectEmpty(peer);
    await server.close();
  });
}
