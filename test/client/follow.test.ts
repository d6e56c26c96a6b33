import { describe, expect, it, onTestFinished, vi } from "vitest";
import { follow, open, RpcError } from "../../src/index.js";
import type { AnyPeer, FollowedTopic, Joined, TopicState } from "../../src/index.js";
import { testServer, type TestClientOptions } from "../../src/testing/index.js";
import { Random } from "../faults/random.js";
import { gate, pass, useVirtualClock } from "../support/time.js";

type ServerApi = { join(p: { id: string; since?: string }): Joined<number[]>; leave(p: { id: string }): void };
type PageApi = { added?(p: { n: number }): void };

const added = (list: number[], { n }: { n: number }): number[] => {
  if (n < 0) throw new Error("negative");
  return [...list, n];
};
const OPTIONS = { reduce: { added }, leave: "leave" } as const;

function boardsOf(topic: (id: string) => { join: any; delete: any; publish: any }) {
  const lists: Record<string, number[]> = { a: [], b: [] };
  const board = {
    /** Whether each join had a position. */
    joins: [] as boolean[],
    loads: 0,
    /** Runs before a join, in place of the load of "a", and on what a join has done. */
    before: (): unknown => undefined,
    load: (): unknown => lists["a"],
    reply: (joined: Joined<any>, _id: string): unknown => joined,
  };
  const methods = {
    async join({ id, since }: { id: string; since?: string }, { peer }: { peer: AnyPeer }): Promise<Joined<number[]>> {
      board.joins.push(since !== undefined);
      await board.before();
      const load = (): unknown => (board.loads++, id === "a" ? board.load() : lists[id]);
      return (await board.reply(await topic(id).join(peer, { since, load }), id)) as Joined<number[]>;
    },
    leave: ({ id }: { id: string }, { peer }: { peer: AnyPeer }) => void topic(id).delete(peer),
  };
  const add = (n: number, id = "a"): Promise<string> => {
    lists[id] = [...lists[id]!, n];
    return topic(id).publish("added", { n });
  };
  return { board, lists, methods, add };
}

/** Publishes what a client with `SHORT` misses. */
const pad = (topic: { publish: any }): Promise<unknown> => topic.publish("padded", { text: "x".repeat(20_000) });
const SHORT = { limits: { maxMessageBytes: 10_000 } };

/** What a store shows: its numbers, in brackets if they are not current, and its error. */
const textOf = ({ value = [], isCurrent, error }: TopicState<number[]>): string =>
  (isCurrent ? value.join(" ") : `(${value.join(" ")})`) + (error === undefined ? "" : ` ${(error as Error).message}`);

function serverOf(methods: ReturnType<typeof boardsOf>["methods"], length: number) {
  const kit = testServer<ServerApi, PageApi>({ topics: () => ({ log: { length, ttlMs: 1_000 } }), methods });
  kit.server.on("error", () => {});
  onTestFinished(() => kit.server.close());
  return kit;
}

async function start(clientOptions: TestClientOptions<ServerApi, PageApi> = {}) {
  const { methods, ...boards } = boardsOf((id) => kit.server.topic(id));
  const kit = serverOf(methods, 5);
  const peer = await kit.connect(kit.server.url, { reconnect: true, ...clientOptions });
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push((error as Error).message));
  const show = (id = "a"): FollowedTopic<number[]> => follow(peer, "join", { id }, OPTIONS);
  const store = show();
  const settle = () => kit.network.settle();
  const shown = async (): Promise<string> => (await settle(), textOf(store.get()));
  return { ...kit, ...boards, settle, peer, errors, show, store, shown, topic: kit.server.topic("a") };
}

