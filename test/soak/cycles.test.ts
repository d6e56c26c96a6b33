/** Opens and closes many connections, to detect objects that are kept for one of them after its end. */
import type { Socket } from "node:net";
import { expect, it } from "vitest";
import { connect, serve, type AnyPeer, type Server, type ServerContext } from "../../src/node.js";
import { bareHttp } from "../support/network.js";
import { objectsKept } from "../support/objects.js";
import { postRaw } from "../support/post.js";
import { request } from "../support/raw.js";
import { useVirtualClock } from "../support/time.js";

// It counts the timers of the test. The test runner has others.
useVirtualClock();

const CYCLES = 2_000;
const WARM_UP = 500;
const AT_ONCE = 16;

const TOPICS = ["news", "sport", "weather"];
/** Outlives every call that uses it: a listener left on it is a leak. */
const neverAborts = new AbortController().signal;

/** How many handlers were to hang, began to, and were aborted. */
const hangs = { asked: 0, begun: 0, aborted: 0 };
const sockets = new WeakMap<AnyPeer, Socket>();

const methods = {
  echo: (params: unknown) => params,
  hang: (_params: unknown, { signal }: ServerContext) => {
    hangs.begun++;
    return new Promise((resolve) => {
      signal.addEventListener("abort", () => {
        hangs.aborted++;
        resolve("too late");
      });
    });
  },
  closeMe: (_params: unknown, { peer }: ServerContext) => void peer.close(4000, "as you like"),
  cut: (_params: unknown, { peer }: ServerContext) => void sockets.get(peer)!.destroy(),
  reset: (_params: unknown, { peer }: ServerContext) => void sockets.get(peer)!.resetAndDestroy(),
  /** Makes a call back to the client that is never answered. */
  callMe: (_params: unknown, { peer }: ServerContext) => peer.request("never"),
};

/** How a connection ends: each way leaves calls in flight on one side or both. */
const ENDS: ((peer: AnyPeer) => Promise<unknown>)[] = [
  (peer) => peer.close(),
  (peer) => peer.request("closeMe").catch(() => peer.closed),
  (peer) => peer.request("reset").catch(() => peer.closed),
  (peer) => duringCalls(peer, () => peer.notify("reset")),
  (peer) => duringCalls(peer, () => peer.notify("cut")),
  (peer) => duringCalls(peer, () => void peer.close(4001)),
];

/** Ends a connection while handlers run on both sides. Every call must reject as lost. */
async function duringCalls(peer: AnyPeer, end: () => unknown): Promise<void> {
  const batch = peer.batch();
  const calls = [
    peer.request("hang", undefined, { timeoutMs: 30_000 }),
    peer.request("callMe", undefined, { signal: neverAborts }),
    batch.request("hang"),
  ].map((call) => call.catch((error: unknown) => error));
  batch.send();
  hangs.asked += 2;
  // The response comes after the earlier handlers have started.
  await peer.request("echo", []);
  end();
  for (const lost of await Promise.all(calls))
    expect(lost).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
}

async function cycle(server: Server, url: string, index: number): Promise<void> {
  const own = { never: () => new Promise(() => {}) };
  const peer = (await connect(url, { link: "plain", reconnect: false, methods: own } as object)) as AnyPeer;
  expect(await peer.request("echo", [index])).toEqual([index]);
  expect(await postRaw(url, JSON.stringify(request(1, "echo", [index])))).toMatchObject({ status: 200 });
  server.topic(TOPICS[index % TOPICS.length]!).notify("news", { index });
  await ENDS[index % ENDS.length]!(peer);
  await peer.closed;
  expect(peer.stats().pending).toBe(0);
}

async function runCycles(server: Server, url: string, from: number, to: number): Promise<void> {
  let next = from;
  const work = async (): Promise<void> => {
    while (next < to) await cycle(server, url, next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  // The server ends later than the client.
  await Promise.all([...server.peers].map((peer) => peer.closed));
}

/** Returns how many sockets and the like keep the process alive. */
const resources = (): number => process.getActiveResourcesInfo().filter((kind) => kind !== "Timeout").length;

it(`keeps nothing of ${CYCLES} connections, however they ended`, async () => {
  await using listening = await bareHttp();
  const http = listening.server;
  const { url } = listening;
  const counts = (): unknown => http.eventNames().map((name) => [name, http.listenerCount(name)]);
  const listeners = counts();
  const resourcesBefore = resources();

  const server = await serve({ server: http, methods });
  server.on("peer", (peer, { socket }) => {
    sockets.set(peer, socket);
    for (const name of TOPICS) server.topic(name).add(peer);
  });

  await runCycles(server, url, 0, WARM_UP);
  const before = await objectsKept(6);
  await runCycles(server, url, WARM_UP, CYCLES);
  const grown = (await objectsKept(6)) - before;

  expect(server.peers.size).toBe(0);
  expect(TOPICS.map((name) => server.topic(name).size)).toEqual([0, 0, 0]);
  const { asked, begun, aborted } = hangs;
  expect([begun, aborted]).toEqual([asked, asked]);

  process.stdout.write(`${grown} objects more after ${CYCLES - WARM_UP} cycles\n`);
  expect(grown).toBeLessThan((CYCLES - WARM_UP) / 10);

  await server.close();
  expect(counts()).toEqual(listeners);
  expect(resources()).toBeLessThanOrEqual(resourcesBefore);
});
