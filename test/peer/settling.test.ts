/** What settles a call: the first of an answer, a timeout, an abort and the end of the connection. `outcomes.test.ts` has the outcomes. */
import { describe, expect, it } from "vitest";
import { ConnectionLostError, memory, TimeoutError } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { expectEmpty, inBatch } from "../support/pair.js";
import { rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { countedSignal, Outcomes, pass, raising, rejection, turn, useVirtualClock } from "../support/time.js";

useVirtualClock();

type Race = ReturnType<typeof raced>;

/** The four events that may settle a call, and the outcome of each. */
const ENDS: Record<string, { happen: (one: Race) => unknown; outcome: object }> = {
  answer: { happen: ({ raw }) => raw.feed(result(1, "answered")), outcome: { value: "answered" } },
  timeout: { happen: () => pass(1000), outcome: { reason: expect.any(TimeoutError) } },
  abort: { happen: ({ controller }) => controller.abort("aborted"), outcome: { reason: "aborted" } },
  close: { happen: ({ raw }) => raw.cut(), outcome: { reason: expect.any(ConnectionLostError) } },
};
const NAMES = Object.keys(ENDS);

function raced() {
  const raw = rawPeer();
  const { controller, listeners } = countedSignal();
  const call = raw.peer.request("m", undefined, { timeoutMs: 1000, signal: controller.signal });
  return { raw, controller, listeners, outcomes: new Outcomes().watch("call", call) };
}

describe("a call", () => {
  it.each(NAMES.flatMap((first) => NAMES.map((second) => [first, second])))(
    "settles once, by %s, whatever follows: %s, and leaves neither a listener on its signal nor a timer",
    async (first, second) => {
      const list = [{ name: "call", ...ENDS[first]!.outcome }];
      const race = raced();
      expect(race.listeners()).toBe(1);
      for (const name of [first, second]) {
        await ENDS[name]!.happen(race);
        await turn();
        expect(race.outcomes.list).toEqual(list);
        expect([race.listeners(), race.raw.peer.stats().pending]).toEqual([0, 0]);
      }
      if ([first, second].includes("timeout")) return;
      const inOneTick = raced();
      for (const name of [first, second]) void ENDS[name]!.happen(inOneTick);
      await turn();
      expect(inOneTick.outcomes.list).toEqual(list);
    },
  );

  it("is settled by an answer or a loss inside send(), even if send() then returns false", async () => {
    const raw = rawPeer({}, { onSend: (text, self) => (self.feed(result(JSON.parse(text).id, "at once")), false) });
    expect(await raw.peer.request("m")).toBe("at once");
    const lost = rawPeer({}, { onSend: (_text, self) => self.end() });
    expect(await rejection(lost.peer.request("m"))).toMatchObject({ outcome: "unknown" });
    const batch = rawPeer({}, { onSend: (text, { feed }) => feed([result(JSON.parse(text)[0].id, "at once")]) });
    expect(await inBatch(batch.peer, "m")).toBe("at once");
    for (const { peer } of [lost, batch]) expectEmpty(peer);
  });

  it("is found by its id among any number of others, and by no other value", async () => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    for (let id = 1; id <= 1000; id++) outcomes.watch(String(id), raw.peer.request("m"));
    for (const id of ["1", "__proto__", 1.5, -1, 0, 1001, 2 ** 32 + 1, null, true, [1]]) raw.feed(result(id, "no"));
    // A step that shares no factor with 1000 reaches each id once, far from their order.
    const ids = Array.from({ length: 1000 }, (_, n) => ((n * 617) % 1000) + 1);
    for (const id of [...ids, 1]) raw.feed(result(id, id));
    await turn();
    expect(outcomes.list).toEqual(ids.map((id) => ({ name: String(id), value: id })));
    expect(raw.peer.stats()).toMatchObject({ pending: 0, unmatched: 11 });
  });

  it.each([[[1, 17, 33]], [[17, 1, 33]]])("is found by its id beside one that is much older: %j", async (rest) => {
    const raw = rawPeer();
    const outcomes = new Outcomes();
    for (let id = 1; id <= 33; id++) {
      outcomes.watch(String(id), raw.peer.request("m"));
      // Ids of which 16 is a factor of the difference share a place in the table.
      if (id % 16 !== 1) raw.feed(result(id, id));
    }
    for (const id of [49, ...rest]) raw.feed(result(id, id));
    await turn();
    expect(outcomes.names.slice(-3)).toEqual(rest.map(String));
    expect(raw.peer.stats()).toMatchObject({ pending: 0, unmatched: 1 });
  });
});

