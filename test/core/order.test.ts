import { describe, expect, it } from "vitest";
import { RpcError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, Outcomes, rejection, turn, type Gate } from "../support/turns.js";

/** Methods that wait for gates which the test opens. */
function gated(): { gates: Map<string, Gate<unknown>>; methods: Record<string, (params: any) => unknown> } {
  const gates = new Map<string, Gate<unknown>>();
  const wait = ([name]: [string]): Promise<unknown> => {
    gates.set(name, gate<unknown>());
    return gates.get(name)!.promise;
  };
  return { gates, methods: { wait } };
}

describe("handlers", () => {
  it("start in the order in which their messages arrived, requests and notifications alike", async () => {
    const started: number[] = [];
    const m = async ([n]: [number]): Promise<void> => {
      started.push(n);
      await turn();
    };
    await using pair = connectedPair({ methods: { m } });
    const calls = [pair.b.request("m", [1])];
    pair.b.notify("m", [2]);
    calls.push(pair.b.request("m", [3]));
    const batch = pair.b.batch();
    calls.push(batch.request("m", [4]));
    batch.notify("m", [5]);
    batch.send();
    pair.b.notify("m", [6]);
    await Promise.all(calls);
    expect(started).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("run concurrently, and are answered in the order they finish", async () => {
    const { gates, methods } = gated();
    await using pair = connectedPair({ methods });
    const outcomes = new Outcomes();
    for (const name of ["one", "two", "three"]) outcomes.watch(name, pair.b.request("wait", [name]));
    await turn();
    expect([...gates.keys()]).toEqual(["one", "two", "three"]);
    for (const name of ["three", "one", "two"]) {
      gates.get(name)!.resolve(name);
      await turn();
    }
    expect(outcomes.names).toEqual(["three", "one", "two"]);
  });

  it("answer a batch once, in request order, when all are done", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods });
    raw.feed([request("a", "wait", ["a"]), notification("wait", ["n"]), 1, request("b", "wait", ["b"])]);
    gates.get("b")!.resolve("B");
    await turn();
    expect(raw.sent).toEqual([]);
    gates.get("a")!.resolve("A");
    await turn();
    expect(raw.messages()).toEqual([[result("a", "A"), failure(null, -32600, "Invalid Request"), result("b", "B")]]);
    gates.get("n")!.resolve(0);
    await turn();
    expect(raw.sent).toHaveLength(1);
  });

  it("answer both of two requests that share an id", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods });
    raw.feed(request(null, "wait", ["a"]));
    raw.feed(request(null, "wait", ["b"]));
    for (const name of ["b", "a"]) gates.get(name)!.resolve(name);
    await turn();
    expect(raw.messages()).toEqual([result(null, "b"), result(null, "a")]);
  });

  it("send no answer after the peer closed", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods });
    raw.feed(request(1, "wait", ["a"]));
    raw.feed([request(2, "wait", ["b"])]);
    await raw.peer.close();
    for (const { resolve } of gates.values()) resolve(1);
    await turn();
    expect(raw.sent).toEqual([]);
    expect(inspect(raw.peer).running).toBe(0);
  });

  it("do not start after the peer closed, the rest of a batch included", () => {
    const ran: unknown[] = [];
    const raw = rawPeer({
      methods: {
        close: (_params, { peer }) => void peer.close(),
        m: ([n]) => void ran.push(n),
      },
    });
    raw.feed([request(1, "m", [1]), request(2, "close"), request(3, "m", [2])]);
    raw.feed(request(4, "m", [3]));
    expect(ran).toEqual([1]);
    expect(raw.sent).toEqual([]);
  });
});

