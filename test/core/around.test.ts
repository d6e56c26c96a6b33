import { describe, expect, it } from "vitest";
import { RpcError, type Around, type Call } from "../../src/index.js";
import { connectedPair, expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";

const markBoth: Around = async (call, next) => {
  call.params = [...call.params, call.direction];
  return { [call.direction]: await next() };
};

const fromCache: Around = () => "cached";

const goOnTwice: Around = async (_call, next) => Promise.all([next(), next()]);

const tryAgain: Around = (_call, next) => next().catch(() => next());

const spoilParams =
  (drop: boolean): Around =>
  (call, next) => {
    call.params = 5;
    return drop ? void next() : next();
  };

const markParams: Around = (call, next) => {
  if (call.method === "marked") call.params.token = "t";
  else call.params = { by: "around" };
  return call.method === "dropped" ? undefined : next();
};

function forbid(): never {
  throw new RpcError(403, "forbidden");
}

describe("around, for requests", () => {
  it("wraps calls in both directions, from the outermost to the innermost and back", async () => {
    const log: string[] = [];
    const logs =
      (name: string): Around =>
      async ({ direction, method, id }, next) => {
        log.push(`${name} ${direction} ${method} ${id}`);
        const value = await next();
        log.push(`${name} ${direction} done`);
        return value;
      };
    await using pair = connectedPair(
      { methods: { m: () => void log.push("handler") }, around: logs("a") },
      { around: logs("b") },
    );
    await pair.b.request("m");
    expect(log).toEqual(["b outgoing m 1", "a incoming m 1", "handler", "a incoming done", "b outgoing done"]);
  });

  it("receives the peer and the handler's context", async () => {
    const calls: Call[] = [];
    const around: Around = (call, next) => (calls.push(call), next());
    let context: unknown;
    await using pair = connectedPair(
      { methods: { m: (_params, given) => void (context = given) }, around },
      { around },
    );
    await pair.b.request("m", { x: 1 });
    const [outgoing, incoming] = calls;
    expect(outgoing).toMatchObject({ direction: "outgoing", params: { x: 1 }, context: undefined });
    expect(outgoing!.peer).toBe(pair.b);
    expect(incoming!.peer).toBe(pair.a);
    expect(incoming!.context).toBe(context);
  });

  it("may change the params and the result on either side", async () => {
    await using pair = connectedPair({ methods: { echo: (params) => params }, around: markBoth }, { around: markBoth });
    expect(await pair.b.request("echo", [0])).toEqual({ outgoing: { incoming: [0, "outgoing", "incoming"] } });
  });

  it("may return a result without calling next, so that no handler runs and nothing is sent", async () => {
    let ran = 0;
    const served = rawPeer({ methods: { m: () => ran++ }, around: fromCache });
    served.feed(request(1, "m"));
    expect(served.messages()).toEqual([result(1, "cached")]);
    expect(ran).toBe(0);
    const calling = rawPeer({ around: fromCache });
    expect(await calling.peer.request("m")).toBe("cached");
    expect(calling.sent).toEqual([]);
    expectEmpty(calling.peer);
  });

  it.each<[string, Around]>([
    ["throws", () => forbid()],
    ["rejects", async () => forbid()],
  ])("may refuse a call on either side, which rejects when it %s", async (_name, refuse) => {
    const served = rawPeer({ methods: { m: () => 1 }, around: refuse });
    served.feed(request(1, "m"));
    await turn();
    expect(served.messages()).toEqual([failure(1, 403, "forbidden")]);
    expect(served.errors).toEqual([]);
    const calling = rawPeer({ around: refuse });
    expect(await rejection(calling.peer.request("m"))).toMatchObject({ code: 403 });
    expect(calling.sent).toEqual([]);
  });

  it("reports its own failure in full to the `error` event, and sends none of it", async () => {
    const bug = new Error("secret");
    const raw = rawPeer({ methods: { m: () => 1 }, around: () => Promise.reject(bug) });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([failure(1, -32603, "Internal error")]);
    expect(raw.errors).toEqual([bug]);
  });

  it("may ignore the promise of next without an unhandled rejection", async () => {
    const raw = rawPeer({
      methods: { m: () => Promise.reject(new Error("dropped")) },
      around: (_call, next) => {
        void next();
        return "went on";
      },
    });
    raw.feed(request(1, "m"));
    await turn();
    expect(raw.messages()).toEqual([result(1, "went on")]);
    expect(await rejection(raw.peer.request("m", 5).then((value) => Promise.reject(value as Error)))).toBe("went on");
  });

  it("may await before it calls next", async () => {
    const open = gate();
    const raw = rawPeer({ methods: { m: () => "ran" }, around: async (_call, next) => (await open.promise, next()) });
    raw.feed(request(1, "m"));
    const call = raw.peer.request("n");
    await turn();
    expect(raw.sent).toEqual([]);
    open.resolve();
    await turn();
    expect(raw.messages()).toContainEqual(result(1, "ran"));
    expect(raw.messages()).toContainEqual(request(1, "n"));
    raw.feed(result(1, "answered"));
    expect(await call).toBe("answered");
  });

  it("settles every call when an outgoing one calls next twice", async () => {
    const { peer, messages, feed } = rawPeer({ around: goOnTwice });
    const outcomes = new Outcomes().watch("call", peer.request("m"));
    const ids = messages().map(({ id }) => id);
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) feed(result(id, id));
    await turn();
    expect(outcomes.list).toEqual([{ name: "call", value: ids }]);
    expectEmpty(peer);
  });

  it("may retry after a failure, under a new id", async () => {
    const { peer, messages, feed } = rawPeer({ around: tryAgain });
    const call = peer.request("m");
    feed(failure(1, -32009, "Server is busy"));
    await turn();
    const second = messages()[1].id;
    expect(second).not.toBe(1);
    feed(result(second, "at last"));
    expect(await call).toBe("at last");
  });

  it("rejects a call whose next runs after the connection ended", async () => {
    const open = gate();
    const { peer, sent } = rawPeer({ around: async (_call, next) => (await open.promise, next()) });
    const call = peer.request("m");
    void peer.close();
    open.resolve();
    expect(await rejection(call)).toMatchObject({ outcome: "not-sent" });
    expect(sent).toEqual([]);
  });
});

