/** The server's end of a connection that tabs share. The test writes the frames of their worker. `pages.test.ts` has the other ends. */
import { describe, expect, it } from "vitest";
import { limits, type AnyPeer } from "../../src/node.js";
import { maskedFrames } from "../../src/socket/frames.js";
import { tabs } from "../../src/tabs/index.js";
import { begun, drop, serving, servingOnPort } from "../server/by-hand.js";
import { sendUpgrade } from "../support/network.js";
import { call } from "../support/post.js";
import { notification, request, result } from "../support/raw.js";
import { gate, pass, stall, turn, until, untilAborted, useVirtualClock } from "../support/time.js";

useVirtualClock();

/** Returns the call that opens a tab, a message of a tab, a call of it for each step, and its end. */
const open = (tab: unknown): object => request("open", "$/tab", { tab });
const inTab = (tab: unknown, message: unknown): object => ({ jsonrpc: "2.0", tab, message });
const calls = (...steps: [tab: number, method: string, id?: number][]): object[] =>
  steps.map(([tab, method, id = 1]) => inTab(tab, request(id, method, { value: id })));
const end = (tab: unknown, closed: unknown): object => ({ jsonrpc: "2.0", tab, closed });

/** Shows what came: `tab id result-or-code`, with `-` for no tab, or the params of a notification. */
function shown({ tab = "-", closed, message, ...own }: any): unknown[] {
  if (closed !== undefined) return [`${tab} closed ${closed.code} ${closed.reason}`];
  const all: any[] = [message ?? own].flat();
  return all.map(({ id, result: value, error, params }) => params ?? `${tab} ${id} ${error?.code ?? value}`);
}

/** A server, a connection, and what its client does. */
async function world(options: object = {}) {
  const missed: unknown[] = [];
  const serve = await serving<any>({
    use: [tabs],
    methods: {
      join: (_params, { peer, server }) => [...server.topic("1").add(peer)].length,
      echo: ({ value }) => value,
      hang: (_params, context) => untilAborted(context),
      stuck: () => gate().promise,
      ask: (_params, { peer }) => void peer.request("who").catch(() => {}),
      async *stream() {
        yield 1;
        await gate().promise;
      },
    },
    ...options,
  });
  serve.server.on("missed", (peer) => missed.push(peer));
  const { byHand, peer } = await begun(serve);
  /** Sends messages, and returns what came, as `shown`. */
  const after = async (...messages: object[]): Promise<unknown[]> => {
    for (const message of messages) byHand.say([message]);
    for (let i = 0; i < 4; i++) await turn();
    const frames: any[] = [];
    while (byHand.unread.length > 0) frames.push(await byHand.next());
    return frames.filter(Array.isArray).flat(2).flatMap(shown);
  };
  /** Opens so many tabs, which join "1". Returns their peers at the server. */
  const opened = async (count: number): Promise<AnyPeer[]> => {
    for (let tab = 1; tab <= count; tab++) await after(open(tab), ...calls([tab, "join"]));
    return [...serve.server.topic("1")] as AnyPeer[];
  };
  return { ...serve, byHand, shared: peer, after, opened, missed, drop: () => drop({ byHand, peer }) };
}

