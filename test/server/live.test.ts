/** `volatile`, `latest` and `missed` over a network. */
import { expect, it, vi } from "vitest";
import type { AnyPeer } from "../../src/node.js";
import {
  ByHand,
  connect,
  describeNetworks,
  drop,
  emitted,
  nextPeer,
  plainByHand,
  serving,
  suspended,
} from "./by-hand.js";
import { turn } from "../support/turns.js";

const MANY = "x".repeat(1_000);

/** Records the `missed` events of a server, by method. */
function missedBy(server: { on(event: "missed", listener: (peer: any, method: string) => void): unknown }): {
  peers: Set<AnyPeer>;
  methods: Record<string, number>;
} {
  const missed = { peers: new Set<AnyPeer>(), methods: {} as Record<string, number> };
  server.on("missed", (peer: AnyPeer, method) => {
    missed.peers.add(peer);
    missed.methods[method] = (missed.methods[method] ?? 0) + 1;
  });
  return missed;
}

/** Returns the data of the frames that come until one has a message of `method`. */
async function until(byHand: ByHand, method: string): Promise<unknown[]> {
  const data: unknown[] = [];
  for (;;) {
    const frame: unknown = await byHand.next();
    if (Array.isArray(frame))
      data.push(...(frame as { method: string; params?: unknown }[]).map((one) => [one.method, one.params]));
    else if ("missed" in (frame as object)) data.push(frame);
    if (JSON.stringify(data.at(-1))?.includes(`"${method}"`)) return data;
  }
}

describeNetworks("a topic's message with a key", () => {
  it("reaches a client that was away as the newest of its key, in order with all others", async () => {
    const world = await serving();
    const { peer, token } = await suspended(world);
    const topic = world.server.topic("room").add(peer);
    for (let i = 1; i <= 1_500; i++) {
      topic.notify("moved", { ann: i }, { latest: "ann" });
      if (i % 500 === 0) topic.notify("said", [i]);
      peer.notify("moved", { bob: i }, { latest: "bob" });
    }
    topic.notify("end");
    const { byHand } = await ByHand.resume(world.url, token, 1);
    expect(await until(byHand, "end")).toEqual([
      ["said", [500]],
      ["said", [1000]],
      ["moved", { ann: 1500 }],
      ["said", [1500]],
      ["moved", { bob: 1500 }],
      ["end", undefined],
    ]);
    expect(peer.stats().dropped).toBe(0);
  });

  it("reaches a client that acknowledges nothing as the newest, once it does", async () => {
    const { server, url } = await serving({ limits: { maxUnsentBytes: 200_000 } });
    const coming = nextPeer(server);
    const { byHand } = await ByHand.begin(url);
    const peer = await coming;
    const topic = server.topic("room").add(peer);
    // They fill the replay log.
    for (let i = 0; i < 5; i++) topic.notify("pad", [MANY.repeat(40)]);
    for (let i = 1; i <= 5_000; i++) topic.notify("moved", [i, MANY], { latest: "ann" });
    peer.notify("end");
    expect(peer.stats().unsentBytes).toBeLessThan(10_000);
    expect(peer.stats().dropped).toBe(0);
    for (let i = 0; i < 5; i++) await byHand.next();
    byHand.say({ ack: 5 });
    expect(await until(byHand, "end")).toEqual([
      ["moved", [5_000, MANY]],
      ["end", undefined],
    ]);
  });

  it("reaches a plain client in the same way, which gets nothing else", async () => {
    const { server, url } = await serving({ limits: { maxUnsentBytes: 200_000 } });
    const coming = nextPeer(server);
    const client = await plainByHand(url);
    const peer = await coming;
    client.pause();
    const missed = missedBy(server);
    let moves = 0;
    while (peer.stats().unsentBytes < 60_000) {
      server.peers.notify("pad", [MANY.repeat(40)]);
      await turn();
    }
    for (let i = 0; i < 5_000; i++) server.peers.notify("moved", [++moves], { latest: "ann" });
    server.peers.notify("moved", [0], { volatile: true });
    client.resume();
    await vi.waitFor(() => expect(client.received.at(-1)).toContain('"moved"'));
    const methods = client.received.map((text) => (JSON.parse(text) as { method: string }).method);
    expect(methods.filter((method) => method === "moved")).toEqual(["moved"]);
    expect(JSON.parse(client.received.at(-1)!)).toMatchObject({ method: "moved", params: [5_000] });
    expect(new Set(methods)).toEqual(new Set(["pad", "moved"]));
    expect(missed.methods["moved"]).toBeUndefined();
  });
});

