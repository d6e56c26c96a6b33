import { describe, expect, it, onTestFinished } from "vitest";
import { presence, RpcError } from "../../src/index.js";
import type { AnyPeer, Joined, MemberChange, People, Presence, PresenceParams } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { gate, pass, useVirtualClock } from "../support/time.js";

type State = { x: number };
type Person = { name: string; x?: number };
type Params = { room: string } & PresenceParams<State>;
type ServerApi = { people(params: Params): Joined<People<Person>> };
type PageApi = { people?(change: MemberChange<Person>): void };
type Store = Presence<{ id: string; as: Person }, State>;

/** What a store shows: the others with their states, in brackets if they are not current, and the error. */
const textOf = ({ get }: Pick<Store, "get">): string => {
  const { others, isCurrent, error } = get();
  const text = others.map(({ as: { name, x = "" } }) => `${name}${x}`).join(" ");
  return (isCurrent ? text : `(${text})`) + (error === undefined ? "" : ` ${(error as Error).message}`);
};

const by = ({ as }: { as: Person }): string => as.name;

/** Starts a server of rooms. `enter` connects a client, and shows it the people of "den". */
function start() {
  /** The calls that came, and what runs before each. */
  const calls: string[] = [];
  const hooks = { before: (_params: Params): unknown => undefined, reply: (reply: unknown): unknown => reply };
  const kit = testServer<ServerApi, PageApi, { name: string }>({
    authenticate: ({ headers }) => ({ name: String(headers["x-name"]) }),
    topics: (name) => ({ members: name === "mute" ? true : "people" }),
    methods: {
      async people(params, { peer, server }) {
        calls.push(`${params.presence} ${peer.auth.name}`);
        await hooks.before(params);
        const { name } = peer.auth;
        const as = name === "guest" || params.state?.x === 0 ? undefined : { ...params.state, name };
        return hooks.reply(await server.topic(params.room).present(peer, params, as)) as Joined<People<Person>>;
      },
    },
  });
  kit.server.on("error", () => {});
  onTestFinished(() => kit.server.close());
  const errors: string[] = [];
  const enter = async (name: string, options: object = {}) => {
    const peer = await kit.connect(kit.server.url, { reconnect: true, retry: "always", headers: { "x-name": name } });
    peer.on("error", (error) => errors.push((error as Error).message));
    const store: Store = presence(peer, "people", { room: "den" }, options);
    await kit.network.settle();
    return Object.assign(store, { peer });
  };
  const shown = async (...stores: Store[]): Promise<string[]> => (await kit.network.settle(), stores.map(textOf));
  const peerOf = (name: string): AnyPeer => [...kit.server.peers].find(({ auth }) => auth.name === name)!;
  return { ...kit, den: kit.server.topic("den"), calls, errors, hooks, enter, shown, peerOf };
}