describe("a tab", () => {
  it("is a peer of its own: with its calls, topics and end", async () => {
    const { server, after, opened } = await world();
    const [first, second] = (await opened(2)) as [AnyPeer, AnyPeer];
    server.topic("1").notify("said", { n: 1 }, { except: first });
    const called = first.request("who");
    expect(await after(...calls([9, "join"]))).toEqual([{ n: 1 }, "1 1 undefined"]);
    await after(inTab(1, result(1, "Ada")), end(2, { code: 4001, reason: "bye" }), end(9, {}));
    expect([await called, await second.closed]).toEqual(["Ada", { code: 4001, reason: "bye" }]);
    await first.close(4002, "enough");
    expect(await after(...calls([1, "join"]))).toEqual(["1 closed 4002 enough"]);
    expect([server.peers.size, server.topicNames]).toEqual([1, []]);
    // A code that no application sends is 1000.
    for (const [code, got] of Object.entries({ 1001: 1001, 4999: 4999, 1006: 1000, 1e15: 1000, x: 1000 })) {
      const [peer] = await opened(1);
      await after(end(1, { code: Number(code) }));
      expect((await peer!.closed).code).toBe(got);
    }
  });

  it("is refused with a bad number, beyond 64, in a batch and inside a tab, and what is no message of a tab is malformed", async () => {
    const { after, server } = await world();
    await after(...Array.from({ length: 64 }, (_, i) => open(i)));
    const bad = [...[0, "1", undefined, 64].map(open), inTab(3, open(1)), inTab(3, inTab(1, {})), inTab(1, undefined)];
    const opened = Array<string>(3).fill("- open -32602");
    const got = [...opened, "- open -32006", "3 open -32601", "3 null -32600", "- null -32600"];
    expect(await after(...bad, [open(70), inTab(1, {})])).toEqual([...got, "- open -32601", "- null -32600"]);
    expect(server.peers.size).toBe(65);
  });

  it("is refused by HTTP POST, which makes no peer", async () => {
    const { server } = await servingOnPort({ use: [tabs] });
    expect(await call(server, "$/tab", { tab: 1 })).toMatchObject([200, { error: { code: -32601 } }]);
    expect(server.peers.size).toBe(0);
  });

  const [OPEN, BUSY] = ["- open null", "- open -32009"];
  const echoes = [1, 2, 3].map((id) => request(id, "echo", { value: id }));
  it.each<[what: string, options: object, messages: (object | object[])[], got: unknown[]]>([
    [
      "maxMessagesPerSecond, also if it is opened again, and in a batch; what closes and answers does not count",
      { limits: { maxMessagesPerSecond: 5 } },
      [
        [open(1), ...calls([1, "ask"]), inTab(1, result(1, 1)), end(1, {}), open(1)],
        [inTab(1, echoes), ...calls([1, "echo", 4]), end(1, {}), open(2)],
      ],
      [OPEN, "1 1 undefined", "1 1 null", OPEN, "1 1 1", "1 2 2", "1 3 -32009", "1 4 -32009", BUSY],
    ],
    [
      "maxInFlight, also after it has ended while its handler runs",
      { limits: { maxInFlight: 1 } },
      [
        [open(1), open(2), ...calls([1, "stuck"], [2, "echo"]), request(1, "echo", {})],
        [end(1, {}), ...calls([2, "echo", 2])],
      ],
      [OPEN, OPEN, "2 1 -32009", "- 1 -32009", "2 2 -32009"],
    ],
    [
      "maxStreams, until it ends",
      { limits: { maxStreams: 1 } },
      [open(1), open(2), ...calls([1, "stream"], [2, "stream"]), end(1, {}), ...calls([2, "stream", 2])],
      [OPEN, OPEN, "2 1 -32009", "2 2 [object Object]"],
    ],
    [
      "`peerRate` of a method",
      { around: limits({ echo: { peerRate: { calls: 1, perMs: 1_000 } } }) },
      [open(1), open(2), ...calls([1, "echo"], [2, "echo", 2])],
      [OPEN, OPEN, "2 2 -32012", "1 1 1"],
    ],
  ])("counts against the limit of its connection: %s", async (_what, options, messages, got) => {
    expect(await (await world(options)).after(...messages.flat())).toEqual(got);
  });

  it("ends its connection by too many malformed messages, and cannot count anew", async () => {
    const { after, shared } = await world({ limits: { maxMalformedPerMinute: 2 } });
    for (let i = 0; i < 3; i++) await after(open(1), inTab(1, 1), end(1, {}));
    expect(shared.state).toBe("closed");
    expect(await shared.closed).toMatchObject({ code: 1008 });
  });

  it("shares one queue: too much for one tab while there is no socket ends the session, and a broadcast does not", async () => {
    const { server, opened, missed, ...one } = await world({ limits: { maxUnsentBytes: 4_000 } });
    const [first, second] = (await opened(2)) as [AnyPeer, AnyPeer];
    const suspend = first.waitFor("suspend");
    await one.drop();
    await suspend;
    server.topic("1").notify("said", { text: "x".repeat(700) });
    expect([missed, first.state, first.notify("said", {}, { volatile: true })]).toEqual([[second], "suspended", false]);
    for (const tab of [first, second]) for (let i = 0; i < 2; i++) tab.notify("said", { text: "y".repeat(800) });
    expect([await second.closed, await first.closed]).toMatchObject([{ code: 1013 }, { code: 1013 }]);
  });

  it("misses what is dropped of its messages in that queue", async () => {
    const { opened, missed, ...one } = await world();
    const [peer] = await opened(1);
    await one.drop();
    for (let i = 0; i <= 1_024; i++) peer!.notify("said", {}, { latest: String(i) });
    expect([missed, peer!.stats().dropped, peer!.stats().notificationsSent]).toEqual([[peer], 1, 1_024]);
  });

  it("leaves nothing counted of a batch whose tab has ended", async () => {
    const { after, server, ...one } = await world();
    const batch = [request(1, "echo", { value: "x".repeat(5_000) }), request(2, "stuck")];
    for (let i = 0; i < 4; i++) await after(open(i), inTab(i, batch), end(i, {}));
    await one.drop();
    // The frames of the calls that run.
    expect(server.stats().suspendedBytes).toBeLessThan(4 * 5_500);
  });

  it("is served until its connection has drained, which closes it", async () => {
    const { after, server, byHand } = await world();
    await after(open(1), open(2), ...calls([1, "hang"]));
    const drained = server.drain({ timeoutMs: 200 });
    expect(await after(...calls([2, "echo"]))).toEqual(["2 1 1"]);
    await pass(300);
    await drained;
    expect([await byHand.closed, server.stats().closed]).toMatchObject([{ code: 1001 }, { 1001: 3 }]);
  });

  it("runs a batch in as many ticks as its connection would", async () => {
    let done = 0;
    let seen = 0;
    const work = (): void => {
      if (done++ === 0) setImmediate(() => (seen = done));
      stall(3);
    };
    const { url } = await servingOnPort({ use: [tabs], methods: { work } });
    const socket = await sendUpgrade(url);
    const messages = [open(1), inTab(1, Array<object>(40).fill(notification("work")))];
    socket.write(maskedFrames(messages.map((message) => JSON.stringify(message))));
    await until(() => done === 40);
    socket.destroy();
    expect(seen).toBeLessThan(40);
  });
});
