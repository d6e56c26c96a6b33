/** The server's end of a connection that tabs share. The test is their worker. `test/browser/tabs.test.ts` has the other ends. */
import { describe, expect, it } from "vitest";
import { tabs } from "../../src/tabs/index.js";
import type { AnyPeer } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { pass, useVirtualClock } from "../support/time.js";
import { rejection } from "../support/turns.js";

useVirtualClock();

/** A server, a connection, and what came in it for each tab. */
async function world() {
  const aborted: unknown[] = [];
  const kit = testServer<any, any, any>({
    use: [tabs],
    authenticate: (_request, auth) => ({ name: auth }),
    methods: {
      join: ({ room }, { peer, server }) => [...server.topic(room).add(peer)].length,
      name: (_params, { peer }) => peer.auth.name,
      hang: (_params, { signal, peer }) =>
        new Promise((resolve) => signal.addEventListener("abort", () => resolve(aborted.push(peer)))),
    },
  });
  const { server } = kit;
  let name = "Ada";
  const shared = await kit.connect(server.url, { auth: () => name });
  const got: [tab: number, content: unknown][] = [];
  shared.handle("$/tab", ({ tab, message, missed }) => void got.push([tab, message ?? missed]));
  return {
    kit,
    server,
    shared,
    got,
    aborted,
    rename: (next: string) => (name = next),
    open: (tab: unknown): Promise<any> => shared.request("$/tab", { tab }, { timeoutMs: Infinity }),
    /** Sends a message of a tab. */
    say: (tab: number, method: string, params: object, id?: number) =>
      shared.notify("$/tab", { tab, message: { jsonrpc: "2.0", method, params, ...(id !== undefined && { id }) } }),
    end: (tab: number, closed: unknown) => shared.notify("$/tab", { tab, closed }),
    settled: () => kit.network.settle(),
    [Symbol.asyncDispose]: () => server.close(),
  };
}

const result = (id: number, value: unknown): object => ({ jsonrpc: "2.0", id, result: value });
const den = (n: number): object => ({ jsonrpc: "2.0", method: "said", params: { n } });

describe("a tab", () => {
  it("is a peer of its own: with its calls, topics and end", async () => {
    await using one = await world();
    const { server, shared, got, open, say, end, settled, aborted } = one;
    const ends = [open(1), open(2)];
    for (const tab of [1, 2]) say(tab, "join", { room: "den" }, 7);
    say(2, "hang", {}, 8);
    say(9, "join", { room: "den" }, 9);
    await settled();
    expect(got).toEqual([1, 2].map((tab) => [tab, result(7, tab)]));
    const [first, second] = server.topic("den") as unknown as [AnyPeer, AnyPeer];
    server.topic("den").notify("said", { n: 1 }, { except: first });
    await settled();
    expect(got.splice(2)).toEqual([[2, den(1)]]);
    one.rename("Eve");
    await shared.reauthenticate();
    say(2, "name", {}, 10);
    await settled();
    expect(got.splice(2)).toEqual([[2, result(10, "Eve")]]);
    // One is closed by its tab, and the other by the server.
    const bye = { code: 4001, reason: "bye" };
    for (const tab of [2, 9]) end(tab, bye);
    expect([await second.closed, await ends[1]]).toEqual([bye, bye]);
    expect([aborted, [...server.topic("den")]]).toEqual([[second], [first]]);
    await first.close(4002, "enough");
    expect(await ends[0]).toEqual({ code: 4002, reason: "enough" });
    say(1, "join", { room: "den" }, 11);
    await settled();
    expect([got.length, server.peers.size, server.topicNames]).toEqual([2, 1, []]);
  });

  it("is suspended and resumed with the connection, and ends with its session", async () => {
    await using one = await world();
    const { kit, server, shared, got, open, say, settled } = one;
    const opened = open(1);
    say(1, "join", { room: "den" });
    await settled();
    const [peer] = server.topic("den") as unknown as [AnyPeer];
    const line = kit.network.of(shared);
    line.stop();
    line.cut();
    await pass(100);
    expect(peer.state).toBe("suspended");
    for (const volatile of [true, false]) server.topic("den").notify("said", { n: volatile ? 0 : 1 }, { volatile });
    line.start();
    await pass(5_000);
    expect(peer.state).toBe("open");
    expect(got).toEqual([[1, den(1)]]);
    const lost = rejection(opened);
    await [...server.peers][0]!.close();
    expect([await peer.closed, await lost]).toMatchObject([{ code: 1006 }, { outcome: "unknown" }]);
    expect([server.topicNames, server.peers.size]).toEqual([[], 0]);
  });

  it("is refused with the number of another, beyond 64, and inside a tab, and ends when its handlers have if the server drains", async () => {
    await using one = await world();
    const { server, shared, got, open, say, settled } = one;
    const ends = Array.from({ length: 64 }, (_, i) => open(i));
    for (const tab of [0, "1", undefined, 64])
      expect((await rejection(open(tab))).code).toBe(tab === 64 ? -32006 : -32602);
    say(3, "$/tab", { tab: 1 }, 5);
    say(3, "hang", {}, 6);
    await settled();
    expect(got).toMatchObject([[3, { id: 5, error: { code: -32601 } }]]);
    const drained = server.drain({ timeoutMs: 10_000 });
    await pass(5_000);
    expect([server.peers.size, shared.state]).toEqual([2, "open"]);
    const reasons = await Promise.all(ends.filter((_, i) => i !== 3));
    expect([reasons.length, new Set(reasons.map(({ code }) => code))]).toEqual([63, new Set([1001])]);
    const lost = rejection(ends[3]!);
    await pass(6_000);
    await Promise.all([drained, lost]);
  });
});