describe("maxInFlight", () => {
  it("refuses requests beyond it with -32009, until a handler ends", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods, limits: { maxInFlight: 2 } });
    for (const id of [1, 2, 3]) raw.feed(request(id, "wait", [`${id}`]));
    expect(raw.messages()).toEqual([failure(3, -32009, "Server is busy")]);
    gates.get("1")!.resolve("done");
    await turn();
    raw.feed(request(4, "wait", ["4"]));
    expect([...gates.keys()]).toEqual(["1", "2", "4"]);
    gates.get("2")!.reject(null);
    await turn();
    raw.feed(request(5, "wait", ["5"]));
    expect(gates.has("5")).toBe(true);
    await raw.peer.close();
    for (const { resolve } of gates.values()) resolve(0);
  });

  it("counts the requests of a batch, and answers those it refuses in their places", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods, limits: { maxInFlight: 1 } });
    raw.feed([request(1, "wait", ["a"]), request(2, "wait", ["b"])]);
    gates.get("a")!.resolve("A");
    await turn();
    expect(raw.messages()).toEqual([[result(1, "A"), failure(2, -32009, "Server is busy")]]);
  });

  it("does not count notifications, synchronous handlers or answers", async () => {
    const { gates, methods } = gated();
    const raw = rawPeer({ methods: { ...methods, quick: () => "quick" }, limits: { maxInFlight: 1 } });
    raw.feed(notification("wait", ["n"]));
    raw.feed(notification("wait", ["m"]));
    raw.feed(request(1, "quick"));
    raw.feed(request(2, "quick"));
    raw.feed(request(3, "wait", ["r"]));
    const call = raw.peer.request("m");
    raw.feed(result(1, "answered"));
    expect(await call).toBe("answered");
    expect(raw.messages().slice(0, 2)).toEqual([result(1, "quick"), result(2, "quick")]);
    for (const { resolve } of gates.values()) resolve(0);
    await turn();
    expect(inspect(raw.peer).running).toBe(0);
  });

  it("cannot deadlock two peers that call each other during a call", async () => {
    const options: AnyOptions = {
      limits: { maxInFlight: 2 },
      methods: {
        ping: async ([depth], { peer }) =>
          depth === 0 ? 0 : 1 + ((await peer.request("ping", [depth - 1])) as number),
      },
    };
    await using pair = connectedPair(options, options);
    // Four nested calls reach the limit of both sides. The fifth is refused and fails them all, one by one.
    expect(await pair.b.request("ping", [3])).toBe(3);
    const error = await rejection(pair.b.request("ping", [4]));
    expect(error).toMatchObject({ code: -32603 });
    const codes = pair.takeErrors().map(({ cause }: any) => cause.code as unknown);
    expect(codes).toEqual([-32009, -32603, -32603, -32603]);
    const outcomes = new Outcomes();
    for (let i = 0; i < 4; i++) {
      outcomes.watch("from a", pair.a.request("ping", [1]));
      outcomes.watch("from b", pair.b.request("ping", [1]));
    }
    await turn();
    expect(outcomes.list).toHaveLength(8);
    for (const one of pair.takeErrors()) expect(one).toMatchObject({ cause: { code: -32009 } });
    expect(inspect(pair.a).running + inspect(pair.b).running).toBe(0);
  });
});

const tooLarge = (id: number): object => failure(id, -32008, "Response is too large", { maxReplyBytes: 200 });

describe("maxReplyBytes", () => {
  const limits = { maxReplyBytes: 200 };

  it("counts the whole reply in UTF-8, and replaces a longer one with -32008", () => {
    const raw = rawPeer({ methods: { repeat: ([text, times]) => text.repeat(times) }, limits });
    const envelope = '{"jsonrpc":"2.0","id":1,"result":""}'.length;
    raw.feed(request(1, "repeat", ["x", 200 - envelope]));
    expect(Buffer.byteLength(raw.sent[0]!)).toBe(200);
    raw.feed(request(1, "repeat", ["x", 201 - envelope]));
    raw.feed(request(2, "repeat", ["é", 100]));
    raw.feed(request(3, "repeat", ["😀", 41]));
    expect(raw.messages().slice(1)).toMatchObject([tooLarge(1), tooLarge(2), { result: "😀".repeat(41) }]);
  });

  it("applies to an error's data too", async () => {
    const raw = rawPeer({ limits, methods: { m: () => Promise.reject(new RpcError(1, "no", "x".repeat(300))) } });
    raw.feed(request(2, "m"));
    await turn();
    expect(raw.messages()).toEqual([tooLarge(2)]);
  });

  it("bounds a batch's reply as a whole, with -32008 in place of each answer that does not fit", () => {
    const raw = rawPeer({ methods: { text: ([length]) => "x".repeat(length) }, limits });
    raw.feed([request(1, "text", [80]), request(2, "text", [80]), request(3, "text", [1])]);
    const [reply] = raw.messages();
    expect(reply[0]).toEqual(result(1, "x".repeat(80)));
    expect(reply[1]).toEqual(tooLarge(2));
    expect(reply[2]).toEqual(result(3, "x"));
  });
});

describe("maxBatchEntries", () => {
  it("refuses a larger batch whole with one -32010, and runs none of it", () => {
    let ran = 0;
    const raw = rawPeer({ methods: { m: () => ++ran }, limits: { maxBatchEntries: 2 } });
    raw.feed([request(1, "m"), request(2, "m")]);
    raw.feed([request(1, "m"), notification("m"), 5]);
    expect(ran).toBe(2);
    expect(raw.messages()[1]).toEqual(failure(null, -32010, "Batch is too large", { maxBatchEntries: 2 }));
    expect(raw.sent).toHaveLength(2);
  });

  it("does not count answers, because they settle this side's own calls", async () => {
    const raw = rawPeer({ limits: { maxBatchEntries: 2 } });
    const batch = raw.peer.batch();
    const calls = [1, 2, 3].map(() => batch.request("m"));
    batch.send();
    raw.feed([1, 2, 3].map((id) => result(id, id)));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
  });
});
