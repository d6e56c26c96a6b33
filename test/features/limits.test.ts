/** Limits of methods: what each refuses and counts, and what a handler's timeout does, by virtual time. */
import { describe, expect, it } from "vitest";
import { contract, limits, serve, type AnyPeer, type Context, type MethodLimits } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { post, read } from "../support/post.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { pass, timersSet, useVirtualClock } from "../support/time.js";
import { gate, turn, untilAborted } from "../support/turns.js";

useVirtualClock();

const RAN = "ran";
const TWO_A_SECOND = { calls: 2, perMs: 1000 };
const no = (id: number, retryMs: number): object => failure(id, -32012, "Too many calls", { retryMs });

/** Returns a peer that serves `m` with these limits. */
function limited(ofM: MethodLimits, m: (params: any, context: Context) => unknown = () => RAN): RawPeer {
  return rawPeer({ methods: { m }, around: limits({ m: ofM }) });
}

/** Feeds messages, or requests of `m` with these ids, one after the other. Returns the messages that were sent since the last call. */
async function feed(raw: RawPeer, ...given: (number | object)[]): Promise<unknown[]> {
  for (const one of given) {
    raw.feed(typeof one === "number" ? request(one, "m") : one);
    await turn();
  }
  return raw.take();
}

/** Calls `m` by each of these peers in turn. Returns the results, and the data or the codes of errors. */
async function calls(...peers: AnyPeer[]): Promise<unknown[]> {
  const outcomes: unknown[] = [];
  for (const peer of peers)
    outcomes.push(await peer.request("m").catch(({ code, data }: any) => data?.retryMs ?? (code as number)));
  return outcomes;
}

describe("a rate", () => {
  it("of a peer, `peerRate`, lets a burst through and then a call each `perMs / calls`, and refuses others with the time to wait, uncounted", async () => {
    const around = limits({ m: { peerRate: TWO_A_SECOND }, n: { peerRate: { calls: 3, perMs: 100 } } });
    const methods = { m: () => RAN, n: () => RAN, free: () => RAN };
    const [raw, other] = [rawPeer({ methods, around }), rawPeer({ methods, around })];
    expect(await feed(raw, 1, 2, 3)).toEqual([result(1, RAN), result(2, RAN), no(3, 500)]);
    expect(await feed(other, 1, request(2, "free"))).toEqual([result(1, RAN), result(2, RAN)]);
    await pass(499);
    expect(await feed(raw, 4)).toEqual([no(4, 1)]);
    await pass(1);
    expect(await feed(raw, 5, 6)).toEqual([result(5, RAN), no(6, 500)]);
    await pass(60_000);
    expect(await feed(raw, 7, 8, 9)).toEqual([result(7, RAN), result(8, RAN), no(9, 500)]);
    // A third of 100 ms has no exact form. The whole bucket is free all the same, and `retryMs` is not too short.
    for (let i = 0; i < 5; i++) {
      await pass(100);
      const answers = await feed(raw, ...[1, 2, 3, 4].map((id) => request(id, "n")));
      expect(answers).toEqual([...[1, 2, 3].map((id) => result(id, RAN)), no(4, 34)]);
    }
    expect([raw.peer.stats().refusedRate, other.peer.stats().refusedRate]).toEqual([9, 0]);
  });

  it("counts each member of a batch, and drops a notification beyond it, which `stats()` counts and no event reports", async () => {
    const raw = limited({ peerRate: TWO_A_SECOND });
    expect(await feed(raw, [notification("m"), request(1, "m"), request(2, "m"), notification("m")])).toEqual([
      [result(1, RAN), no(2, 500)],
    ]);
    expect([raw.peer.stats().refusedRate, raw.errors]).toEqual([2, []]);
  });

  it("of a principal, `principalRate`, counts all its peers, also new ones, and both rates must allow a call", async () => {
    const ofM = { principalRate: { calls: 3, perMs: 3000 }, peerRate: TWO_A_SECOND };
    await using kit = testServer({
      authenticate: (_request, auth) => ({ user: String(auth) }),
      principal: ({ user }) => user,
      methods: { m: () => RAN },
      around: limits({ m: ofM }),
    });
    // `retry` is about lost connections: an answer settles the call.
    const connect = (auth: string): Promise<AnyPeer> => kit.connect(kit.server.url, { auth, retry: "always" });
    const [first, second, bob] = [await connect("ada"), await connect("ada"), await connect("bob")];
    // What the rate of the peer refuses takes no token of the principal.
    expect(await calls(first, first, first, first, second, second, bob)).toEqual([RAN, RAN, 500, 500, RAN, 1000, RAN]);
    await first.close();
    expect(await calls(await connect("ada"))).toEqual([1000]);
    expect(kit.server.stats().refusedRate).toBe(4);
  });

  it("of a principal counts the POSTs of one, each of which is a peer of its own", async () => {
    const ofM = { principalRate: { calls: 1, perMs: 60_000 }, peerRate: { calls: 1, perMs: 60_000 } };
    const server = await serve({
      port: 0,
      authenticate: ({ headers }) => String(headers["x-user"]),
      principal: String,
      methods: { m: () => RAN },
      around: limits({ m: ofM }),
    });
    const answers: unknown[] = [];
    for (const user of ["ada", "bob", "ada"])
      answers.push((await read(await post(server.url, request(1, "m"), { "x-user": user })))[1]);
    expect(answers).toMatchObject([{ result: RAN }, { result: RAN }, { error: { code: -32012 } }]);
    await server.close();
  });

  it("of a principal fails every call of a peer without one, which `error` reports", async () => {
    const raw = limited({ principalRate: TWO_A_SECOND });
    expect(await feed(raw, 1)).toMatchObject([{ error: { code: -32603 } }]);
    expect(raw.errors).toMatchObject([{ message: expect.stringContaining("requires a peer with a principal") }]);
  });

  it("keeps the counts of 10,000 principals, and forgets the one that called longest ago", async () => {
    const around = limits({ m: { principalRate: { calls: 1, perMs: 1e9 } } });
    await using kit = testServer({ authenticate: () => 0, principal: String, methods: { m: () => RAN }, around });
    const call = async (auth: number): Promise<unknown> => {
      const raw: unknown[] = [];
      let receiver!: { receive(text: string): void };
      const send = (text: string): boolean => raw.push(JSON.parse(text)) > 0;
      const peer = kit.server.accept({ start: (given) => (receiver = given), send, close: () => {} }, auth as never);
      receiver.receive(JSON.stringify(request(1, "m")));
      await turn();
      void peer.close();
      return raw[0];
    };
    const first = await call(1);
    for (let auth = 2; auth <= 10_000; auth++) void call(auth);
    expect([first, await call(1)]).toMatchObject([{ result: RAN }, { error: { code: -32012 } }]);
    expect([await call(10_001), await call(1)]).toMatchObject([{ result: RAN }, { result: RAN }]);
  });
});