it("a lost connection is the cause of the errors of its calls, which reject in their order", async () => {
  const causes: [Parameters<RawPeer["cut"]>[0], RegExp][] = [
    [{ error: new Error("ECONNRESET") }, /^ECONNRESET$/],
    [{ code: 1001, reason: "going away" }, /1001 .*going away/],
    [{ code: 1001 }, /1001$/],
  ];
  for (const [info, text] of causes) {
    const { peer, cut } = rawPeer();
    const outcomes = new Outcomes();
    for (const name of ["1", "2", "3"]) outcomes.watch(name, peer.request("m"));
    cut(info);
    const late = await rejection(peer.request("m"));
    const cause = expect.objectContaining({ message: expect.stringMatching(text) });
    const reason = expect.objectContaining({ code: "CONNECTION_LOST", cause });
    expect(outcomes.list).toEqual(["1", "2", "3"].map((name) => ({ name, reason })));
    expect(late).toMatchObject({ code: "CONNECTION_LOST", cause });
  }
});

it("a lost connection rejects its calls at once on close(), before the transport has ended, and takes no other", async () => {
  const { peer, cut, sent } = rawPeer({}, { endsOnClose: false });
  const call = peer.request("m");
  const closing = peer.close(4000, "done here");
  expect((await rejection(call)).cause).toMatchObject({ message: expect.stringMatching(/4000 .*done here/) });
  expect(await rejection(peer.request("m"))).toMatchObject({ code: "CONNECTION_LOST" });
  // Invalid arguments are found first.
  expect(await rejection(peer.request("m", 5))).toBeInstanceOf(TypeError);
  cut();
  await closing;
  expect(sent).toHaveLength(1);
});

const broken = new Error("broken transport");
const raise = raising(broken);

it.each<[string, () => boolean, unknown[]]>([
  ["returns false", () => false, []],
  ["throws", raise, [broken]],
])("a transport that %s makes calls fail as not sent, and reports what it threw", async (_how, onSend, thrown) => {
  const { peer, errors, feed } = rawPeer({ methods: { m: () => 1 } }, { onSend });
  const { controller, listeners } = countedSignal();
  const error = await rejection(peer.request("m", [], { signal: controller.signal }));
  expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent", cause: expect.any(Error) });
  expect([listeners(), errors.splice(0)]).toEqual([0, thrown]);
  expect(await rejection(inBatch(peer, "a"))).toMatchObject({ outcome: "not-sent" });
  expect(peer.notify("said")).toBe(false);
  errors.length = 0;
  // A reply is dropped.
  feed(request(1, "m"));
  expect([peer.state, errors]).toEqual(["open", thrown]);
  expectEmpty(peer);
});

it("a call is aborted with the reason unchanged", async () => {
  const { peer } = rawPeer();
  for (const reason of [undefined, null, 0, ""]) {
    const controller = new AbortController();
    const call = peer.request("m", [], { signal: controller.signal });
    controller.abort(reason);
    expect(await rejection(call)).toBe(controller.signal.reason);
  }
});

it("many calls with one signal add one listener to it, over all connections, and remove it with the last", async () => {
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

it("many calls with one signal add one listener to it, of a fan-out to peers, topics, streams and remote peers", async () => {
  const engine = memory();
  const wait = { methods: { wait: () => new Promise(() => {}) } };
  await using here = testServer<any, any, any>({ engine });
  await using there = testServer<any, any, any>({ engine });
  for (const { connect, server } of [here, there]) await connect(server.url, wait);
  const [[peer], [elsewhere]] = [[...here.server.peers], [...there.server.peers]];
  const { controller, listeners } = countedSignal();
  const { signal } = controller;
  const targets = [peer!, here.server.peer(elsewhere!.id), here.server.topic("all").add(peer!)];
  const calls: Promise<unknown>[] = targets.map((target) => target.request("wait", [], { signal }));
  calls.push(peer!.stream("wait", [], { signal })[Symbol.asyncIterator]().next());
  const settled = Promise.allSettled(calls);
  await turn();
  // Node warns of more than ten.
  expect(listeners()).toBe(1);
  controller.abort("enough");
  await settled;
  expect(listeners()).toBe(0);
});