describe("a followed topic", () => {
  useVirtualClock();

  it("loads the state, applies the publications of its topic, and notifies once for those of one microtask", async () => {
    const { add, board, network, shown, show, store, topic } = await start();
    expect(textOf(store.get())).toBe("()");
    await add(1);
    const other = show("b");
    expect(await shown()).toBe("1");
    let count = 0;
    const end = store.subscribe(() => count++);
    network.stop();
    await add(2);
    await add(7, "b");
    await add(3);
    topic.notify("added", { n: 9 }); // no publication
    await pad(topic);
    network.start();
    expect([await shown(), textOf(other.get()), count]).toEqual(["1 2 3", "7", 1]);
    expect([board.joins, store.get() === store.get()]).toEqual([[false, false], true]);
    end();
    await add(4);
    expect([await shown(), count]).toEqual(["1 2 3 4", 1]);
  });

  it("joins again after growing delays while more than 1,000 publications arrive during each join", async () => {
    const { board, shown, topic } = await start();
    board.reply = async (joined) => {
      await Promise.all(Array.from({ length: 1_001 }, () => topic.publish("added", { n: 0 })));
      return joined;
    };
    expect(await shown()).toBe("()");
    await pass(10_000);
    expect(board.joins.length).toBeLessThan(8);
    board.reply = (joined) => joined;
    await pass(5_000);
    expect(await shown()).toBe("");
  });

  it("shows why its peer is closed, and keeps no timer, if a join was overtaken", async () => {
    const { board, peer, server, settle, store } = await start();
    peer.emit("missed", { count: 1 });
    await settle();
    board.before = () => gate().promise;
    await pass(0);
    peer.emit("missed", { count: 1 });
    await [...server.peers][0]!.close(4401, "bye");
    await settle();
    expect(store.get().error).toBeInstanceOf(Error);
  });

  it("joins again after `missed`, and after a session is lost, and loads only if publications are missing", async () => {
    const { add, board, network, peer, shown, store, topic } = await start(SHORT);
    const states: unknown[] = [];
    await shown();
    store.subscribe(() => states.push(store.get().isCurrent));
    await add(1);
    peer.emit("missed", { count: 1 });
    expect([await shown(), board.loads, board.joins]).toEqual(["1", 1, [false, true]]);
    await pad(topic);
    expect([await shown(), board.loads]).toEqual(["1", 2]);
    network.stop();
    for (const n of [2, 3]) await add(n);
    network.lose();
    expect(await shown()).toBe("(1)");
    network.start();
    await pass(0);
    expect([await shown(), board.loads]).toEqual(["1 2 3", 2]);
    network.stop();
    network.lose();
    for (const n of [4, 5, 6, 7, 8, 9]) await add(n);
    network.start();
    await pass(1_000);
    expect([await shown(), board.loads]).toEqual(["1 2 3 4 5 6 7 8 9", 3]);
    expect(states.join()).toMatch(/^true(,false,true)+$/);
  });

  it("loads again if a limit of its own has dropped a publication", async () => {
    const { add, shown } = await start({ limits: { maxMessagesPerSecond: 1 } });
    for (const n of [1, 2, 3]) await add(n).then(shown);
    await pass(1_000);
    await add(4);
    expect(await shown()).toBe("1 2 3 4");
  });

  it("joins again, once, if publications go missing during a join", async () => {
    const { add, board, shown, peer, topic } = await start(SHORT);
    await shown();
    const loaded = gate();
    board.load = () => loaded.promise;
    await pad(topic);
    await shown();
    for (let i = 0; i < 3; i++) await pad(topic);
    await add(1);
    expect([await shown(), board.loads]).toEqual(["()", 2]);
    board.load = () => [1];
    loaded.resolve();
    await shown();
    await pass(0);
    expect([await shown(), board.loads]).toEqual(["1", 3]);
    // More than are kept.
    board.load = async () => {
      for (let n = 2; n <= 1_002; n++) await add(n);
      board.load = () => [2];
      return [];
    };
    await pad(topic);
    await shown();
    await pass(500);
    expect([await shown(), board.loads, peer.stats().pending]).toEqual(["2", 5, 0]);
  });

  it("loads again if its log has expired, which is a gap for all members", async () => {
    const { add, board, server, shown } = await start();
    const gaps: unknown[] = [];
    server.on("gap", (...gap) => gaps.push(gap));
    await add(1);
    await shown();
    await pass(86_400_000 + 2_000);
    await add(2);
    expect([await shown(), board.loads, gaps]).toEqual(["1 2", 2, [["a", "another log began"]]]);
  });

  it("loads again if a reducer throws, and the peer emits `error`", async () => {
    const { add, board, errors, shown } = await start();
    await shown();
    await add(-1);
    await add(2);
    expect(await shown()).toBe("() negative");
    await pass(0);
    expect([await shown(), errors, board.loads]).toEqual(["-1 2", ["negative"], 2]);
  });

  it("tries again with growing delays if a join fails, and shows why", async () => {
    const { add, board, shown } = await start();
    board.load = () => Promise.reject(new Error("the database is down"));
    expect(await shown()).toBe("() Internal error");
    await pass(60_000);
    // After 0 s, 0.25 to 0.5, 0.5 to 1, 1 to 2, 2 to 4, and then 2.5 to 5 s.
    expect(board.joins.length).toBeGreaterThan(13);
    expect(board.joins.length).toBeLessThan(30);
    board.load = () => [1];
    await pass(5_000);
    await add(2);
    expect(await shown()).toBe("1 2");
  });

  it("does not try again by itself if the server refuses the peer, also from a topic that it was shown", async () => {
    const { board, network, errors, shown, topic } = await start();
    await shown();
    board.before = () => Promise.reject(new RpcError(403, "not yours"));
    topic.delete([...topic][0]!);
    network.lose();
    await pass(60_000);
    expect([await shown(), board.joins.length]).toEqual(["() not yours", 2]);
    board.before = () => {};
    network.lose();
    await pass(0);
    expect([await shown(), errors]).toEqual(["", []]);
  });

  it("shows an error for what `topic.join` does not return with `load`", async () => {
    const { board, shown } = await start();
    for (const reply of [null, 5, {}, { at: "x", outcome: "gap", value: [] }, { at: "x.1" }, { outcome: "complete" }]) {
      board.reply = () => reply;
      await pass(5_000);
      expect(await shown()).toMatch(/^\(\) Expected "join" to return what/);
    }
  });

  it("leaves a topic when its last store is closed, behind a join in progress", async () => {
    const { add, board, errors, settle, show, store, topic } = await start();
    const other = show();
    await settle();
    store.close();
    const last = show();
    other.close();
    await add(1);
    await settle();
    expect([store, other, last].map((one) => textOf(one.get()))).toEqual(["()", "()", "1"]);
    const loaded = gate();
    board.load = () => loaded.promise;
    const joining = show();
    joining.subscribe(() => expect.unreachable());
    await settle();
    for (const one of [last, joining, joining]) one[Symbol.dispose]();
    await settle();
    const { size } = topic;
    loaded.resolve();
    await settle();
    expect([size, topic.size, textOf(joining.get()), errors]).toEqual([1, 0, "()", []]);
  });

  it("is not current while the peer is suspended, and shows why a peer is closed", async () => {
    const { network, peer, show, settle, shown, server } = await start();
    await shown();
    network.stop();
    network.cut();
    expect(await shown()).toBe("()");
    show("b").close();
    expect([await shown(), peer.stats()]).toMatchObject(["()", { pending: 0, notificationsSent: 0 }]);
    network.start();
    await pass(0);
    expect(await shown()).toBe("");
    const joining = show();
    void [...server.peers][0]!.close(4401, "bye");
    await settle();
    const late = show();
    await settle();
    expect([await shown(), peer.state]).toEqual([expect.stringMatching(/^\(\) .*4401/), "closed"]);
    expect([joining, late].map((one) => one.get().error)).toEqual([expect.any(Error), expect.any(Error)]);
  });

  it("reports what its listeners throw, and checks its options", async () => {
    const { add, connect, errors, peer, server, shown, store } = await start();
    store.subscribe(() => Promise.reject(new Error("mine")));
    store.subscribe(() => expect.unreachable("mine too"));
    await add(1);
    expect([await shown(), new Set(errors).size]).toEqual(["1", 2]);
    const wrong = [undefined, {}, { reduce: { added: 5 } }, { reduce: {}, leave: 5 }, { reduce: {}, leaves: "leave" }];
    for (const options of wrong) expect(() => follow(peer, "join", { id: "a" }, options as never)).toThrow(TypeError);
    expect(() => follow(peer, "join", { id: 5n as never }, { reduce: {} })).toThrow(TypeError);
    const other = await connect(server.url, { fallback: () => {}, methods: { added: () => {} } });
    expect(() => follow(other, "join", { id: "a" }, OPTIONS)).toThrow("method `added`, which would take");
    expect(() => follow(other, "join", { id: "a" }, { reduce: {} })).toThrow("`fallback`, which would take");
  });

  it("is what the server has, whenever it says that it is current, in random runs", async () => {
    const counts = { loads: 0, completes: 0, lost: 0, missed: 0, thrown: 0, failed: 0 };
    for (let seed = 0; seed < 8; seed++) {
      const random = new Random(seed);
      const { board, lists, methods, add } = boardsOf((id) => kit.server.topic(id));
      /** The state at each offset of the present log. */
      let states: Record<string, number[][]>;
      const restart = () => {
        states = { a: [lists["a"]!], b: [lists["b"]!] };
        return serverOf(methods, 20);
      };
      let kit = restart();
      const later = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, random.pick([0, 0, 20])));
      board.before = async () => {
        await later();
        if (random.chance(0.1)) throw new RpcError(-32603, `failure ${++counts.failed}`);
      };
      board.reply = async (joined, id) => {
        counts[joined.outcome === "complete" ? "completes" : "loads"]++;
        const value = states[id]![Number(joined.at!.split(".")[1])]!;
        await later();
        return { ...joined, value };
      };
      vi.stubGlobal("WebSocket", function (...given: [string, string[]]) {
        return new kit.WebSocket(...given);
      });
      const reduce = {
        added: (list: number[], params: { n: number }) =>
          random.chance(0.05) ? added(list, { n: -++counts.thrown }) : added(list, params),
      };
      const stores = [10_000, 1_000_000].flatMap((maxMessageBytes) => {
        const options = { reconnect: { initial: true }, limits: { maxMessageBytes } };
        const peer = open<ServerApi, PageApi>("ws://boards", options);
        for (const event of ["lost", "missed"] as const) peer.on(event, () => counts[event]++);
        peer.on("error", () => {});
        const make = (id: string) => follow(peer, "join", { id }, { reduce, leave: "leave" });
        return ["a", "a", "b"].map((id) => ({ peer, id, make, store: make(id) }));
      });
      let isStopped = false;
      const check = async (isEnd: boolean): Promise<void> => {
        await kit.network.settle();
        for (const { id, store } of stores) {
          const { value = [], isCurrent } = store.get();
          // No number is missing, and none is there twice.
          const expected = isCurrent && !isStopped ? lists[id] : lists[id]!.slice(0, value.length);
          expect([value, isCurrent || isEnd], `run ${seed}`).toEqual([expected, isCurrent]);
        }
      };
      const log = (publish: (id: string) => Promise<unknown>): void => {
        const id = random.pick(["a", "b"]);
        void publish(id);
        states[id]!.push(lists[id]!);
      };
      const more = () => log((id) => add(lists[id]!.length, id));
      const wait = () => pass(random.pick([0, 10, 300, 6_000]));
      const flow = () => (kit.network.start(), (isStopped = false));
      const often: (() => unknown)[] = [more, more, more, wait, flow];
      const rare: (() => unknown)[] = [
        () => log((id) => pad(kit.server.topic(id))),
        () => kit.network.cut(),
        () => (kit.network.stop(), (isStopped = true)),
        () => random.chance(0.5) && kit.network.lose(),
        () => random.chance(0.5) && (void kit.server.close(), (kit = restart()), (isStopped = false)),
        () => {
          const one = random.pick(stores);
          one.store.close();
          one.store = one.make(one.id);
        },
      ];
      for (let i = 0; i < 150; i++) {
        await random.pick(random.chance(0.35) ? rare : often)();
        if (random.chance(0.7)) await check(false);
      }
      flow();
      await pass(20_000);
      await check(true);
      for (const { store } of stores) store.close();
      await kit.network.settle();
      expect([kit.server.topic("a").size, kit.server.topic("b").size]).toEqual([0, 0]);
      await Promise.all(stores.map(({ peer }) => peer.close()));
    }
    for (const [what, count] of Object.entries(counts)) expect(count, `counted: ${what}`).toBeGreaterThan(4);
  });
});