it("`maxRunning` bounds the handlers of all peers, until each has ended, and what it refuses takes no token", async () => {
  const open = gate<string>();
  const around = limits({ m: { maxRunning: 1, peerRate: TWO_A_SECOND } });
  const [a, b] = [0, 1].map(() => rawPeer({ methods: { m: () => open.promise }, around })) as [RawPeer, RawPeer];
  expect([await feed(a, 1, 2, 3, notification("m")), await feed(b, 1)]).toEqual([
    [no(2, 1000), no(3, 1000)],
    [no(1, 1000)],
  ]);
  open.reject(new Error("failed"));
  await turn();
  expect(await feed(a, 4)).toMatchObject([
    { id: 1, error: { code: -32603 } },
    { id: 4, error: { code: -32603 } },
  ]);
  expect([a.peer.stats().refusedBusy, b.peer.stats().refusedBusy, a.peer.stats().refusedRate]).toEqual([3, 1, 0]);
});

describe("`timeoutMs`", () => {
  const LATE = failure(1, -32013, "Handler timed out", { timeoutMs: 50 });

  it("answers the caller, aborts the signal of the handler, reports `error`, and leaves calls that end in time alone", async () => {
    const aborted: unknown[] = [];
    const m = ([isSlow]: [boolean], context: Context): unknown =>
      isSlow ? untilAborted(context).catch((reason: unknown) => (aborted.push(reason), "late")) : RAN;
    const raw = limited({ timeoutMs: 50 }, m);
    expect(await feed(raw, request(0, "m", [false]))).toEqual([result(0, RAN)]);
    expect(await feed(raw, request(1, "m", [true]), notification("m", [true]))).toEqual([]);
    await pass(49);
    expect([await feed(raw), aborted]).toEqual([[], []]);
    await pass(1);
    expect(await feed(raw)).toEqual([LATE]);
    const cause = expect.objectContaining({ name: "TimeoutError", message: '"m" took longer than 50 ms' }) as Error;
    expect([aborted, raw.errors]).toMatchObject([
      [cause, cause],
      [
        { code: -32013, cause },
        { code: -32013, cause },
      ],
    ]);
  });

  it("may be set by two wrappers of a list, whose limits hold both, and places of `maxRunning` are free again", async () => {
    const around = [limits({ m: { timeoutMs: 100, maxRunning: 1 } }), limits({ m: { timeoutMs: 50 } })];
    const raw = rawPeer({ methods: { m: (_params, context: Context) => untilAborted(context) }, around });
    for (const id of [1, 1]) {
      expect(await feed(raw, id)).toEqual([]);
      await pass(50);
      expect(await feed(raw)).toEqual([LATE]);
    }
  });

  it("drops what the handler returns later, closes a stream in it, reports another failure, and keeps its place of `maxRunning` until then", async () => {
    let closed = 0;
    const source = (): object => ({ [Symbol.asyncIterator]: () => ({ return: async () => void closed++ }) });
    const ends = [gate<unknown>(), gate<unknown>(), gate<unknown>()] as const;
    const handlers = ends.values();
    const raw = limited({ timeoutMs: 50, maxRunning: 1 }, () => handlers.next().value!.promise);
    const late = new Error("late");
    for (const end of [
      () => ends[0].resolve(source()),
      () => ends[1].resolve({ list: raw.peer.offer(source() as never) }),
      () => ends[2].reject(late),
    ]) {
      expect(await feed(raw, 1)).toEqual([]);
      await pass(50);
      expect(await feed(raw, 2)).toMatchObject([LATE, { id: 2, error: { code: -32012 } }]);
      end();
      await turn();
      expect(await feed(raw)).toEqual([]);
    }
    expect([closed, raw.errors.pop()]).toEqual([2, late]);
  });

  it("leaves no timer once a handler has ended, its caller has cancelled, or the connection has ended, which aborts the signal", async () => {
    const signals: AbortSignal[] = [];
    const open = gate();
    const m = ([waits]: [boolean], { signal }: Context): unknown => (signals.push(signal), waits && open.promise);
    const raw = limited({ timeoutMs: 3_600_000 }, m);
    const ends = [() => {}, () => raw.feed(notification("$/cancelRequest", { id: 1 })), () => raw.cut()];
    for (const [id, end] of ends.entries()) {
      await feed(raw, request(id, "m", [id > 0]));
      end();
      await pass(1_000);
      expect(timersSet()).toBe(0);
    }
    expect(signals.map(({ reason }) => (reason as Error | undefined)?.message)).toEqual([
      undefined,
      "the caller cancelled",
      "closed with 1006",
    ]);
    open.resolve();
  });
});

