import { describe, expect, it } from "vitest";
import { RpcError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { connectedPair, type AnyOptions } from "../support/pair.js";
import { failure, rawPeer, request, result } from "../support/raw.js";
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

  it.each<[string, AnyOptions]>([
    [
      "an asynchronous schema",
      { schemas: { slow: { "~standard": { validate: async (value: unknown) => (await turn(), { value }) } } } },
    ],
    [
      "an `around` that waits",
      {
        around: async ({ method }: { method: string }, next: () => unknown) => (
          method === "slow" && (await turn()),
          next()
        ),
      },
    ],
  ])("start after handlers of later messages if they have %s, which delays no other", async (_what, options) => {
    const started: string[] = [];
    const methods = { slow: () => void started.push("slow"), quick: () => void started.push("quick") };
    await using pair = connectedPair({ methods, ...options });
    await Promise.all(["slow", "quick", "quick"].map((name) => pair.b.request(name, [])));
    expect(started).toEqual(["quick", "quick", "slow"]);
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

describe("maxReplyBytes", () => {
  it("applies to an error's data too", async () => {
    const raw = rawPeer({
      limits: { maxReplyBytes: 200 },
      methods: { m: () => Promise.reject(new RpcError(1, "no", "x".repeat(300))) },
    });
    raw.feed(request(2, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(2, -32008, "Response is too large", { maxReplyBytes: 200 })]);
  });
});

describe("maxBatchEntries", () => {
  it("does not count answers, because they settle this side's own calls", async () => {
    const raw = rawPeer({ limits: { maxBatchEntries: 2 } });
    const batch = raw.peer.batch();
    const calls = [1, 2, 3].map(() => batch.request("m"));
    batch.send();
    raw.feed([1, 2, 3].map((id) => result(id, id)));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
    expect(raw.sent).toHaveLength(1);
  });
});
