// What must compile, and has exactly these types. The examples of the documents show the simple uses.
import { follow, mutation, presence } from "reciproc";
import type { AnyPeer, ApiOf, Handlers, Joined, MemberChange, Peer, People, PresenceParams } from "reciproc";
import { attach, connect, memory, open, RpcError, serve, type GroupCall, type LeaveReason } from "reciproc/node";
import type { ServerAround, ServerContext } from "reciproc/node";
import { type } from "arktype";
import * as v from "valibot";
import { z } from "zod";
import { testServer, type Line, type TestServer } from "reciproc/testing";
import { has, is, type ClientApi, type Equal, type ServerApi, type User } from "./api.js";

declare function lines(f: string, s: AbortSignal): AsyncIterable<string>;
declare function show(t: string): void;
declare const handlers: Handlers<ServerApi, ServerContext<ServerApi, ClientApi, { user: string }>>;

const server = await serve<ServerApi, ClientApi, { user: string }>({
  port: 3000,
  authenticate: (request) => (request.headers.cookie ? { user: "x" } : null),
  onForeignMessage: (message, peer) => {
    is<Equal<typeof message, Record<string, unknown>>>();
    is<Equal<typeof peer.auth.user, string>>();
  },
  methods: {
    add: ([a, b]) => a + b,
    async join({ room }, { peer, signal, server }) {
      if (!(await peer.request("confirm", { question: `Enter ${room}?` }, { signal, timeoutMs: 30_000 })))
        throw new RpcError(403, "declined");
      const topic = server.topic(room).add(peer);
      topic.notify("toast", { text: `${peer.auth.user} came in` }, { except: peer });
      return { members: [...topic].map((p) => p.id) };
    },
    async *tail({ file }, { signal }) {
      yield* lines(file, signal);
    },
    moved: (at, { peer }) => show(`${peer.id} ${at.x}`),
    ping: () => "pong",
    list: (p) => [p?.cursor ?? ""],
    find: async ({ id }) => (id ? { id } : undefined),
    async "room/join"() {
      return null;
    },
    bye() {},
  },
});
for (const outcome of await server.topic("den").request("confirm", { question: "?" }, { timeoutMs: 5 })) {
  is<Equal<typeof outcome.peer.auth.user, string>>();
  const { status, value, reason } = outcome;
  if (status === "fulfilled") is<Equal<typeof value, boolean>>();
  else show(reason.message);
}
export const settled: PromiseSettledResult<boolean>[] = await server.peers.request("confirm", { question: "?" });
const sees: ServerAround = (call, next) => {
  if (call.peer === undefined) is<Equal<typeof call, GroupCall>>();
  if (call.direction === "incoming") show(call.peer.id);
  return next();
};
await serve({ port: 1, around: sees });
await connect("ws://x", { around: sees });
server
  .topic("den")
  .on("join", (peer) => show(peer.auth.user))
  .once("leave", (peer, reason) => {
    is<Equal<typeof peer.auth.user, string>>();
    is<Equal<typeof reason, LeaveReason>>();
    is<Equal<typeof reason, "deleted" | "closed">>();
  })
  .off("join", show as never);
server.on("missed", (one, method) => {
  is<Equal<typeof method, string>>();
  one.notify("toast", { text: method });
});
server.peers.notify("toast", { text: "hi" }, { latest: "ann", except: undefined });
server.topic("den").notify("toast", { text: "hi" }, { volatile: true, whenSlow: "drop" });