describe("around, for notifications", () => {
  it("wraps them in both directions, with no id", async () => {
    const seen: unknown[] = [];
    const around: Around = ({ direction, method, id }, next) => (seen.push(direction, method, id), next());
    const raw = rawPeer({ methods: { heard: () => void seen.push("handler") }, around });
    raw.feed(notification("heard"));
    expect(raw.peer.notify("said")).toBe(true);
    expect(seen).toEqual(["incoming", "heard", undefined, "handler", "outgoing", "said", undefined]);
    expect(raw.messages()).toEqual([notification("said")]);
  });

  it("may change their params, also in place, and may drop them", async () => {
    const { peer, messages } = rawPeer({ around: markParams });
    peer.notify("dropped");
    peer.notify("said", { by: "caller" });
    peer.notify("marked", { a: 1 });
    expect(messages()).toEqual([notification("said", { by: "around" }), notification("marked", { a: 1, token: "t" })]);
  });

  it("emits what it throws, in either direction, and sends no answer", async () => {
    const bug = new Error("bug in around");
    const raw = rawPeer({
      methods: { m: () => {} },
      around: () => {
        throw bug;
      },
    });
    raw.feed(notification("m"));
    raw.peer.notify("said");
    await turn();
    expect(raw.errors).toEqual([bug, bug]);
    expect(raw.sent).toEqual([]);
  });

  it("emits the error and leaves no rejection unobserved when it sets invalid params", async () => {
    const passed = rawPeer({ around: spoilParams(false) });
    passed.peer.notify("said");
    await turn();
    expect(passed.errors).toEqual([expect.any(TypeError)]);
    // An unobserved rejection would fail the run.
    const dropped = rawPeer({ around: spoilParams(true) });
    dropped.peer.notify("said");
    await turn();
    expect(dropped.sent).toEqual([]);
  });
});

describe("around, in batches", () => {
  it("wraps each incoming and outgoing member", async () => {
    const seen: string[] = [];
    const around: Around = ({ direction, method }, next) => (seen.push(`${direction} ${method}`), next());
    await using pair = connectedPair({ methods: { a: () => 1, b: () => 2 }, around }, { around });
    const batch = pair.b.batch();
    const calls = [batch.request("a"), batch.request("b")];
    batch.notify("a");
    batch.send();
    expect(await Promise.all(calls)).toEqual([1, 2]);
    expect(seen).toEqual(
      ["a", "b", "a"].flatMap((m) => `outgoing ${m}`).concat(["a", "b", "a"].map((m) => `incoming ${m}`)),
    );
  });

  it("sends a call alone when its `around` calls next after the batch was sent", async () => {
    const open = gate();
    const around: Around = async (call, next) => {
      if (call.method === "slow") await open.promise;
      return next();
    };
    const { peer, messages, feed } = rawPeer({ around });
    const batch = peer.batch();
    const calls = [batch.request("quick"), batch.request("slow")];
    batch.send();
    expect(messages()).toEqual([[request(1, "quick")]]);
    open.resolve();
    await turn();
    expect(messages()[1]).toEqual(request(2, "slow"));
    feed([result(1, "Q")]);
    feed(result(2, "S"));
    expect(await Promise.all(calls)).toEqual(["Q", "S"]);
    expect(peer.stats().pending).toBe(0);
  });
});