it("the limits of a method are in the `meta` of its contract, unless the table has others, and outgoing calls have none", async () => {
  const meta = { limits: { peerRate: { calls: 1, perMs: 1000 } } };
  const api = contract({ m: { meta }, n: { meta }, bad: { meta: { limits: { maxRunning: 0 } } } });
  const around = limits({ n: { peerRate: TWO_A_SECOND } });
  const methods = { m: () => {}, n: () => {}, bad: () => {} };
  const raw = rawPeer({ contract: api, remote: api, methods, around } as object);
  const codesOf = async (method: string): Promise<unknown[]> =>
    (await feed(raw, ...[1, 2, 3].map((id) => request(id, method)))).map((one: any) => one.error?.code as unknown);
  expect([await codesOf("m"), await codesOf("n")]).toEqual([
    [undefined, -32012, -32012],
    [undefined, undefined, -32012],
  ]);
  expect(await feed(raw, request(4, "bad"))).toMatchObject([{ error: { code: -32603 } }]);
  expect(raw.errors).toMatchObject([{ message: expect.stringContaining("`contract.bad.meta.limits.maxRunning`") }]);
  for (let i = 0; i < 3; i++) raw.peer.notify("m");
  expect(raw.sent).toHaveLength(3);
});

it.each<[object, string]>([
  [{ m: 5 }, "Expected `limits.m` to be an object"],
  [{ m: { rate: {} } }, "Unknown name `rate` in `limits.m`"],
  [{ m: { peerRate: { calls: 1 } } }, "Expected `limits.m.peerRate.perMs` to be a finite positive number"],
  [{ m: { principalRate: { calls: 1.5, perMs: 1 } } }, "Expected `limits.m.principalRate.calls` to be a whole number"],
  [{ m: { maxRunning: 0 } }, "Expected `limits.m.maxRunning` to be a whole number from 1"],
  [{ m: { timeoutMs: -1 } }, "Expected `limits.m.timeoutMs` to be a positive number"],
])("refuses %j", (table, message) => expect(() => limits(table)).toThrow(message));