describeNetworks("a volatile message", () => {
  it("reaches a connected client, and none that is suspended, and is not counted", async () => {
    const { server, url, cut } = await serving();
    const got: unknown[] = [];
    await using client = await connect(url, { methods: { moved: (params: unknown) => void got.push(params) } });
    for (let i = 0; i < 2; i++) await client.request("nothing").catch(() => {});
    const [peer] = server.peers;
    const missed = missedBy(server);
    server.peers.notify("moved", [1], { volatile: true });
    expect(peer!.notify("moved", [2], { volatile: true })).toBe(true);
    await vi.waitFor(() => expect(got).toEqual([[1], [2]]));
    const [gone, back] = [emitted(peer!, "suspend"), emitted(client, "resume")];
    cut();
    await gone;
    const { notificationsSent } = peer!.stats();
    server.peers.notify("moved", [3], { volatile: true });
    expect(peer!.notify("moved", [4], { volatile: true })).toBe(false);
    expect(client.notify("moved", [5], { volatile: client.state === "suspended" })).toBe(client.state !== "suspended");
    await back;
    server.peers.notify("moved", [6]);
    await vi.waitFor(() => expect(got.at(-1)).toEqual([6]));
    expect(got).toEqual([[1], [2], [6]]);
    expect(peer!.stats()).toMatchObject({ dropped: 0, notificationsSent: notificationsSent + 1 });
    expect(missed.methods).toEqual({});
  });
});

describeNetworks("a dropped message", () => {
  it("is emitted by the server with its peer and method, and reported to the client before the next message, once", async () => {
    const world = await serving({ limits: { maxUnsentBytes: 40_000 } });
    const { server, url } = world;
    const missed = missedBy(server);
    const { peer, token } = await suspended(world);
    for (let i = 0; i < 30; i++) server.peers.notify("said", [MANY]);
    const { dropped } = peer.stats();
    expect(dropped).toBeGreaterThan(10);
    expect(missed).toEqual({ peers: new Set([peer]), methods: { said: dropped } });
    peer.notify("end");
    const first = await ByHand.resume(url, token, 1);
    expect((await until(first.byHand, "end"))[0]).toEqual({ missed: dropped });
    // The report is replayed like any data frame, because the client has acknowledged nothing.
    const again = nextToken(first.answer);
    await drop({ byHand: first.byHand, peer });
    const second = await ByHand.resume(url, again, 2);
    expect((await until(second.byHand, "end"))[0]).toEqual({ missed: dropped });
  });

  it("arrives or is reported, each one, after floods while the client was away", async () => {
    const { server, url, cut } = await serving({ limits: { maxUnsentBytes: 40_000 } });
    const missed = missedBy(server);
    const got: unknown[] = [];
    let count = 0;
    await using client = await connect(url, { methods: { said: (params: unknown) => void got.push(params) } });
    client.on("missed", (info) => (count += info.count));
    for (let i = 0; i < 2; i++) await client.request("nothing").catch(() => {});
    const [peer] = server.peers;
    let sent = 0;
    for (let round = 0; round < 4; round++) {
      const back = emitted(client, "resume");
      cut();
      for (let i = 0; i < 50; i++) {
        sent++;
        server.peers.notify("said", [MANY]);
        if (i % 10 === 0) await turn();
      }
      await back;
    }
    await vi.waitFor(() => expect(got.length + count).toBe(sent));
    expect(count).toBe(peer!.stats().dropped);
    expect(missed.methods).toEqual({ said: count });
    expect(count).toBeGreaterThan(0);
  });

  it("is also one of more than 1,024 keys", async () => {
    const world = await serving();
    const missed = missedBy(world.server);
    const { peer, token } = await suspended(world);
    for (let i = 1; i <= 1_030; i++) world.server.peers.notify("moved", [i], { latest: `key ${i}` });
    expect(missed.methods).toEqual({ moved: 6 });
    expect(peer.stats()).toMatchObject({ dropped: 6, notificationsSent: 1_024 });
    peer.notify("end");
    const { byHand } = await ByHand.resume(world.url, token, 1);
    const data = await until(byHand, "end");
    expect(data[0]).toEqual({ missed: 6 });
    expect(data).toHaveLength(1 + 1_024 + 1);
  });

  it('is one that is too long for its client, also with `whenSlow: "close"`', async () => {
    const { server, url } = await serving();
    const missed = missedBy(server);
    await using client = await connect(url, { limits: { maxMessageBytes: 500 } });
    for (let i = 0; i < 2; i++) await client.request("nothing").catch(() => {});
    const counts: number[] = [];
    client.on("missed", ({ count }) => counts.push(count));
    server.peers.notify("said", [MANY]);
    server.peers.notify("said", [MANY], { whenSlow: "close" });
    await vi.waitFor(() => expect(counts).toEqual([1, 1]));
    expect(missed.methods).toEqual({ said: 2 });
    expect(client.state).toBe("open");
  });

  it("is reported by a client, too, whose keys are more than 1,024 while it is suspended", async () => {
    const { server, url, cut } = await serving({ methods: { moved: () => {} } });
    await using client = await connect(url);
    for (let i = 0; i < 2; i++) await client.request("nothing").catch(() => {});
    const [peer] = server.peers;
    let count = 0;
    peer!.on("missed", (info) => (count += info.count));
    const [gone, back] = [emitted(client, "suspend"), emitted(client, "resume")];
    cut();
    await gone;
    for (let i = 1; i <= 1_030; i++) client.notify("moved", [i], { latest: `key ${i}` });
    await back;
    await vi.waitFor(() => expect(count).toBe(6));
    expect(client.stats().dropped).toBe(6);
  });
});

/** Returns the token in the reply to a `resume`. */
function nextToken(answer: { resumed: { token: string } }): string {
  return answer.resumed.token;
}