const peer = await connect<ServerApi, ClientApi>("wss://example.org/rpc", {
  methods: { toast: ({ text }) => show(text), confirm: ({ question }) => window.confirm(question) },
});
const signal = new AbortController().signal;
has<number>()(await peer.request("add", [1, 2]));
has<number>()(await peer.remote.add([1, 2] as const, { signal }));
has<string>()(await peer.request("ping", undefined, { signal }));
has<User | null>()(await peer.request("find", { id: "x" }));
has<void>()(await peer.request("moved", { x: 1, y: 2 }));
await peer.remote.list();
await peer.request("list", { cursor: "x" });
await peer.remote["room/join"]({ room: "a" });
peer.notify("bye", undefined, { volatile: true });
peer.on("missed", ({ count }) => is<Equal<typeof count, number>>());
for await (const line of peer.stream("tail", { file: "log" })) is<Equal<typeof line, string>>();
peer.handle("toast", ({ text }, { peer }) => (peer.notify("bye"), show(text)));
type Boards = { open(p: { id: string; since?: string }): Joined<Date[]>; leave(p: { id: string }): void };
declare const page: Peer<{ changed?(params: { n: number; at: string }): void }, Boards>;
const reduce = { changed: (list: string[], { n, at }: { n: number; at: string }) => [...list, at, String(n)] };
has<string[] | undefined>()(follow(page, "open", { id: "a" }, { leave: "leave", reduce }).get().value);
type Changes = {
  put(p: { text: string; key: string }): { at: Date };
  keep(p: { text: string; key?: string }): void;
  list(): void;
};
declare const changing: Peer<object, Changes>;
const put = mutation(changing, "put");
has<{ at: string }>()(await put.mutate({ text: "a" }, { timeoutMs: 5 }));
has<void>()(await mutation(changing, "keep").mutate({ text: "a", key: "k" }));
for (const { text, key } of put.get().pending) is<Equal<[typeof text, typeof key], [string, string]>>();
void mutation(changing as AnyPeer, "any").mutate({ n: 1 });
type Rooms = {
  people(p: { room: string } & PresenceParams<{ x: number }>): Joined<People<{ name: string; at: Date }>>;
};
declare const visitor: Peer<{ people?(change: MemberChange): void }, Rooms>;
const here = presence(visitor, "people", { room: "a" }, { state: { x: 1 }, by: ({ as }) => as.name });
for (const { id, as } of here.get().others) is<Equal<[typeof id, typeof as], [string, { name: string; at: string }]>>();
here.set({ x: (here.get().me?.x ?? 0) + 1 });
const b = peer.batch();
const r1 = b.request("add", [1, 2]);
is<Equal<Awaited<typeof r1>, number>>();

// call-only, one type argument
const opening = open<ServerApi, ClientApi>("ws://x", {
  methods: { toast: ({ text }) => show(text), confirm: () => true },
});
is<Equal<typeof opening, Peer<ClientApi, ServerApi>>>();
is<Equal<typeof opening.opened, Promise<void>>>();
is<Equal<typeof opening.state, "connecting" | "open" | "suspended" | "closed">>();
opening.on("attempt", ({ number, delayMs, error }) => show(`${number + delayMs}: ${error.message}`));
const caller = await connect<ServerApi>("ws://x", {
  methods: { toast: ({ text }) => show(text) },
  onForeignMessage: ({ event }, peer) => peer.notify("moved", { x: Number(event), y: 0 }),
});
has<string>()(await caller.remote.ping());
// helpers
declare function helper(one: AnyPeer, other: Peer): void;
helper(peer, peer);
for (const p of server.peers) helper(p, p);
// a helper that needs one method of the other side
function greet(p: Peer<any, { toast(params: { text: string }): void }, any>) {
  p.notify("toast", { text: "" });
}
for (const p of server.peers) greet(p);
// split files
const part = { add: ([a, b]) => a + b, ping: () => "x" } satisfies Partial<
  Handlers<ServerApi, ServerContext<ServerApi, ClientApi>>
