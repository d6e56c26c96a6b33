import { expect, describe, it } from "vitest";
import { Peer, type AnyPeer, type LiveOptions, type Receiver, type Transport } from "../../src/index.js";
import { PeerGroup } from "../../src/server/groups.js";
import { HeldQueue } from "../../src/server/held-queue.js";
import { pass, useFakeClock } from "../support/clock.js";
import { closeAtEnd } from "../support/pair.js";
import { notification, request } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";

useFakeClock();

const LIMIT = 8_000;
/** From an eighth of the limit on, a reader is slow. */
const BEHIND = LIMIT / 8;

/** A peer over a transport without a queue. A test sets its unsent bytes. */
class Slow {
  readonly peer: AnyPeer;
  readonly sent: string[] = [];
  readonly closes: number[] = [];
  readonly transport: Transport & { unsentBytes: number; isReady?: boolean };
  receiver!: Receiver;

  constructor(options: object = {}) {
    this.transport = {
      unsentBytes: 0,
      start: (receiver) => void (this.receiver = receiver),
      send: (text) => this.sent.push(text) > 0,
      close: (code = 1000, reason = "") => {
        this.closes.push(code);
        this.receiver.closed({ code, reason });
      },
    };
    this.peer = new Peer(this.transport, { limits: { maxUnsentBytes: LIMIT }, ...options });
    closeAtEnd(this.peer, () => void this.peer.close());
  }

  /** The sent methods and params. */
  get messages(): unknown[] {
    return this.sent.map((text) => {
      const { method, params } = JSON.parse(text) as { method: string; params?: unknown[] };
      return params === undefined ? method : [method, ...params];
    });
  }

  /** Sets the unsent bytes, and lets the next check happen. */
  async drain(): Promise<void> {
    this.transport.unsentBytes = 0;
    await pass(20);
  }
}

const moved = (n: number, key = "ann"): [string, unknown[], LiveOptions] => ["moved", [n], { latest: key }];

describe("the options of notify", () => {
  it.each([
    [{ volatile: 1 }, "Expected `volatile` to be true or false, got `1` (number)"],
    [{ latest: 7 }, "Expected `latest` to be a string of at most 256 characters, got `7` (number)"],
    [{ latest: "x".repeat(257) }, /^Expected `latest` to be a string of at most 256 characters, got /],
    [{ volatile: true, latest: "a" }, "Expected `latest` to be absent beside `volatile`, got `a` (string)"],
    [{ lastest: "a" }, /^Unknown name `lastest` in `options`; known are volatile, latest/],
  ])("refuses %j, and sends nothing", (options, message) => {
    const { peer, sent } = new Slow();
    const group = groupOf(peer);
    for (const target of [peer, group]) {
      expect(() => target.notify("n", [], options as never)).toThrow(TypeError);
      expect(() => target.notify("n", [], options as never)).toThrow(message);
    }
    expect(sent).toEqual([]);
    expect(peer.stats().notificationsSent).toBe(0);
  });

  it("accepts the longest key, an empty one, and `volatile: false` beside a key", () => {
    const { peer, sent } = new Slow();
    peer.notify("n", [], { latest: "x".repeat(256) });
    peer.notify("n", [], { latest: "" });
    peer.notify("n", [], { volatile: false, latest: "a" });
    peer.notify("n", [], {});
    expect(sent).toHaveLength(4);
  });
});

describe("a volatile message", () => {
  it("is sent while less than an eighth of maxUnsentBytes is unsent", () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND - 1;
    expect(one.peer.notify("n", [1], { volatile: true })).toBe(true);
    groupOf(one.peer).notify("n", [2], { volatile: true });
    expect(one.messages).toEqual([
      ["n", 1],
      ["n", 2],
    ]);
    expect(one.peer.stats()).toMatchObject({ notificationsSent: 2, dropped: 0 });
  });

  it.each<[string, (one: Slow) => unknown]>([
    ["an eighth is unsent", (one) => (one.transport.unsentBytes = BEHIND)],
    ["the transport queues messages", (one) => (one.transport.isReady = false)],
    ["the peer is suspended", (one) => one.receiver.suspended!()],
    [
      "messages with a key wait for a slow reader",
      (one) => {
        one.transport.unsentBytes = BEHIND;
        one.peer.notify(...moved(1));
        one.transport.unsentBytes = 0;
      },
    ],
    ["the peer is closed", (one) => one.peer.close()],
  ])("is dropped if %s, and no statistic counts it", (_what, happen) => {
    const one = new Slow();
    happen(one);
    const before = one.peer.stats();
    expect(one.peer.notify("n", [1], { volatile: true })).toBe(false);
    groupOf(one.peer).notify("n", [2], { volatile: true });
    groupOf(one.peer).notify("n", [3], { volatile: true, whenSlow: "close" });
    expect(one.sent).toEqual([]);
    expect(one.peer.stats()).toEqual(before);
  });

  it("is dropped before `around` sees it", () => {
    const seen: string[] = [];
    const one = new Slow({
      around: ({ method }: { method: string }, next: () => unknown) => (seen.push(method), next()),
    });
    one.transport.unsentBytes = LIMIT;
    expect(one.peer.notify("n", [1], { volatile: true })).toBe(false);
    one.transport.unsentBytes = 0;
    expect(one.peer.notify("n", [2], { volatile: true })).toBe(true);
    expect([seen, one.messages]).toEqual([["n"], [["n", 2]]]);
  });
});

