/** What settles a call: the first of an answer, a timeout, an abort and the end of the connection. `outcomes.test.ts` has the outcomes. */
import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { ConnectionLostError, memory, RpcError, TimeoutError } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { countedSignal } from "../support/counting.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, request, result, type RawBehaviour, type RawPeer } from "../support/raw.js";
import { pass, useVirtualClock } from "../support/time.js";
import { gate, Outcomes, rejection, turn } from "../support/turns.js";

useVirtualClock();

interface Race {
  raw: RawPeer;
  controller: AbortController;
  listeners: () => number;
  outcomes: Outcomes;
}

/** The four events that may settle a call, and the outcome of each. */
const ENDS: Record<string, { happen: (one: Race) => unknown; outcome: object }> = {
  answer: { happen: ({ raw }) => raw.feed(result(1, "answered")), outcome: { value: "answered" } },
  timeout: { happen: () => pass(1000), outcome: { reason: expect.any(TimeoutError) } },
  abort: { happen: ({ controller }) => controller.abort("aborted"), outcome: { reason: "aborted" } },
  close: { happen: ({ raw }) => raw.cut(), outcome: { reason: expect.any(ConnectionLostError) } },
};

function permutations(names: string[]): string[][] {
  if (names.length < 2) return [names];
  return names.flatMap((first) => permutations(names.filter((name) => name !== first)).map((rest) => [first, ...rest]));
}

/** Makes a call that all four may settle. */
function raced(): Race {
  const raw = rawPeer();
  const { controller, listeners } = countedSignal();
  const call = raw.peer.request("m", undefined, { timeoutMs: 1000, signal: controller.signal });
  return { raw, controller, listeners, outcomes: new Outcomes().watch("call", call) };
}

describe("a call", () => {
  it.each(permutations(Object.keys(ENDS)).map((order) => [order.join(", "), order] as const))(
    "settles once, by the first of %s, and leaves neither a listener on its signal nor a timer",
    async (_name, order) => {
      const list = [{ name: "call", ...ENDS[order[0]!]!.outcome }];
      const race = raced();
      expect(race.listeners()).toBe(1);
      for (const name of order) {
        await ENDS[name]!.happen(race);
        await turn();
        expect(race.outcomes.list).toEqual(list);
        expect([race.listeners(), race.raw.peer.stats().pending]).toEqual([0, 0]);
      }
      if (order[0] === "timeout") return;
      const inOneTick = raced();
      for (const name of order) if (name !== "timeout") void ENDS[name]!.happen(inOneTick);
      await turn();
      expect(inOneTick.outcomes.list).toEqual(list);
    },
  );

  it("is settled by an answer or a loss inside send(), even if send() then returns false", async () => {
    const raw = rawPeer({}, { onSend: (text, self) => (self.feed(result(JSON.parse(text).id, "at once")), false) });
    expect(await raw.peer.request("m")).toBe("at once");
    const lost = rawPeer({}, { onSend: (_text, self) => self.cut() });
    expect(await rejection(lost.peer.request("m"))).toMatchObject({ outcome: "unknown" });
    expectEmpty(lost.peer);
  });

  it("rejects with the code, message and data of the error, falsy data included", async () => {
    const raw = rawPeer();
    const call = raw.peer.request("m");
    raw.feed(failure(1, 0, "", 0));
    const error = await rejection(call);
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: 0, message: "", data: 0 });
  });

  it("never reuses an id, and starts at 1", () => {
    const raw = rawPeer();
    for (const id of [1, 2, 3]) {
      void raw.peer.request("m").catch(() => {});
      if (id < 3) raw.feed(result(id, id));
    }
    expect(raw.messages().map(({ id }) => id)).toEqual([1, 2, 3]);
  });

  it("is found by its id among any number of others, and by no other value", async () => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    const answered: string[] = [];
    // Answers a call, and notes its id.
    const answer = (id: number): void => {
      raw.feed(result(id, id));
      answered.push(String(id));
    };
    for (let id = 1; id <= 1000; id++) outcomes.watch(String(id), raw.peer.request("m"));
    for (const id of ["1", "__proto__", 1.5, -1, 0, 1001, 2 ** 32 + 1, null, true, [1]]) raw.feed(result(id, "no"));
    // A step that shares no factor with 1000 reaches each id once, far from their order.
    for (let n = 0; n < 1000; n++) answer(((n * 617) % 1000) + 1);
    outcomes.watch("1001", raw.peer.request("m"));
    answer(1);
    answer(1001);
    answered.splice(-2, 1);
    await turn();
    expect(outcomes.list).toEqual(answered.map((id) => ({ name: id, value: Number(id) })));
    expect(raw.peer.stats()).toMatchObject({ pending: 0, unmatched: 11 });
  });

  it("is found by its id beside one that is much older, whichever is answered first", async () => {
    for (const isOldFirst of [true, false]) {
      const raw = rawPeer();
      const outcomes = new Outcomes();
      for (let id = 1; id <= 33; id++) {
        outcomes.watch(String(id), raw.peer.request("m"));
        // Ids of which 16 is a factor of the difference share a place in the table.
        if (id % 16 !== 1) raw.feed(result(id, id));
      }
      const rest = isOldFirst ? [1, 17, 33] : [17, 1, 33];
      for (const id of [49, ...rest]) raw.feed(result(id, id));
      await turn();
      expect(outcomes.names.slice(-3)).toEqual(rest.map(String));
      expect(raw.peer.stats()).toMatchObject({ pending: 0, unmatched: 1 });
    }
  });

  it("rejects in the order of the calls when the connection ends", async () => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    const names = Array.from({ length: 100 }, (_, i) => String(i));
    for (const name of names) outcomes.watch(name, raw.peer.request("m"));
    raw.cut();
    await turn();
    expect(outcomes.names).toEqual(names);
  });
});

