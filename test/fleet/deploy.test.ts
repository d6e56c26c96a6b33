/** A deployment: three processes over one Redis are replaced, one after the other, while 200 clients call and publish. */
import { nanoid } from "nanoid";
import { expect, it } from "vitest";
import { attach } from "../../src/node.js";
import { redis } from "../../src/redis/index.js";
import { RedisServer } from "../support/redis.js";
import { DeployClient } from "./deploy/client.js";
import { Balancer, NodeProcess, type NodeReports } from "./deploy/node.js";

const CLIENTS = 200;
const ROOMS = 10;
const ROUTES = ["n1", "n2", "n3"];
/** Each client makes a call in this time. */
const CALL_EVERY_MS = 300;
/** How long all nodes serve between two replacements. */
const BETWEEN_MS = 700;
/** Sockets that are cut without a drain, before each replacement: first so that their sessions are resumed, and then elsewhere. */
const CUTS = 20;
const POLL = { timeout: 20_000, interval: 50 };
/** Less than 13.3 s, after which the members of a node that has not removed them would be gone, and the 60 s of an abandoned session. */
const MEMBERS_POLL = { timeout: 5_000, interval: 50 };

const roomOf = (i: number): string => `room:${i % ROOMS}`;
const nameOf = (i: number): string => `user${i}`;
const namesIn = (room: string): string[] =>
  Array.from({ length: CLIENTS }, (_, i) => i).flatMap((i) => (roomOf(i) === room ? [nameOf(i)] : []));
const sorted = (names: readonly unknown[]): unknown[] => {
  const copy = [...names];
  copy.sort((a, b) => (String(a) < String(b) ? -1 : 1));
  return copy;
};
const delay = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Returns how often each of these occurs. */
function countsOf(ids: readonly number[]): Map<number, number> {
  const counts = new Map<number, number>();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  return counts;
}

/** What a test has started, closed in reverse order. */
class Closing implements AsyncDisposable {
  readonly #closers: (() => Promise<unknown>)[] = [];

  add(close: () => Promise<unknown>): void {
    this.#closers.unshift(close);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const close of this.#closers) await close();
  }
}

it("a deployment settles every call with its true outcome, loses no publication, and lists no member twice", async () => {
  await using broker = await RedisServer.create();
  const prefix = `test-${nanoid(8)}`;
  const settings = { url: broker.url, prefix };
  const reports: NodeReports = { ran: [], errors: [] };
  await using balancer = await Balancer.create();
  await using started = new Closing();
  const start = async (route: string): Promise<NodeProcess> => {
    const node = await NodeProcess.start(route, settings, reports);
    started.add(() => node[Symbol.asyncDispose]());
    return node;
  };
  const nodes = await Promise.all(ROUTES.map(start));
  for (const node of nodes) balancer.add(node);
  const clients = Array.from({ length: CLIENTS }, (_, i) => new DeployClient(nameOf(i), roomOf(i), namesIn(roomOf(i))));
  started.add(() => Promise.all(clients.map((client) => client.close())));
  await Promise.all(clients.map((client) => client.open(balancer.url)));
  for (const client of clients) client.run(CALL_EVERY_MS);

  // A client that loses its socket between two sessions may be listed twice (RELIABILITY.md, "Several nodes"). So each cut waits.
  const untilOpen = async (): Promise<void> =>
    await expect.poll(() => clients.filter(({ peer }) => peer.state !== "open").length, POLL).toBe(0);
  const cut = async (isBlind: boolean): Promise<void> => {
    await delay(BETWEEN_MS);
    await untilOpen();
    balancer.isBlind = isBlind;
    balancer.cut(CUTS);
  };

  const codes: unknown[] = [];
  for (const [i, node] of nodes.entries()) {
    await cut(false);
    await cut(true);
    await delay(BETWEEN_MS);
    await untilOpen();
    balancer.isBlind = false;
    // The balancer may know of a drain, or learn of it when the process has ended: then the node refuses clients with 503.
    if (i !== 1) balancer.remove(node);
    codes.push(await node.drain());
    balancer.remove(node);
    balancer.add(await start(node.route));
  }
  await delay(BETWEEN_MS);
  await untilOpen();
  await Promise.all(clients.map((client) => client.stop()));

  expect([codes, reports.errors]).toEqual([[0, 0, 0], []]);
  // Every client was on a node that was replaced, and sockets that were only cut found their session again.
  expect(clients.filter(({ lost }) => lost === 0)).toEqual([]);
  expect(clients.filter(({ resumed }) => resumed > 0).length).toBeGreaterThan(CUTS);
  expect(balancer.routed).toBeGreaterThan(CUTS);

  // Calls. `ran` has each id that a handler has begun with.
  const calls = clients.flatMap((client) => client.calls);
  expect(calls.length).toBeGreaterThan(1_000);
  const ran = countsOf(reports.ran);
  const served = countsOf(clients.flatMap((client) => client.served));
  const untrue = calls.filter(({ id, method, settled, value }) => {
    const times = ran.get(id) ?? 0;
    if (settled === "result" && times !== 1) return true;
    if (settled === "not-sent" && times !== 0) return true;
    if (settled === "unknown" && times > 1) return true;
    if (settled === "error" || settled === undefined) return true;
    if (method === "add") return settled === "result" && value !== id + 1;
    if (method === "say") return settled === "result" && typeof value !== "string";
    // The same for the call that the handler made.
    const inner = served.get(id) ?? 0;
    if (settled !== "result") return inner > times;
    return "result" in value ? inner !== 1 : value.outcome === "not-sent" ? inner !== 0 : inner > 1;
  });
  expect(untrue).toEqual([]);
  expect(calls.filter(({ settled }) => settled === "result").length).toBeGreaterThan(calls.length * 0.9);

  // Publications and members.
  await using worker = await attach({
    engine: redis(settings),
    topics: () => ({ log: { length: 5_000, ttlMs: 600_000 }, members: true }),
  });
  for (const room of Array.from({ length: ROOMS }, (_, i) => roomOf(i))) {
    const topic = worker.topic(room);
    const inRoom = clients.filter((client) => client.room === room);
    const { at: top, entries } = await topic.read({ limit: 1_000 });
    await expect.poll(() => inRoom.map(({ since }) => since), POLL).toEqual(inRoom.map(() => top));
    const logged = entries.map(({ at, params }) => [(params as { id: number }).id, at] as const);
    const atOf = new Map(logged);
    expect(atOf.size).toBe(logged.length);
    for (const { id, method, settled, value } of inRoom.flatMap((client) => client.calls)) {
      if (method !== "say") continue;
      if (settled === "result") expect(atOf.get(id)).toBe(value);
      if (settled === "not-sent") expect(atOf.has(id)).toBe(false);
    }
    const ids = logged.map(([id]) => id);
    for (const client of inRoom) {
      const { ids: seen, gaps, faults } = client.seen();
      expect(faults).toEqual([]);
      // The log had room for everything, so there was no gap, and each client has all of it from its first visit on.
      expect(gaps).toBe(0);
      expect(seen).toEqual(ids.slice(ids.length - seen.length));
    }
    const expected = sorted(namesIn(room));
    const names = async (): Promise<unknown[]> => sorted((await topic.members()).map(({ as }) => as));
    await expect.poll(names, MEMBERS_POLL).toEqual(expected);
    for (const { peer } of inRoom.slice(0, 6)) {
      const members = (await peer.request("members", { room })) as { as: string }[];
      expect(sorted(members.map(({ as }) => as))).toEqual(expected);
    }
  }
}, 180_000);