it("drops a volatile message if its peer becomes slow while `around` waits", async () => {
  const open = gate();
  const one = new Slow({ around: async (_call: unknown, next: () => unknown) => (await open.promise, next()) });
  expect(one.peer.notify("n", [1], { volatile: true })).toBe(true);
  one.transport.unsentBytes = LIMIT;
  open.resolve();
  await turn();
  expect([one.messages, one.peer.stats().dropped]).toEqual([[], 0]);
});

describe("a message with a key, to a slow reader whose transport has no queue", () => {
  it("is sent at once while less than an eighth of maxUnsentBytes is unsent", () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND - 1;
    one.peer.notify(...moved(1));
    one.peer.notify(...moved(2));
    expect(one.messages).toEqual([
      ["moved", 1],
      ["moved", 2],
    ]);
  });

  it("waits until the reader has caught up, and only the newest of its key is sent", async () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND;
    for (let n = 1; n <= 10; n++) {
      expect(one.peer.notify(...moved(n))).toBe(true);
      groupOf(one.peer).notify(...moved(n, "bob"));
    }
    await pass(1000);
    expect(one.sent).toEqual([]);
    await one.drain();
    expect(one.messages).toEqual([
      ["moved", 10],
      ["moved", 10],
    ]);
    one.peer.notify(...moved(11));
    expect(one.sent).toHaveLength(3);
    expect(one.peer.stats().dropped).toBe(0);
  });

  it.each<[string, (one: Slow) => unknown]>([
    ["a notification", (one) => one.peer.notify("left")],
    ["a request", (one) => void one.peer.request("left").catch(() => {})],
    ["a broadcast", (one) => groupOf(one.peer).notify("left")],
    ["a broadcast that may close", (one) => groupOf(one.peer).notify("left", undefined, { whenSlow: "close" })],
    ["a response", (one) => one.receiver.dispatch(request(1, "echo"))],
  ])("is sent right before %s, so that the order is kept", async (_what, send) => {
    const one = new Slow({ methods: { echo: () => "left" } });
    one.transport.unsentBytes = BEHIND;
    one.peer.notify(...moved(1));
    one.peer.notify(...moved(2));
    send(one);
    one.peer.notify(...moved(3));
    expect(one.sent.map((text) => /left|moved/.exec(text)![0])).toEqual(["moved", "left"]);
    await one.drain();
    expect(one.messages.at(-1)).toEqual(["moved", 3]);
    expect(one.sent).toHaveLength(3);
  });

  it("replaces the older one when the reader has caught up in between", () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND;
    one.peer.notify(...moved(1));
    one.peer.notify(...moved(1, "bob"));
    one.transport.unsentBytes = 0;
    one.peer.notify(...moved(2));
    expect(one.messages).toEqual([
      ["moved", 1],
      ["moved", 2],
    ]);
  });

  it("is sent before the peer closes, and no timer is left", async () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND;
    one.peer.notify(...moved(1));
    await one.peer.close();
    expect(one.messages).toEqual([["moved", 1]]);
    const lost = new Slow();
    lost.transport.unsentBytes = BEHIND;
    lost.peer.notify(...moved(1));
    lost.receiver.closed({ code: 1006, reason: "" });
    await pass(1000);
    expect(lost.sent).toEqual([]);
  });

  it("is sent before the peer closes, which is reported once if the bytes then unsent end the connection", async () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND;
    one.peer.notify(...moved(1));
    // More than a burst may be.
    one.transport.unsentBytes = 2 ** 30;
    await one.peer.close();
    expect(one.closes).toEqual([1013]);
    expect(await one.peer.closed).toMatchObject({ code: 1013 });
  });

  it("leaves nothing behind if it is refused for its length: a volatile message is sent as soon as the reader has caught up", () => {
    const one = new Slow();
    one.transport.unsentBytes = LIMIT;
    groupOf(one.peer).notify("moved", ["x".repeat(LIMIT)], { latest: "a" });
    expect(one.peer.stats().dropped).toBe(1);
    one.transport.unsentBytes = 0;
    expect(one.peer.notify("n", [], { volatile: true })).toBe(true);
  });

  it("waits up to a quarter of maxUnsentBytes: beyond it, a message of the peer is sent, and a broadcast is dropped from half on", () => {
    const one = new Slow();
    const text = "x".repeat(900);
    one.transport.unsentBytes = LIMIT / 2 + 1;
    const group = groupOf(one.peer);
    expect(group.notify("moved", [text], { latest: "a" })).toBeUndefined();
    group.notify("moved", [text], { latest: "b" });
    group.notify("moved", [text], { latest: "c" });
    expect([one.sent.length, one.peer.stats().dropped]).toEqual([0, 1]);
    // The key that waits is replaced.
    group.notify("moved", [text], { latest: "a" });
    expect(one.peer.stats().dropped).toBe(1);
    expect(one.peer.notify("moved", [text], { latest: "d" })).toBe(true);
    expect(one.sent).toHaveLength(3);
  });

  it("is dropped and counted if it is the oldest of more than 1,024 keys", async () => {
    const one = new Slow({ limits: { maxUnsentBytes: 2 ** 20 } });
    one.transport.unsentBytes = 2 ** 19;
    for (let n = 1; n <= 1025; n++) one.peer.notify(...moved(n, `key ${n}`));
    expect(one.peer.stats()).toMatchObject({ dropped: 1, notificationsSent: 1024 });
    await one.drain();
    expect(one.sent).toHaveLength(1024);
    expect(one.messages[0]).toEqual(["moved", 2]);
  });

  it("is dropped as a broadcast if the transport does not take it any more, and counted", async () => {
    const one = new Slow();
    one.transport.unsentBytes = BEHIND;
    groupOf(one.peer).notify(...moved(1));
    one.peer.notify(...moved(2, "bob"));
    const { send } = one.transport;
    // As a session does that is suspended by now: it takes no broadcast beyond its limits.
    one.transport.send = (text, handle, message) => message === undefined && send(text, handle);
    await one.drain();
    expect(one.messages).toEqual([["moved", 2]]);
    expect(one.peer.stats()).toMatchObject({ dropped: 1, notificationsSent: 1 });
  });

  it("as a broadcast does not count towards the bytes that close the connection, as often as it is replaced", async () => {
    const one = new Slow();
    const group = groupOf(one.peer);
    one.transport.unsentBytes = BEHIND;
    for (let n = 0; n < 1000; n++) group.notify(...moved(n));
    // Other messages alone exceed the limit, for ten seconds.
    one.transport.unsentBytes = LIMIT + 500;
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toEqual([1013]);
  });
});

