/** The memory of `latest` for many slow peers: one text, and one reference for each peer. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { peerLimits } from "../../src/core/limits.js";
import type { Socket, SocketHandler } from "../../src/link/socket.js";
import { serve, type AnyPeer, type Server } from "../../src/node.js";
import { Sessions } from "../../src/server/sessions.js";
import { endpointLimits } from "../../src/session/sizes.js";
import { bytesKept, expectKept, MIB } from "./support/memory.js";

const PEERS = 10_000;
const MOVES = 30;
const TEXT_LENGTH = 100_000;
/** The queue of a peer with one reference. */
const MOST_EACH = 1024;

/** A socket that nothing reads. */
class Unread implements Socket {
  maxFrameBytes = 0;
  readonly open = true;
  unsentBytes = 0;
  #handler: SocketHandler | undefined;

  start(handler: SocketHandler): void {
    this.#handler = handler;
  }

  send(): boolean {
    return true;
  }

  close(): void {}
  discard(): void {}

  cut(): void {
    this.#handler!.closed({ code: 1006, reason: "" });
  }
}

let server: Server;
let sessions: Sessions;
const sockets: Unread[] = [];

beforeAll(async () => {
  server = await serve({ noServer: true });
  let tokens = 0;
  sessions = new Sessions({
    limits: endpointLimits(peerLimits(undefined)),
    ttlMs: 600_000,
    makeToken: () => `token ${++tokens}`,
    hash: (token) => token,
    maxSuspendedPerPrincipal: PEERS,
    maxHeldLength: 2 ** 26,
  });
  for (let i = 0; i < PEERS; i++) {
    const socket = new Unread();
    sockets.push(socket);
    const peer: AnyPeer = server.accept(sessions.link(socket, undefined), undefined);
    server.topic("all").add(peer);
  }
});

afterAll(async () => {
  for (const peer of server.peers) void peer.close();
  await server.close();
});

/** Sends each position of a cursor to all peers. */
function move(n: number): void {
  const at = String(n).padStart(TEXT_LENGTH, "x");
  for (let i = 0; i < MOVES; i++) server.topic("all").notify("moved", [at, i], { latest: "ann" });
}

describe(`one cursor that moves ${MOVES} times, beside ${PEERS} peers`, () => {
  it("that read nothing, costs one text and one reference for each", { timeout: 120_000 }, async () => {
    for (const socket of sockets) socket.unsentBytes = MIB;
    // This one finds each socket full.
    server.topic("all").notify("first");
    await bytesKept();
    await expectKept(PEERS * MOST_EACH, async () => move(1));
    expect(server.stats().dropped).toBe(0);
  });

  it("that are suspended, costs the same, and counts once in `suspendedBytes`", { timeout: 120_000 }, async () => {
    for (const socket of sockets) socket.cut();
    expect(sessions.suspended).toBe(PEERS);
    move(2);
    // The text, and the cost of a queued message for each peer.
    const once = TEXT_LENGTH + 100;
    const queued = sessions.held - once;
    expect(queued).toBeLessThan(PEERS * 2 * 64 + PEERS * 60);
    await expectKept(MIB, async () => move(3));
    expect(server.stats().dropped).toBe(0);
    expect([...server.peers].every((peer) => peer.state === "suspended")).toBe(true);
  });
});
