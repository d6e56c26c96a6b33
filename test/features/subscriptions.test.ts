import { describe, expect, it } from "vitest";
import { mcp, RpcError, Subscriptions, type Context } from "../../src/node.js";
import type { Subscription, SubscriptionsOptions } from "../../src/node.js";
import type { AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, sessionPeer, type RawBehaviour } from "../support/raw.js";
import { gate, pass, timersSet, turn, useVirtualClock } from "../support/time.js";
import { cancelMcp } from "./kit.js";

useVirtualClock();

/** Subscriptions with ids 1, 2, ..., and the methods that open and close them; `prepare` runs before the call is answered. */
function served(
  prepare: (subscription: Subscription, context: Context) => unknown = () => {},
  limits?: SubscriptionsOptions["limits"],
) {
  let lastId = 0;
  const subscriptions = new Subscriptions({ method: "push", nextId: () => ++lastId, limits });
  const opened: Subscription[] = [];
  const methods: NonNullable<AnyOptions["methods"]> = {
    async subscribe(_params, context) {
      const subscription = subscriptions.open(context);
      opened.push(subscription);
      await prepare(subscription, context);
      return subscription.id;
    },
    unsubscribe: ([id], { peer }) => subscriptions.close(peer, id),
  };
  return { subscriptions, opened, methods };
}

interface Given extends AnyOptions, RawBehaviour {
  readonly maxQueued?: number;
}

function subscribing(
  prepare?: Parameters<typeof served>[0],
  { maxQueued = 256, onSend, afterRead, endsOnClose = true, ...options }: Given = {},
  message: unknown = request(1, "subscribe"),
) {
  const all = served(prepare, { maxQueued });
  const behaviour = { onSend, afterRead, endsOnClose } as RawBehaviour;
  const raw = rawPeer({ ...options, methods: { ...all.methods, ...options.methods } }, behaviour);
  raw.feed(message);
  return { ...all, raw };
}

const push = (subscription: unknown, value: unknown): object => notification("push", { subscription, result: value });
const pushes = (...values: unknown[]): object[] => values.map((value) => push(1, value));

const first = ({ notify }: Subscription): boolean => notify("first");

function pushUnencodable({ notify }: Subscription): void {
  for (const value of [1n, new Map(), { at: new Map() }, [new Set()]]) expect(() => notify(value)).toThrow(TypeError);
}

describe("a push", () => {
  it("is queued until the reply to the whole batch of its call, and while an `around` delays the reply", async () => {
    const answer = gate();
    const wait = (): Promise<void> => answer.promise;
    const batch = [request(1, "subscribe"), request(2, "wait")];
    const inBatch = subscribing(first, { methods: { wait } }, batch);
    const around = subscribing(first, {
      async around({ direction }, next) {
        const value = await next();
        if (direction === "incoming") await answer.promise;
        return value;
      },
    });
    await pass(1000);
    expect([inBatch.raw.take(), around.raw.take()]).toEqual([[], []]);
    answer.resolve();
    await pass(0);
    expect(inBatch.raw.take()).toEqual([[result(1, 1), result(2, null)], push(1, "first")]);
    expect(around.raw.take()).toEqual([result(1, 1), push(1, "first")]);
  });

  it("is encoded when it is made, even if it is queued, and throws in its caller if it cannot be", async () => {
    const head = { number: 1 };
    const { raw, opened } = subscribing((subscription) => {
      subscription.notify(head);
      head.number = 2;
      pushUnencodable(subscription);
    });
    await pass(0);
    pushUnencodable(opened[0]!);
    expect(raw.take()).toEqual([result(1, 1), push(1, { number: 1 })]);
  });

  it("that an `around` makes while queued ones are sent is sent after them", async () => {
    const { raw, opened } = subscribing(({ notify }) => [1, 2].map(notify), {
      around: ({ direction, params }, next) => {
        if (direction === "outgoing" && params.result < 3) opened[0]!.notify(params.result + 10);
        return next();
      },
    });
    await pass(0);
    expect(raw.take().slice(1)).toEqual(pushes(1, 2, 11, 12));
  });

  it("is refused beyond `maxQueued` until the reply was sent", async () => {
    const taken: boolean[] = [];
    const { raw, opened } = subscribing(({ notify }) => taken.push(...[1, 2, 3].map(notify)), { maxQueued: 2 });
    await pass(0);
    taken.push(...[4, 5, 6].map(opened[0]!.notify));
    expect(taken).toEqual([true, true, false, true, true, true]);
    expect(raw.take()).toEqual([result(1, 1), ...pushes(1, 2, 4, 5, 6)]);
  });
});

