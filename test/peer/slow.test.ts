import { describe, expect, it } from "vitest";
import type { AnyPeer, LiveOptions, ServerContext } from "../../src/node.js";
import { testServer, type TestServerOptions } from "../../src/testing/index.js";
import { closeAtEnd } from "../support/pair.js";
import { notification, request, TestLink, type RawBehaviour } from "../support/raw.js";
import { gate, pass, rejection, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

/** `maxUnsentBytes`. */
const LIMIT = 8_000;
/** The maximum that may be queued at any moment. */
const BURST = 8 * LIMIT;
/** From an eighth of the limit on, a reader is slow. */
const BEHIND = LIMIT / 8;
const LONG = "x".repeat(800);

type Group = ReturnType<typeof testServer<any, any, any>>["server"]["peers"];

const onSend = (text: string, link: TestLink): void => void (link.unsentBytes += Buffer.byteLength(text));

/** The transport of a peer of a server. A test sets its unsent bytes. */
class Slow extends TestLink {
  readonly peer: AnyPeer;
  readonly group: Group;

  /** `counts`: whether it counts what is sent as unsent. */
  constructor(options: Partial<TestServerOptions<any, any, any>> = {}, counts = false, more: RawBehaviour = {}) {
    super({ ...(counts && { onSend }), ...more });
    const limits = { maxUnsentBytes: LIMIT, maxReplyBytes: LIMIT };
    const methods = { long: () => LONG, echo: () => "left" };
    const { server } = testServer<any, any, any>({ limits, methods, ...options });
    this.peer = server.accept(this, undefined);
    this.group = server.peers;
    closeAtEnd(this.peer, () => void server.close());
  }

  get messages(): unknown[] {
    const read = this.sent.map((text) => JSON.parse(text) as { method: string; params?: unknown[] });
    return read.map(({ method, params = [] }) => [method, ...params]);
  }

  reply(count: number): void {
    for (let id = 0; id < count; id++) this.receiver.dispatch(request(id, "long"));
  }

  /** Sends a broadcast. Returns false if it is dropped. */
  broadcast(text = LONG): boolean {
    const { dropped } = this.peer.stats();
    this.group.notify("n", [text]);
    return this.peer.stats().dropped === dropped;
  }

  /** Sets the unsent bytes, and lets the next check happen. */
  async drain(): Promise<void> {
    this.unsentBytes = 0;
    await pass(20);
  }
}

const counting = (more?: RawBehaviour): Slow => new Slow({}, true, more);

function behind(unsentBytes = BEHIND, options?: ConstructorParameters<typeof Slow>[0]): Slow {
  const one = new Slow(options);
  one.unsentBytes = unsentBytes;
  return one;
}

const moved = (n: number, key = "ann"): [string, unknown[], LiveOptions] => ["moved", [n], { latest: key }];

describe("more than may be queued at any moment", () => {
  it.each([
    ["replies", 0, 1_000],
    ["progress", 1_000, 0],
  ])("closes the connection at once, sends nothing more, and aborts: %s", async (_what, reports, replies) => {
    const open = gate();
    let signal: AbortSignal | undefined;
    const report = (_params: unknown, context: ServerContext): Promise<void> => {
      ({ signal } = context);
      for (let i = 0; i < reports; i++) context.progress(LONG);
      return open.promise;
    };
    const one = new Slow({ methods: { long: () => LONG, report } }, true);
    one.receiver.dispatch(request("report", "report", { workDoneToken: 1 }));
    one.reply(replies);
    expect(signal!.aborted).toBe(true);
    open.resolve();
    expect(one.closes).toEqual([{ code: 1013, reason: `more than ${BURST} bytes wait to be read` }]);
    expect(one.unsentBytes).toBeGreaterThan(BURST);
    expect(one.unsentBytes).toBeLessThan(BURST + 2 * LONG.length);
    const batch = behind(BURST + 1).peer.batch();
    const calls = [behind(BURST + 1).peer.request("m"), batch.request("m")].map(rejection);
    batch.send();
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ outcome: "not-sent" });
  });

  it("ends only the session in a transport that continues after a loss", () => {
    const reasons: string[] = [];
    const one = counting({ endSession: (reason) => reasons.push(reason) > 0 });
    one.unsentBytes = BURST + 1;
    one.peer.notify("n");
    expect(reasons).toEqual([`more than ${BURST} bytes wait to be read`]);
    expect(one.peer.state).toBe("open");
  });
});