describe("a lost connection", () => {
  it("is the cause of the errors of its calls", async () => {
    const causes: [Parameters<RawPeer["cut"]>[0], object][] = [
      [{ error: new Error("ECONNRESET") }, new Error("ECONNRESET")],
      [{ code: 1001, reason: "going away" }, new Error("closed with 1001 (going away)")],
      [{ code: 1001 }, new Error("closed with 1001")],
    ];
    for (const [info, cause] of causes) {
      const { peer, cut } = rawPeer();
      const call = peer.request("m");
      cut(info);
      expect(await rejection(call)).toMatchObject({ message: '"m" may have run: the connection was lost', cause });
      const late = await rejection(peer.request("m"));
      expect(late).toMatchObject({ message: '"m" was not sent: no connection', cause });
    }
  });

  it("rejects its calls at once on close(), before the transport has ended, and takes no other", async () => {
    const { peer, cut, sent } = rawPeer({}, { endsOnClose: false });
    const call = peer.request("m");
    const closing = peer.close(4000, "done here");
    expect((await rejection(call)).cause).toMatchObject({ message: "closed on this side with 4000 (done here)" });
    expect(await rejection(peer.request("m"))).toMatchObject({ outcome: "not-sent" });
    expect(peer.notify("said")).toBe(false);
    cut();
    await closing;
    expect(sent).toHaveLength(1);
  });

  it("rejects a later call for its invalid arguments first", async () => {
    const raw = rawPeer();
    void raw.peer.close();
    expect(await rejection(raw.peer.request("m", 5))).toBeInstanceOf(TypeError);
    expect(await rejection(raw.peer.request("m", [], { signal: AbortSignal.abort("gone") }))).toBe("gone");
  });
});

const REFUSING: RawBehaviour = { onSend: () => false };
const BROKEN: RawBehaviour = {
  onSend: () => {
    throw new Error("broken transport");
  },
};