/** Returns a peer on a transport with read marks, which pushes twice before its reply. */
function marking(maxQueued?: number) {
  const reads: (() => void)[] = [];
  const given = { maxQueued, afterRead: (read: () => void) => reads.push(read) > 0 };
  return { ...subscribing(({ notify }) => ["a", "b"].map(notify), given as Given), reads };
}

describe("on a transport that reports what the other side has read, a push", () => {
  it("is sent when the reply was read, after earlier pushes", async () => {
    const { raw, reads, opened } = marking();
    await pass(900);
    opened[0]!.notify("c");
    expect(raw.take()).toEqual([result(1, 1)]);
    expect(reads).toHaveLength(1);
    reads[0]!();
    expect(raw.take()).toEqual(pushes("a", "b", "c"));
    opened[0]!.notify(undefined);
    expect(raw.take()).toEqual(pushes(null));
  });

  it("is sent once, after a second, if the transport does not report that the reply was read", async () => {
    const { raw, reads } = marking();
    await pass(999);
    expect(raw.take()).toEqual([result(1, 1)]);
    await pass(1);
    expect(raw.take()).toEqual(pushes("a", "b"));
    reads[0]!();
    expect(raw.take()).toEqual([]);
  });

  it("beyond `maxQueued` sends the queued ones if the reply was sent", async () => {
    const { raw, opened } = marking(2);
    await turn();
    expect(opened[0]!.notify("c")).toBe(true);
    expect(raw.take()).toEqual([result(1, 1), ...pushes("a", "b", "c")]);
  });
});

describe("a subscription", () => {
  it("ends when its own peer unsubscribes by its id, or when this side closes it, once", async () => {
    const { raw, methods, opened, subscriptions } = subscribing();
    await pass(0);
    raw.take();
    const subscription = opened[0]!;
    const other = rawPeer({ methods });
    other.feed(request("a", "unsubscribe", [1]));
    for (const [i, id] of ["1", 2, null, "constructor"].entries()) raw.feed(request(i, "unsubscribe", [id]));
    expect([...other.take(), ...raw.take()]).toEqual(["a", 0, 1, 2, 3].map((id) => result(id, false)));
    expect([subscription.signal.aborted, subscriptions.size]).toEqual([false, 1]);
    for (const id of ["b", "c"]) raw.feed(request(id, "unsubscribe", [1]));
    expect(raw.take()).toEqual([result("b", true), result("c", false)]);
    expect([subscription.signal.aborted, subscription.notify(1), subscriptions.size]).toEqual([true, false, 0]);
    raw.feed(request("d", "subscribe"));
    expect([opened[1]!.close(), opened[1]!.close()]).toEqual([true, false]);
    expect([opened[1]!.signal.aborted, subscriptions.size]).toEqual([true, 0]);
  });

  it("drops queued pushes when it ends between two of them", async () => {
    const onSend = (text: string): void => void (text.includes("push") && opened[0]!.close());
    const { raw, opened } = subscribing(({ notify }) => [1, 2].map(notify), { onSend });
    await pass(0);
    expect(raw.take()).toEqual([result(1, 1), push(1, 1)]);
  });

  it("sends nothing and leaves no timer when the peer closes with queued pushes", async () => {
    const { raw, opened, subscriptions } = subscribing(first, { endsOnClose: false });
    await turn();
    const closed = raw.peer.close();
    expect(opened[0]!.notify(2)).toBe(false);
    raw.cut();
    await closed;
    await turn();
    // The timer of all deadlines may stay for a second after the last one.
    await pass(1_000);
    expect([opened[0]!.signal.aborted, timersSet(), subscriptions.size]).toEqual([true, 0, 0]);
    expect(raw.take()).toEqual([result(1, 1)]);
  });

  it("ends when the peer's session is lost", async () => {
    const { subscriptions, opened, methods } = served();
    const { transport, take } = sessionPeer({ methods });
    transport.feed(request(1, "subscribe"));
    await pass(0);
    expect(take()).toEqual([result(1, 1)]);
    transport.suspend();
    transport.lose(new Error("expired"));
    expect([opened[0]!.signal.aborted, subscriptions.size]).toEqual([true, 0]);
  });

  it("ends when its call is answered with an error, alone and in a batch", async () => {
    const { raw, subscriptions } = subscribing(({ notify }) => {
      notify(1);
      throw new RpcError(7, "no");
    });
    raw.feed([request(2, "subscribe")]);
    await pass(0);
    expect(subscriptions.size).toBe(0);
    expect(raw.take()).toEqual([failure(1, 7, "no"), [failure(2, 7, "no")]]);
  });

  it("is ended from the start when a notification opens it, or the peer is closed", async () => {
    const answer = gate();
    const { methods, opened, subscriptions } = served();
    const late = async (params: unknown, context: Context): Promise<unknown> => {
      await answer.promise;
      return methods["subscribe"]!(params, context);
    };
    const raw = rawPeer({ methods: { ...methods, late } });
    raw.feed(notification("subscribe"));
    expect(opened[0]!.signal.aborted).toBe(true);
    raw.feed(request(1, "late"));
    await raw.peer.close();
    answer.resolve();
    await turn();
    for (const { signal, notify } of opened) expect([signal.aborted, notify(1)]).toEqual([true, false]);
    expect([opened.length, subscriptions.size, raw.take()]).toEqual([2, 0, []]);
  });

  it("ends when the response of its call is not sent: refused by the transport, or cancelled under mcp", async () => {
    const refused = subscribing(undefined, { onSend: () => false });
    await turn();
    expect([refused.raw.peer.state, refused.subscriptions.size]).toEqual(["open", 0]);
    const answer = gate();
    const prepare = async ({ notify }: Subscription): Promise<unknown> => (notify(1), answer.promise);
    const { raw, opened, subscriptions } = subscribing(prepare, { dialect: mcp });
    raw.feed(cancelMcp(1));
    answer.resolve();
    await pass(0);
    expect([opened[0]!.signal.aborted, subscriptions.size, raw.take()]).toEqual([true, 0, []]);
  });

  it("can be one of several that a single call opens", async () => {
    const others = new Subscriptions({ method: "push", nextId: () => "other" });
    const { raw } = subscribing(({ notify }, context) => {
      notify("first");
      others.open(context).notify("second");
    });
    await pass(0);
    expect(raw.take()).toEqual([result(1, 1), push(1, "first"), push("other", "second")]);
  });
});