>;
// handlers first
const mine = {
  hello: async ({ name }: { name: string }) => `hi ${name}`,
  async *t(p: { n: number }) {
    yield p.n;
  },
  *generated(p: { n: number }) {
    yield p.n;
  },
};
const m = await connect<ApiOf<typeof mine>>("ws://x");
has<string>()(await m.remote.hello({ name: "x" }));
for await (const n of m.stream("t", { n: 1 })) is<Equal<typeof n, number>>();
for await (const n of m.stream("generated", { n: 1 })) is<Equal<typeof n, number>>();
// a method that may be absent
interface Opt {
  debug?(): void;
  on(params: []): void;
}
await (await connect<Opt>("ws://x")).remote.debug();
await serve<Opt>({ methods: { on() {} } });
// schemas of three libraries, typed by their output
await serve<Pick<ServerApi, "add" | "join" | "moved">>({
  methods: { add: ([a, b]) => a + b, join: ({ room }) => ({ members: [room] }), moved: () => {} },
  schemas: {
    add: z.tuple([z.number(), z.number()]),
    join: v.object({ room: v.string() }),
    moved: type({ x: "number", y: "number" }),
  },
  port: 0,
});

// Credentials that change.
const renewed = await connect<ServerApi>(
  async ({ number, reason }) => (number > 1 && reason ? "ws://b" : new URL("ws://a")),
  {
    auth: ({ number }) => ({ token: `${number}` }),
    headers: async ({ reason }) => ({ cookie: reason === undefined ? "a" : ["b"] }),
  },
);
is<Equal<ReturnType<typeof renewed.reauthenticate>, Promise<void>>>();
// the next event of a peer
const [lost] = await opening.waitFor("lost");
const [method, params] = await opening.waitFor("notification", { signal: AbortSignal.timeout(1) });
show(lost.message + method + String(params));

// a server in memory: its methods and the mocks of a client may be incomplete
const kit = testServer<ServerApi, ClientApi, { user: string }>({
  authenticate: ({ headers, socket }) => headers.cookie && { user: `${socket.remoteAddress}` },
  methods: { add: ([a, b], { peer, server }) => (server.topic("a").add(peer), a + b + peer.auth.user.length) },
});
is<Equal<typeof kit, TestServer<ServerApi, ClientApi, { user: string }>>>();
const tested = await kit.connect(kit.server.url, {
  headers: { cookie: "x", "x-many": ["a", "b"] },
  methods: { confirm: ({ question }, { peer }) => question === "" || peer.state === "open" },
});
is<Equal<typeof tested, Peer<ClientApi, ServerApi>>>();
const inMemory = kit.open(() => kit.server.url, { auth: async () => "token", methods: { toast: show as any } });
is<Equal<typeof inMemory, Peer<ClientApi, ServerApi>>>();
has<Line>()(kit.network.of(tested));
const untested = await testServer({ methods: { add: ([a, b]) => a + b } }).connect("ws://localhost");
has<any>()(await untested.remote.add());

// Several servers.
interface RoomApi {
  said(params: { text: string; at: string }): void;
  typing(params: { name: string }): void;
  confirm(params: { question: string }): boolean;
}
const engine = memory();
await using node = await serve<ServerApi, RoomApi, User>({
  noServer: true,
  authenticate: () => ({ id: "ada" }),
  principal: ({ id }) => id,
  methods: handlers as any,
  engine,
  topics: (name) => (name.startsWith("room:") ? { log: { length: 100, ttlMs: 60_000 }, members: "typing" } : undefined),
  nodes: { methods: { reload: (_params, { from }) => from } },
});
const published: string = await node.topic("room:1").publish("said", { text: "hi" }, { key: "k" });
const { entries } = await node.topic("room:1").read({ since: published, limit: 5 });
has<boolean>()(await node.peer("id").remote.confirm({ question: "?" }));
const { peers: adas, isComplete } = await node.principal("ada").peers();
const { outcomes } = await node.principal("ada").request("confirm", { question: "?" });
has<boolean | undefined>()(outcomes[0]!.value);
for (const ada of adas) node.topic("room:1").notify("typing", { name: "ada" }, { except: ada });
node.on("engine", ({ state, downMs, error }) => show(`${state} ${downMs} ${error?.message}`));
await (await attach<RoomApi>({ engine })).topic("room:1").publish("said", { text: "hi" });
show(`${entries.length} ${isComplete} ${node.nodes.live.length} ${node.health().ok}`);
export { part };
