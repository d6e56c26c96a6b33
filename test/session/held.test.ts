/** What suspended sessions keep: the bounds of all together, broadcasts, and messages that a newer one makes obsolete. */
import { describe, expect, it } from "vitest";
import type { AnyPeer } from "../../src/index.js";
import { begun, range, type RawClient } from "./kit.js";
import { useVirtualClock } from "../support/time.js";

useVirtualClock();

const byUser = { principal: ({ user }: { user?: string }): string => user ?? "nobody" };
/** What a queued message counts for besides its text. */
const COST = 64;

const many = (count: number): undefined[] => Array<undefined>(count).fill(undefined);

/** Returns how many characters a notification has, besides its own text of so many. */
const textOf = (n: unknown, padding: number, method = "n"): number =>
  JSON.stringify({ jsonrpc: "2.0", method, params: [n, "x".repeat(padding)] }).length;

function send({ peer }: { peer: AnyPeer }, n: unknown, padding: number, latest?: string): boolean {
  return peer.notify("n", [n, "x".repeat(padding)], latest === undefined ? {} : { latest });
}

const hasEnded = ({ events }: { events: unknown[] }): boolean => events.at(-1) === 1013;

describe("the bounds of suspended sessions", () => {
  it("end the oldest session of a principal beyond `maxSuspendedPerPrincipal`, and no other principal's", async () => {
    const users = ["alice", "bob", "alice", "alice"];
    const { serving, raws } = await begun({ ...byUser, limits: { maxSuspendedPerPrincipal: 2 } }, users);
    const [first, bob, second, third] = raws as [RawClient, RawClient, RawClient, RawClient];
    for (const raw of [first, bob, second]) raw.cut();
    // The age of a session counts from its latest loss.
    (await serving.resume(first.token, 0, 1, "alice")).cut();
    third.cut();
    await serving.settle();
    expect(serving.peers.map(hasEnded)).toEqual([false, false, true, false]);
    expect(serving.stats.suspended).toBe(3);
  });

  it("are not those of a principal without `principal`", async () => {
    const { serving, raws } = await begun({ limits: { maxSuspendedPerPrincipal: 2 } }, many(10));
    for (const raw of raws) raw.cut();
    await serving.settle();
    expect(serving.stats.suspended).toBe(10);
  });

  it("end the session that holds most beyond the common byte limit", async () => {
    const { serving, raws } = await begun({ limits: { maxSuspendedBytes: 9000 } }, many(3));
    const [small, large, other] = serving.peers;
    send(small!, 1, 1000);
    send(large!, 2, 4000);
    await serving.settle();
    for (const raw of raws) raw.cut();
    expect(serving.stats.suspendedBytes).toBeGreaterThan(5000);
    send(other!, 3, 2000);
    await serving.settle();
    expect(serving.stats.suspended).toBe(3);
    // Now it has grown to the largest.
    send(other!, 4, 2000);
    await serving.settle();
    expect(serving.peers.map(hasEnded)).toEqual([false, false, true]);
    expect(serving.stats.suspendedBytes).toBeLessThan(6000);
  });

  it("do not count a session that a listener of `suspend` ends by what it sends", async () => {
    const { serving, raw } = await begun({ limits: { maxSuspendedBytes: 1, maxUnsentBytes: 20_000 } });
    const { peer } = serving.served;
    peer.on("suspend", () => {
      while (peer.notify("n", ["x".repeat(4000)]));
    });
    raw.cut();
    await serving.settle();
    expect(serving.served.events).toEqual(["suspend", 1013]);
    expect(serving.stats).toMatchObject({ suspended: 0, suspendedBytes: 0 });
  });

  it("count exactly after messages are sent, resumed and acknowledged", async () => {
    const { serving, raws, topic } = await begun();
    let [raw] = raws as [RawClient];
    for (const i of range(1, 5)) {
      raw.cut();
      for (const n of [1, 2]) send(serving.served, n, 100 * i);
      topic.notify("n", [3, "x".repeat(50)]);
      expect(serving.stats.suspendedBytes).toBe(2 * textOf(1, 100 * i) + textOf(3, 50) + 3 * COST);
      raw = await serving.resume(raw.token, i - 1, i);
      // The three messages of the queue are one pack.
      await raw.deliver(`{"ack":${i}}`);
      expect(serving.stats).toMatchObject({ suspended: 0, suspendedBytes: 0 });
    }
  });
});