describe("presence", () => {
  useVirtualClock();

  it("shows each other member once with its profile and its state, who joins, changes and leaves", async () => {
    const { calls, den, enter, peerOf, server, shown } = start();
    const [ada, bob, eve] = [await enter("ada"), await enter("bob", { state: { x: 1 } }), await enter("eve")];
    server.topic("messages").add(peerOf("bob"));
    expect([await shown(ada, bob, eve), bob.get().me]).toEqual([["bob1 eve", "ada eve", "ada bob1"], { x: 1 }]);
    const { others } = bob.get();
    let count = 0;
    bob.subscribe(() => count++);
    for (const x of [2, 3]) bob.set({ x });
    expect([bob.get().me, bob.get() === bob.get(), bob.get().others === others]).toEqual([{ x: 3 }, true, true]);
    expect([await shown(ada, bob, eve), count]).toEqual([["bob3 eve", "ada eve", "ada bob3"], 1]);
    bob.set({ x: 0 });
    expect(await shown(ada, bob, eve)).toEqual(["eve", "ada eve", "ada"]);
    bob.set({ x: 3 });
    expect(await shown(ada)).toEqual(["eve bob3"]);
    const again: Store = presence(bob.peer, "people", { room: "den" });
    bob.close();
    expect([await shown(again), den.size]).toEqual([["ada eve"], 3]);
    again[Symbol.dispose]();
    bob.set({ x: 4 });
    expect(await shown(ada, bob, eve)).toEqual(["eve", "(ada eve)", "ada"]);
    expect([den.size, server.topic("messages").size]).toEqual([2, 1]);
    expect(calls.join().match(/\w+(?= bob)/g)).toEqual(["join", "set", "set", "set", "join", "leave"]);
    await eve.peer.close();
    expect(await shown(ada, eve)).toEqual(["", expect.stringMatching(/^\(ada\) the connection ended/)]);
  });

  it("sends one state at a time, the newest, also if a join loads the list meanwhile", async () => {
    const { calls, enter, hooks, shown } = start();
    const [ada, bob] = [await enter("ada"), await enter("bob")];
    const answered = gate();
    hooks.before = ({ presence: kind }) => (kind === "set" ? answered.promise : undefined);
    for (let x = 1; x <= 5; x++) {
      bob.set({ x });
      await shown();
    }
    expect([calls.splice(0).join(), await shown(ada)]).toEqual(["join ada,join bob,set bob", ["bob"]]);
    bob.peer.emit("missed", { count: 1 });
    expect(await shown(ada)).toEqual(["bob5"]);
    // The call of the first state runs after the join.
    hooks.before = () => {};
    answered.resolve();
    expect([await shown(ada), calls.join()]).toEqual([["bob5"], "join bob,set bob"]);
  });

  it.each<[string, (of: { peer: AnyPeer; line: { cut(): void; lose(): void } }) => void, string, number]>([
    ["a cut, by its session", ({ line }) => line.cut(), "set", 3],
    ["a lost session, by another join", ({ line }) => line.lose(), "join,join", 0],
    ["dropped messages", ({ line, peer }) => (line.cut(), peer.emit("missed", { count: 1 })), "join,join,set", 3],
  ])("has its lists, by the newest change of each, and sends its state after %s", async (...[, lose, sent, got]) => {
    const { calls, enter, errors, hooks, network, shown } = start();
    const [ada, bob] = [await enter("ada"), await enter("bob")];
    const hall: Store = presence(ada.peer, "people", { room: "hall" });
    const line = network.of(ada.peer);
    const answered = gate();
    hooks.before = ({ presence: kind }) => (kind === "set" ? answered.promise : undefined);
    ada.set({ x: 1 });
    await shown();
    hooks.before = () => {};
    line.stop();
    lose({ peer: ada.peer, line });
    for (const x of [2, 3, 4]) {
      for (const one of [ada, bob]) one.set({ x });
      await shown();
    }
    bob.close();
    presence(bob.peer, "people", { room: "hall" });
    const eve = await enter("eve");
    expect(await shown(ada)).toEqual(["(bob)"]);
    let count = 0;
    ada.peer.on("notification", () => count++);
    calls.length = 0;
    line.start();
    await pass(0);
    await shown();
    answered.resolve();
    expect([await shown(ada, eve, hall), count, errors]).toEqual([["eve", "ada4", "bob"], got, []]);
    expect(calls.join().replaceAll(" ada", "")).toBe(sent);
  });

  it("shows one member of each `by`, the last, and none of its own, also to a peer without `as`", async () => {
    const { den, enter, peerOf, shown } = start();
    const [ada, guest] = [await enter("ada", { by }), await enter("guest", { by })];
    for (const x of [1, 2]) await enter("bob", { state: { x, name: "ada" } });
    const other = await enter("ada");
    expect(await shown(ada, guest, other)).toEqual(["bob2", "ada bob2", "ada bob1 bob2"]);
    // Its state does not bring it back.
    den.delete(peerOf("ada"));
    ada.set({ x: 1 });
    expect(await shown(guest)).toEqual(["bob2 ada"]);
    expect([(await den.members()).length, await shown(other)]).toEqual([3, ["bob1 bob2"]]);
  });

  it("shows that the server refuses it, emits `error` if a state is refused, and sends one again that has failed", async () => {
    const { calls, enter, errors, hooks, shown } = start();
    const [ada, bob] = [await enter("ada"), await enter("bob")];
    hooks.before = () => Promise.reject(new RpcError(403, "not yours"));
    bob.set({ x: 1 });
    const eve = await enter("eve");
    await pass(60_000);
    expect([await shown(ada, bob, eve), errors]).toEqual([["bob", "ada", "() not yours"], ["not yours"]]);
    expect(calls.splice(0)).toHaveLength(4);
    hooks.before = () => Promise.reject(new Error("down"));
    bob.set({ x: 2 });
    await pass(60_000);
    expect([await shown(ada, bob), calls.length > 15, calls.length < 40]).toEqual([["bob", "ada"], true, true]);
    hooks.before = () => {};
    await pass(5_000);
    expect(await shown(ada)).toEqual(["bob2"]);
  });

  it("shows an error for what is no list, and refuses topics that notify no members, and values without JSON", async () => {
    const { enter, hooks, peerOf, server, shown } = start();
    const bob = await enter("bob");
    for (const value of [undefined, { id: "a" }]) {
      hooks.reply = (reply) => ({ ...(reply as object), value });
      bob.peer.emit("missed", { count: 1 });
      expect((await shown(bob))[0]).toMatch(/^\(\) Expected "people" to return what/);
    }
    const muted = server.topic("mute").present(peerOf("bob"), { presence: "join" }, 1);
    await expect(muted).rejects.toThrow("does not notify its members");
    expect(() => bob.set(new Map() as never)).toThrow("Map");
    expect(() => presence(bob.peer, "people", { room: "den" }, { by: 5 as never })).toThrow("Expected `by`");
  });
});