/** A peer whose transport queues each message. */
function queueing(): { one: Slow; queue: HeldQueue } {
  const one = new Slow();
  const queue = new HeldQueue();
  one.transport.isReady = false;
  one.transport.send = (text, handle) => queue.add(text, handle) === undefined;
  Object.defineProperty(one.transport, "unsentBytes", { get: () => queue.length });
  return { one, queue };
}

describe("a broadcast with a key, in the queue of a transport", () => {
  it("does not count towards the bytes that close the connection, also if it replaces a shorter one", async () => {
    const { one, queue } = queueing();
    const group = groupOf(one.peer);
    group.notify("moved", ["x"], { latest: "a" });
    group.notify("moved", ["x".repeat(LIMIT)], { latest: "a" });
    one.peer.notify("n", ["x".repeat(LIMIT / 2)]);
    one.peer.notify("n");
    expect(queue.length).toBeGreaterThan(LIMIT * 1.5);
    await pass(10_000);
    expect(one.closes).toEqual([]);
  });

  it("counts no longer once a shorter one replaces it", async () => {
    const { one } = queueing();
    const group = groupOf(one.peer);
    group.notify("moved", ["x".repeat(LIMIT)], { latest: "a" });
    group.notify("moved", ["x"], { latest: "a" });
    one.peer.notify("n", ["x".repeat(LIMIT)]);
    one.peer.notify("n");
    await pass(10_000);
    expect(one.closes).toEqual([1013]);
  });
});

describe("the event `missed`", () => {
  it("has the count that the other side reports", () => {
    const one = new Slow();
    const counts: unknown[] = [];
    one.peer.on("missed", (info) => counts.push(info));
    one.receiver.missed!(3);
    one.receiver.dispatch(notification("n"));
    one.receiver.missed!(1);
    expect(counts).toEqual([{ count: 3 }, { count: 1 }]);
  });

  it("is not emitted by a closed peer", async () => {
    const one = new Slow();
    let isEmitted = false;
    one.peer.on("missed", () => (isEmitted = true));
    await one.peer.close();
    one.receiver.missed!(3);
    expect(isEmitted).toBe(false);
  });
});

function groupOf(peer: AnyPeer): PeerGroup<any, any, unknown> {
  return new PeerGroup(() => new Set([peer]), { around: undefined, canHave: () => true, report: expect.unreachable });
}