describe("a broadcast", () => {
  it("is queued and logged like any other message, in order with them, and refused if it is too long for its client", async () => {
    const { serving, raw, topic } = await begun();
    topic.notify("n", [1]);
    raw.cut();
    topic.notify("n", [2]);
    send(serving.served, 3, 1);
    topic.notify("n", [4, "x".repeat(5000)]);
    topic.notify("n", [5]);
    expect((await serving.resume(raw.token)).numbers()).toEqual([1, { missed: 1 }, 2, 3, 5]);
  });

  it("drops broadcasts beyond a lower limit, and ends no session: others get as much as without them, all in order", async () => {
    // Half of it is the queue without a socket, and a quarter is for broadcasts.
    const { serving, raw, topic } = await begun({ limits: { maxUnsentBytes: 80_000 } });
    raw.cut();
    for (const n of range(0, 99)) topic.notify("n", [`b${n}`, "x".repeat(1000)]);
    const kept = 100 - serving.served.peer.stats().dropped;
    expect(kept).toBeGreaterThan(10);
    expect(kept * 1000).toBeLessThan(20_000);
    for (const n of range(0, 8)) {
      expect(send(serving.served, n, 4000)).toBe(true);
      topic.notify("n", ["none", "x".repeat(1000)]);
    }
    const queued = [...range(0, kept - 1).map((n) => `b${n}`), ...range(0, 8)];
    expect((await serving.resume(raw.token)).numbers()).toEqual([{ missed: 100 - kept + 9 }, ...queued]);
  });

  it("is dropped at the loss of the socket if all suspended sessions would hold too many", async () => {
    for (const [maxSuspendedBytes, kept] of [
      [2 ** 20, 6],
      [4 * 6 * (textOf(0, 1000) + COST), 6],
      [4 * 6 * (textOf(0, 1000) + COST) - 1, 0],
    ] as const) {
      const { serving, raw, topic } = await begun({ limits: { maxSuspendedBytes, maxUnsentBytes: 80_000 } });
      // The socket is full.
      raw.line.stop();
      for (const n of range(1, 5)) {
        send(serving.served, n, 4900);
        await serving.settle();
      }
      const { suspendedBytes } = serving.stats;
      for (const n of range(0, 5)) topic.notify("n", [n, "x".repeat(1000)]);
      await serving.settle();
      expect([suspendedBytes, serving.served.peer.stats().dropped]).toEqual([0, 0]);
      raw.cut();
      expect(serving.served.peer.stats().dropped).toBe(6 - kept);
    }
  });

  it("leaves all sessions their place: broadcasts use a quarter of the common limit, and leave all of it to other messages", async () => {
    const { serving, raws, topic } = await begun({ limits: { maxSuspendedBytes: 40_000 } }, many(4));
    for (const raw of raws) raw.cut();
    for (const n of range(1, 40)) topic.notify("n", [n, "x".repeat(1000)]);
    expect(160 - serving.stats.dropped).toBe(8 + 1);
    expect(serving.stats.suspendedBytes).toBeLessThanOrEqual(40_000 / 4);
    for (const n of range(0, 8)) expect(send(serving.peers[n % 4]!, n, 4000)).toBe(true);
    await serving.settle();
    expect(serving.stats.suspended).toBe(4);
    send(serving.peers[0]!, 9, 4000);
    await serving.settle();
    expect(serving.stats.suspended).toBe(3);
  });
});

describe("a message with a key", () => {
  it("replaces the older one of its method and key in the queue, and has its own place there", async () => {
    const { serving, raw, topic } = await begun();
    const { peer } = serving.served;
    raw.cut();
    const sent: [n: unknown, latest?: string, method?: string][] = [
      ["a1", "a"],
      [1],
      ["b1", "b"],
      ["a2", "a"],
      [2],
      ["other", "a", "m"],
      ["a3", "a"],
      // Equal to others when joined.
      ["c1", "an", ""],
      ["c2", "1:a"],
    ];
    for (const [n, latest, method = "n"] of sent) peer.notify(method, [n], latest === undefined ? {} : { latest });
    for (const [n, latest] of [["a4", "a"], ["d1", "d"], ["e1", "e"]] as const) send(serving.served, n, 1, latest); // prettier-ignore
    for (const [n, latest] of [["a5", "a"], ["d2", "d"], ["f1", "f"]] as const) topic.notify("n", [n], { latest }); // prettier-ignore
    for (const [n, latest] of [["a6", "a"], ["f2", "f"]] as const) send(serving.served, n, 1, latest); // prettier-ignore
    const queued = [1, "b1", 2, "other", "c1", "c2", "e1", "d2", "a6", "f2"];
    expect((await serving.resume(raw.token)).numbers()).toEqual(queued);
  });

  it("is dropped if it is the oldest of more than 1,024 keys, and this side reports it", async () => {
    const { serving, raw } = await begun();
    raw.cut();
    for (const n of range(1, 1024)) send(serving.served, n, 1, `key ${n}`);
    // The first is the newest now.
    send(serving.served, "again", 1, "key 1");
    expect(serving.served.peer.stats().dropped).toBe(0);
    for (const n of range(1025, 1027)) send(serving.served, n, 1, `key ${n}`);
    expect(serving.served.peer.stats().dropped).toBe(3);
    const queued = [...range(5, 1024), "again", ...range(1025, 1027)];
    expect((await serving.resume(raw.token)).numbers()).toEqual([{ missed: 3 }, ...queued]);
  });

  it("as a broadcast is dropped where the queue is full of others, and with it the older one", async () => {
    const { serving, raw, topic } = await begun({ limits: { maxUnsentBytes: 8000 } });
    raw.cut();
    topic.notify("n", [1], { latest: "a" });
    send(serving.served, 2, 2500);
    topic.notify("n", [3, "x".repeat(500)], { latest: "a" });
    expect((await serving.resume(raw.token)).numbers()).toEqual([{ missed: 1 }, 2]);
  });
});