describe("a transport that takes no message", () => {
  it.each<[string, RawBehaviour, unknown[]]>([
    ["returns false", REFUSING, []],
    ["throws", BROKEN, [new Error("broken transport")]],
  ])("makes calls fail as not sent when it %s, and reports only what it threw", async (_how, behaviour, thrown) => {
    const { peer, errors } = rawPeer({}, behaviour);
    const { controller, listeners } = countedSignal();
    const error = await rejection(peer.request("m", [], { signal: controller.signal }));
    expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent", cause: expect.any(Error) });
    expect(listeners()).toBe(0);
    expect(errors.splice(0)).toEqual(thrown);
    const batch = peer.batch();
    const calls = [batch.request("a"), batch.request("b")];
    batch.send();
    for (const call of calls) expect(await rejection(call)).toMatchObject({ outcome: "not-sent" });
    expect(peer.notify("said")).toBe(false);
    expect(peer.state).toBe("open");
    expectEmpty(peer);
  });

  it("drops only the reply if it refuses a reply", async () => {
    const raw = rawPeer({ methods: { m: () => 1 } }, BROKEN);
    raw.feed(request(1, "m"));
    await turn();
    expect([raw.errors.length, raw.peer.state]).toEqual([1, "open"]);
  });
});

describe("aborting a call", () => {
  it.each([undefined, null, 0, ""])("rejects with the reason unchanged, `%s` included", async (reason) => {
    const { peer } = rawPeer();
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    expect(await rejection(call)).toBe(controller.signal.reason);
  });

  it.each([
    ["a string", "soon"],
    ["null", null],
    ["an object without addEventListener", { aborted: false }],
    ["an object without removeEventListener", { aborted: false, addEventListener: () => {} }],
  ])("refuses %s as a signal", async (_kind, signal) => {
    const { peer, sent } = rawPeer();
    const error = await rejection(peer.request("m", [], { signal: signal as AbortSignal }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toMatch(/^Expected `signal` to be an AbortSignal, got /);
    expect(sent).toEqual([]);
    expectEmpty(peer);
  });
});

describe("many calls with one signal", () => {
  it("add one listener to it, over all connections, and remove it with the last", async () => {
    const raws = Array.from({ length: 12 }, () => rawPeer());
    const { controller, listeners } = countedSignal();
    const { signal } = controller;
    const calls = raws.flatMap(({ peer }) => [peer.request("m", [], { signal }), peer.request("n", [], { signal })]);
    const read = raws.map(({ peer }) => peer.stream("tail", [], { signal })[Symbol.asyncIterator]().next());
    const settled = Promise.allSettled([...calls, ...read]);
    await turn();
    expect(listeners()).toBe(1);
    for (const { feed } of raws) for (const id of [1, 2, 3]) feed(result(id, { values: [] }));
    await settled;
    expect(listeners()).toBe(0);
    const again = raws.map(({ peer }) => peer.request("m", [], { signal }));
    controller.abort("all");
    expect(await Promise.all(again.map(rejection))).toEqual(raws.map(() => "all"));
    expect(listeners()).toBe(0);
  });

  it("add one listener to it, of a fan-out in a handler to peers, topics, streams and remote peers", async () => {
    const engine = memory();
    const fan = gate<AbortSignal>();
    const methods = {
      fan: async (_params: unknown, { signal, peer }: any) => {
        const targets = [peer, server.peer(elsewhere), server.topic("all").add(peer)];
        const calls = targets.map((target) => target.request("wait", [], { signal }));
        calls.push(peer.stream("wait", [], { signal })[Symbol.asyncIterator]().next());
        fan.resolve(signal);
        await Promise.allSettled(calls);
      },
    };
    const wait = { methods: { wait: () => new Promise(() => {}) } };
    await using here = testServer<any, any, any>({ engine, methods });
    await using there = testServer<any, any, any>({ engine });
    const { server } = here;
    await there.connect(there.server.url, wait);
    const elsewhere = [...there.server.peers][0]!.id;
    const client = await here.connect(server.url, wait);
    const stop = new AbortController();
    const call = rejection(client.request("fan", [], { signal: stop.signal }));
    const signal = await fan.promise;
    // Node warns of more than ten.
    expect(getEventListeners(signal, "abort")).toHaveLength(1);
    stop.abort("enough");
    expect(await call).toBe("enough");
    await turn();
    expect(getEventListeners(signal, "abort")).toHaveLength(0);
  });
});
