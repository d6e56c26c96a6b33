/**
 * A live session: one peer is away while others move many times a second. It must resume the same session, and get all
 * important messages in order, and one position of each of the others.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { connect, serve, type AnyPeer } from "../../src/node.js";
import { Proxy } from "../faults/proxy.js";

/** Important messages in a second: half of them to the topic, half to the peer alone. */
const IMPORTANT_HZ = 4;
/** A client that was refused for long waits up to 20 s before its next attempt. */
const PATIENCE_MS = 30_000;
/** How long messages flow before the peer is cut, and after it is back. */
const FLOWING_MS = 1_000;

/**
 * Plays one live session, in which `movers` peers move `hz` times a second, and one is away for `awayMs`. Calls `broken` for each
 * event that must never happen. Rejects if what it waits for does not happen.
 */
export async function playLive(
  { movers, hz, awayMs }: { movers: number; hz: number; awayMs: number },
  broken: (what: string) => void,
) {
  const figures = {
    /** Positions that the others sent while the peer was away, and those of them that it got when it was back. */
    moves: 0,
    positions: 0,
    /** Important messages that were sent while the peer was away, and those of them that it got. */
    importantSent: 0,
    importantArrived: 0,
    /** By how much the length grew that the server stores for the suspended peer. Its replay log is part of it from the start. */
    queuedLength: 0,
  };

  await using server = await serve({
    port: 0,
    session: { ttlMs: awayMs + 2 * PATIENCE_MS },
    methods: {
      join: (_params: unknown, { peer }: { peer: AnyPeer }) => void server.topic("live").add(peer),
      moved: ({ name, n }: { name: string; n: number }, { peer }: { peer: AnyPeer }) =>
        server.topic("live").notify("moved", { name, n }, { latest: name, except: peer }),
    },
  });
  server.on("missed", (_peer, method) => broken(`a message of ${method} was dropped`));
  server.on("error", (error) => broken(`the server reports ${String(error)}`));
  const proxy = await Proxy.listen(() => Number(new URL(server.url).port));

  /**
   * The last position of each peer that moves, as it sent it and as the watcher got it, and the last before the watcher was away.
   * `count`: how many the watcher got of those that were sent since then.
   */
  const sent = new Map<string, number>();
  const got = new Map<string, { n: number; count: number }>();
  let sentBefore = new Map<string, number>();
  let heard = 0;
  const watcher: AnyPeer = await connect(`ws://127.0.0.1:${proxy.port}`, {
    methods: {
      moved: ({ name, n }: { name: string; n: number }) => {
        const { n: before = 0, count = 0 } = got.get(name) ?? {};
        if (n <= before) broken(`position ${n} of ${name} came after ${before}`);
        got.set(name, { n, count: n > (sentBefore.get(name) ?? Infinity) ? count + 1 : count });
      },
      said: ({ n }: { n: number }) => {
        if (n !== heard + 1) broken(`important message ${n} came after ${heard}`);
        heard = n;
      },
    },
  } as never);
  watcher.on("lost", (error) => broken(`the session was lost: ${error.message}`));
  watcher.on("missed", ({ count }) => broken(`${count} messages were reported as missed`));
  await watcher.request("join");
  const [serverPeer] = server.peers as Iterable<AnyPeer>;

  const others = await Promise.all(
    Array.from({ length: movers }, async (_, index) => {
      const peer: AnyPeer = await connect(server.url, { methods: { moved: () => {}, said: () => {} } } as never);
      await peer.request("join");
      return { peer, name: `peer ${index}` };
    }),
  );
  let isMoving = true;
  let spoken = 0;
  const timers = [
    setInterval(() => {
      for (const { peer, name } of isMoving ? others : []) {
        const n = (sent.get(name) ?? 0) + 1;
        sent.set(name, n);
        peer.notify("moved", { name, n }, { latest: name });
      }
    }, 1000 / hz),
    setInterval(() => {
      if (!isMoving) return;
      const n = ++spoken;
      (n % 2 === 0 ? serverPeer! : server.topic("live")).notify("said", { n });
    }, 1000 / IMPORTANT_HZ),
  ];
  const until = async (what: string, holds: () => boolean): Promise<void> => {
    const deadline = performance.now() + PATIENCE_MS;
    while (!holds() && performance.now() < deadline) await sleep(5);
    if (!holds()) throw new Error(`it did not come to be that ${what}`);
  };

  try {
    await sleep(FLOWING_MS);
    proxy.refusals = Infinity;
    proxy.newest?.cut();
    await until("both sides know that the peer is away", () =>
      [watcher, serverPeer!].every(({ state }) => state === "suspended"),
    );
    // What was on its way when the connection was cut is not counted: the session sends it again as it was.
    sentBefore = new Map(sent);
    const [movesBefore, spokenBefore] = [sum(sent.values()), spoken];
    const { suspendedBytes: logged } = server.stats();
    for (const end = performance.now() + awayMs; performance.now() < end; await sleep(100)) {
      figures.queuedLength = Math.max(figures.queuedLength, server.stats().suspendedBytes - logged);
    }
    // What is queued is counted before anyone moves again.
    isMoving = false;
    await Promise.all(others.map(({ peer }) => peer.request("join")));
    figures.moves = sum(sent.values()) - movesBefore;
    figures.importantSent = spoken - spokenBefore;
    proxy.refusals = 0;
    await until("the peer is back, with all important messages", () => watcher.state === "open" && heard === spoken);
    await watcher.request("join");
    figures.importantArrived = heard - spokenBefore;
    for (const [name, n] of sent) {
      const { n: last, count } = got.get(name) ?? { n: 0, count: 0 };
      figures.positions += count;
      if (last !== n) broken(`the last position of ${name} is ${last}, not ${n}`);
    }
    if (figures.positions !== movers) broken(`${figures.positions} positions of ${movers} peers arrived`);
    const { importantSent, importantArrived } = figures;
    if (importantArrived !== importantSent)
      broken(`${importantArrived} of ${importantSent} important messages arrived`);
    if (server.stats().resumed !== 1) broken(`${server.stats().resumed} sessions were resumed`);
    if (serverPeer!.state !== "open") broken("the server has another peer");
    isMoving = true;
    await sleep(FLOWING_MS);
    isMoving = false;
    await Promise.all(others.map(({ peer }) => peer.request("join")));
    await until(
      "everything has arrived",
      () => heard === spoken && [...sent].every(([name, n]) => got.get(name)?.n === n),
    );
  } finally {
    timers.forEach(clearInterval);
    await Promise.all([watcher, ...others.map(({ peer }) => peer)].map((peer) => peer.close()));
    await proxy.close();
  }
  return figures;
}

function sum(numbers: Iterable<number>): number {
  return [...numbers].reduce((total, one) => total + one, 0);
}