it("maxPerPeer refuses further subscriptions of a peer with -32006, until one is closed", async () => {
  const { methods } = served(undefined, { maxPerPeer: 2 });
  const [one, other] = [rawPeer({ methods }), rawPeer({ methods })];
  for (const id of ["a", "b"]) one.feed(request(id, "subscribe"));
  await turn();
  one.feed(request("c", "subscribe"));
  other.feed(request("d", "subscribe"));
  await turn();
  one.feed(request("e", "unsubscribe", [1]));
  one.feed(request("f", "subscribe"));
  await turn();
  expect(one.take()).toEqual([
    result("a", 1),
    result("b", 2),
    failure("c", -32006, "Too many subscriptions", { maxPerPeer: 2 }),
    result("e", true),
    result("f", 4),
  ]);
  expect(other.take()).toEqual([result("d", 3)]);
});

describe("an invalid subscription", () => {
  it.each<[string, object]>([
    ["`method`", {}],
    ["`nextId`", { method: "m", nextId: 5 }],
    ["`limits.maxQueued`", { method: "m", limits: { maxQueued: 0 } }],
  ])("is a TypeError that names the invalid option: %s", (name, options) => {
    const create = (): unknown => new Subscriptions(options as SubscriptionsOptions);
    expect(create).toThrow(expect.objectContaining({ name: "TypeError", message: expect.stringContaining(name) }));
  });

  it("is a TypeError for a value that is not a handler's context, and an Error for an answered call", () => {
    const subscriptions = new Subscriptions({ method: "m" });
    let kept!: Context;
    const subscribe = (_params: unknown, context: Context): unknown => subscriptions.open((kept = context)).id;
    const raw = rawPeer({ methods: { subscribe } });
    for (const context of [{ peer: raw.peer }, undefined])
      expect(() => subscriptions.open(context as never)).toThrow(/^Expected `context` to be .*, got /);
    raw.feed(request(1, "subscribe"));
    expect(() => subscriptions.open(kept)).toThrow(/^"subscribe" /);
    expect(raw.messages()).toEqual([result(1, expect.stringMatching(/^0x[1-9a-f]{32}$/))]);
  });

  it.each([
    ["in use", "1"],
    ["null", null],
    ["an object", {}],
  ])("is a TypeError for an id that is %s", (_name, id) => {
    const ids = ["1", id];
    const subscriptions = new Subscriptions({ method: "m", nextId: () => ids.shift() as string });
    const raw = rawPeer({ methods: { subscribe: (_params, context) => subscriptions.open(context).id } });
    for (const call of [1, 2]) raw.feed(request(call, "subscribe"));
    expect(raw.messages()[1]).toEqual(failure(2, -32603, "Internal error"));
    expect(raw.errors).toMatchObject([{ message: expect.stringContaining("Expected `nextId()` to be an id") }]);
    expect(subscriptions.size).toBe(1);
  });
});