it("a burst of replies beyond `maxUnsentBytes` keeps the connection open if the reader receives it within 10 s, as often as it comes", async () => {
  const one = counting();
  for (let burst = 0; burst < 5; burst++) {
    one.reply(40);
    expect(one.unsentBytes).toBeGreaterThan(3 * LIMIT);
    await pass(9_999);
    one.reply(1);
    one.unsentBytes = LIMIT;
    await pass(60_000);
  }
  expect(one.peer.state).toBe("open");
});

it("a burst of replies beyond `maxUnsentBytes` closes with 1013 a connection with more than the limit queued for 10 s without a break", async () => {
  const one = counting();
  one.reply(40);
  one.unsentBytes = LIMIT + 1;
  await pass(9_999);
  expect(one.closes).toEqual([]);
  await pass(1);
  expect(one.closes).toEqual([{ code: 1013, reason: `more than ${LIMIT} bytes unread for 10 s` }]);
  expect(await one.peer.closed).toMatchObject({ code: 1013 });
});

it.each([
  ["are checked again", 0, 1],
  ["do not end it if broadcasts were queued before", 3, 0],
])("unsent bytes behind the next socket of a session %s, if nothing more is sent", async (_what, count, closes) => {
  const one = counting();
  one.receiver.suspended();
  for (let i = 0; i < count; i++) one.group.notify("n", [LONG.slice(100 * i)]);
  one.unsentBytes = LIMIT + 1 - Math.sign(count);
  await pass(60_000);
  expect(one.closes).toEqual([]);
  one.receiver.resumed();
  await pass(10_000);
  expect(one.closes).toHaveLength(closes);
});

describe("a broadcast", () => {
  it.each(["x", "€"])("of %j that is queued does not count against ordinary messages", async (character) => {
    const one = counting();
    while (one.broadcast(character.repeat(100)));
    const broadcasts = one.unsentBytes;
    expect(broadcasts).toBeGreaterThan(LIMIT / 2);
    const ordinary = JSON.stringify(notification("n", [""])).length;
    one.peer.notify("n", ["x".repeat(LIMIT - ordinary)]);
    expect(one.unsentBytes).toBe(broadcasts + LIMIT);
    one.peer.notify("n");
    one.unsentBytes -= JSON.stringify(notification("n")).length;
    await pass(60_000);
    expect(one.closes).toEqual([]);
    one.peer.notify("n", ["x".repeat(LIMIT)]);
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it.each<[string, (one: Slow) => unknown]>([
    ["was sent", (one) => (one.broadcast(), (one.unsentBytes = 50))],
    [
      "was queued without a socket",
      (one) => {
        one.receiver.suspended();
        one.broadcast();
        one.unsentBytes = 0;
        one.receiver.resumed();
      },
    ],
    [
      "has a key and is replaced",
      (one) => {
        one.unsentBytes = BEHIND;
        for (let n = 0; n < 3; n++) one.group.notify(...moved(n));
      },
    ],
  ])("that %s does not raise the limit of ordinary messages, however often", async (_what, send) => {
    const one = counting();
    for (let i = 0; i < 300; i++) send(one);
    one.unsentBytes = LIMIT + LONG.length + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toHaveLength(1);
  });

  it("is dropped and counted from half of the limit on, and does not close the connection", async () => {
    const one = counting();
    for (let i = 0; i < 100; i++) one.broadcast();
    const { dropped, notificationsSent } = one.peer.stats();
    expect(dropped + notificationsSent).toBe(100);
    expect(one.unsentBytes).toBeGreaterThan(LIMIT / 2);
    expect(one.unsentBytes).toBeLessThan(LIMIT / 2 + 2 * LONG.length);
    await pass(60_000);
    expect(one.peer.state).toBe("open");
  });

  it("with a key, queued in a session, does not count either, also if it replaces a shorter one", async () => {
    const { server, connect, network } = testServer<any, any>({ limits: { maxUnsentBytes: LIMIT } });
    await connect(server.url);
    await network.settle();
    const [peer] = server.peers;
    network.stop();
    // From a quarter of the limit on, further messages are queued.
    peer!.notify("n", ["x".repeat(LIMIT / 4)]);
    for (const length of [1, LIMIT / 5]) server.peers.notify("moved", ["x".repeat(length)], { latest: "a" });
    expect(peer!.stats().dropped).toBe(0);
    peer!.notify("n", ["x".repeat(LIMIT * 0.65)]);
    peer!.notify("n");
    expect(peer!.stats().unsentBytes).toBeGreaterThan(LIMIT);
    await pass(10_000);
    expect(peer!.state).toBe("open");
    await server.close();
  });
});

it("the options of notify are refused if they are invalid, and nothing is sent", () => {
  const { peer, group, sent } = new Slow();
  const invalid: [object, RegExp][] = [
    [{ volatile: 1 }, /^Expected `volatile` to be true or false, got /],
    [{ latest: "x".repeat(257) }, /^Expected `latest` to be a string of at most 256 characters, got /],
    [{ volatile: true, latest: "a" }, /^Expected `latest` to be absent beside `volatile`, got /],
    [{ lastest: "a" }, /^Unknown name `lastest` in `options`; known are volatile, latest/],
  ];
  for (const [options, message] of invalid) {
    expect(() => peer.notify("n", [], options)).toThrow(message);
    expect(() => group.notify("n", [], options)).toThrow(message);
  }
  const whenSlow = () => group.notify("n", [], { whenSlow: "wait" as never });
  expect(whenSlow).toThrow("`whenSlow`");
  expect([sent, peer.stats().notificationsSent]).toEqual([[], 0]);
  for (const options of [{ latest: "x".repeat(256) }, { latest: "" }, { volatile: false, latest: "a" }])
    peer.notify("n", [], options);
  expect(sent).toHaveLength(3);
});

describe("a volatile message", () => {
  it("is sent while less than an eighth of maxUnsentBytes is unsent, as one with a key is", () => {
    const one = behind(BEHIND - 1);
    expect(one.peer.notify("n", [1], { volatile: true })).toBe(true);
    one.group.notify("n", [2], { volatile: true });
    for (const n of [3, 4]) one.peer.notify(...moved(n));
    expect(one.messages).toMatchObject([1, 2, 3, 4].map((n) => [expect.any(String), n]));
    expect(one.peer.stats()).toMatchObject({ notificationsSent: 4, dropped: 0 });
  });

  it.each<[string, (one: Slow) => unknown]>([
    ["an eighth is unsent", (one) => (one.unsentBytes = BEHIND)],
    ["the transport is full", (one) => ((one.send = () => "full"), one.peer.notify("n"))],
    ["the peer is suspended", (one) => one.receiver.suspended()],
    [
      "messages with a key wait for a slow reader",
      (one) => {
        one.unsentBytes = BEHIND;
        one.peer.notify(...moved(1));
        one.unsentBytes = 0;
      },
    ],
    ["the peer is closed", (one) => one.peer.close()],
  ])("is dropped if %s, and no statistic counts it", (_what, happen) => {
    const one = new Slow();
    happen(one);
    const before = one.peer.stats();
    expect(one.peer.notify("n", [1], { volatile: true })).toBe(false);
    one.group.notify("n", [2], { volatile: true });
    one.group.notify("n", [3], { volatile: true, whenSlow: "close" });
    expect(one.sent).toEqual([]);
    expect(one.peer.stats()).toEqual(before);
  });

  it("is dropped before `around` sees it, and also if its peer becomes slow while `around` waits", async () => {
    const open = gate();
    const seen: string[] = [];
    const around = async ({ method }: { method: string }, next: () => unknown): Promise<unknown> => {
      seen.push(method);
      await open.promise;
      return next();
    };
    const one = behind(LIMIT, { around } as object);
    expect(one.peer.notify("early", [1], { volatile: true })).toBe(false);
    one.unsentBytes = 0;
    expect(one.peer.notify("n", [2], { volatile: true })).toBe(true);
    one.unsentBytes = LIMIT;
    open.resolve();
    await turn();
    expect([seen, one.messages, one.peer.stats().dropped]).toEqual([["n"], [], 0]);
  });
});

describe("a message with a key, to a slow reader whose transport has no queue", () => {
  it("waits until the reader has caught up, and only the newest of its key is sent", async () => {
    const one = behind();
    for (let n = 1; n <= 10; n++) {
      expect(one.peer.notify(...moved(n))).toBe(true);
      one.group.notify(...moved(n, "bob"));
    }
    await pass(1000);
    expect(one.sent).toEqual([]);
    await one.drain();
    expect(one.messages).toEqual([1, 2].map(() => ["moved", 10]));
    for (const key of ["ann", "bob"]) {
      one.unsentBytes = BEHIND;
      one.peer.notify(...moved(11, key));
    }
    // The reader has caught up in between.
    one.unsentBytes = 0;
    one.peer.notify(...moved(12));
    expect(one.messages.slice(2)).toEqual([11, 12].map((n) => ["moved", n]));
    expect(one.peer.stats().dropped).toBe(0);
  });

  it.each<[string, (one: Slow) => unknown]>([
    ["a notification", (one) => one.peer.notify("left")],
    ["a request", (one) => void one.peer.request("left").catch(() => {})],
    ["a broadcast", (one) => one.group.notify("left")],
    ["a broadcast that may close", (one) => one.group.notify("left", undefined, { whenSlow: "close" })],
    ["a response", (one) => one.receiver.dispatch(request(1, "echo"))],
  ])("is sent right before %s, so that the order is kept", async (_what, send) => {
    const one = behind();
    for (const n of [1, 2]) one.peer.notify(...moved(n));
    send(one);
    one.peer.notify(...moved(3));
    expect(one.sent.map((text) => /left|moved/.exec(text)![0])).toEqual(["moved", "left"]);
    await one.drain();
    expect(one.messages.at(-1)).toEqual(["moved", 3]);
    expect(one.sent).toHaveLength(3);
  });

  it("is sent before the peer closes, and not after the connection is lost", async () => {
    for (const more of [0, BURST]) {
      const one = behind();
      one.peer.notify(...moved(1));
      one.unsentBytes += more;
      await one.peer.close();
      expect(one.messages).toEqual(more === 0 ? [["moved", 1]] : []);
      // The close is reported once, also if the bytes then unsent end the connection.
      expect(one.closes).toMatchObject([{ code: more === 0 ? 1000 : 1013 }]);
      expect(await one.peer.closed).toMatchObject({ code: more === 0 ? 1000 : 1013 });
    }
    const lost = behind();
    lost.peer.notify(...moved(1));
    lost.receiver.closed({ code: 1006, reason: "" });
    await pass(1000);
    expect(lost.sent).toEqual([]);
  });

  it("waits up to a quarter of maxUnsentBytes: beyond it, a message of the peer is sent, and a broadcast is dropped from half on", () => {
    const { peer, group, sent } = behind(LIMIT / 2 + 1);
    const text = "x".repeat(900);
    for (const key of ["a", "b", "c"]) group.notify("moved", [text], { latest: key });
    expect([sent.length, peer.stats().dropped]).toEqual([0, 1]);
    // The key that waits is replaced.
    group.notify("moved", [text], { latest: "a" });
    expect(peer.stats().dropped).toBe(1);
    expect(peer.notify("moved", [text], { latest: "d" })).toBe(true);
    expect(sent).toHaveLength(3);
    const refused = behind(LIMIT);
    refused.group.notify("moved", ["x".repeat(LIMIT)], { latest: "a" });
    expect(refused.peer.stats().dropped).toBe(1);
    refused.unsentBytes = 0;
    // Nothing waits, so a volatile message is sent.
    expect(refused.peer.notify("n", [], { volatile: true })).toBe(true);
  });

  it("is dropped as a broadcast if the transport does not take it any more, and counted", async () => {
    const one = behind();
    one.group.notify(...moved(1));
    one.peer.notify(...moved(2, "bob"));
    const send = one.send.bind(one);
    one.send = (text: string) => !text.includes("[1]") && send(text);
    await one.drain();
    expect(one.messages).toEqual([["moved", 2]]);
    expect(one.peer.stats()).toMatchObject({ dropped: 1, notificationsSent: 1 });
  });
});

it("the event `missed` has the count that the other side reports, and is not emitted by a closed peer", async () => {
  const one = new Slow();
  const counts: unknown[] = [];
  one.peer.on("missed", (info) => counts.push(info));
  one.receiver.missed(3);
  one.receiver.dispatch(notification("n"));
  one.receiver.missed(1);
  await one.peer.close();
  one.receiver.missed(3);
  expect(counts).toEqual([{ count: 3 }, { count: 1 }]);
});
