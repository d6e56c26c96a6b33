import { serve, connect, open, pair, RpcError, type ServerContext } from "reciproc/node";
import { attach, memory, type Engine } from "reciproc/node";
import type { GroupCall, LeaveReason, ServerAround } from "reciproc/node";
import type { Handlers, ApiOf } from "reciproc";
import type { Peer, AnyPeer } from "reciproc";
import { has, is, type ClientApi, type Equal, type ServerApi, type User } from "./api.js";

declare function lines(f: string, s: AbortSignal): AsyncIterable<string>;
declare const board: { move(id: string, at: { x: number; y: number }): void };
declare function show(t: string): void;
declare const bar: { set(n: number): void };

const server = await serve<ServerApi, ClientApi, { user: string }>({
  port: 3000,
  authenticate: (request) => (request.headers.cookie ? { user: "x" } : null),
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
    moved: (at, { peer }) => board.move(peer.id, at),
    ping: () => "pong",
    list: (p) => [p?.cursor ?? ""],
    find: async ({ id }) => (id ? { id } : undefined),
    later: ([n]) => n,
    async "room/join"() {
      return null;
    },
    async upload({ chunks }, { peer }) {
      let n = 0;
      for await (const c of peer.iterate(chunks)) n += c.length;
      return n;
    },
    bye() {},
    build: async ({ target }, { progress }) => {
      progress(0.5);
      return [target];
    },
  },
});
await serve<ServerApi, ClientApi, { user: string }>({
  port: 3000,
  authenticate: () => ({ user: "x" }),
  methods: {} as Handlers<ServerApi, ServerContext<ServerApi, ClientApi, { user: string }>>,
  onForeignMessage: (message, peer) => {
    is<Equal<typeof message, Record<string, unknown>>>();
    is<Equal<typeof peer.auth.user, string>>();
    peer.notify("toast", { text: "hi" });
  },
});
for (const p of server.peers) p.notify("toast", { text: "hi" });
server.peers.notify("toast", { text: "hi" });
for (const outcome of await server.topic("den").request("confirm", { question: "?" }, { timeoutMs: 5 })) {
  is<Equal<typeof outcome.peer.auth.user, string>>();
  if (outcome.status === "fulfilled") is<Equal<typeof outcome.value, boolean>>();
  else show(outcome.reason.message);
  const { status, value, reason } = outcome;
  if (status === "fulfilled") is<Equal<typeof value, boolean>>();
  else show(reason.message);
}
const settled: PromiseSettledResult<boolean>[] = await server.peers.request("confirm", { question: "?" });
settled.at(0);
const sees: ServerAround = (call, next) => {
  if (call.peer === undefined) {
    is<Equal<typeof call, GroupCall>>();
    show(`${call.topic ?? "all"} ${call.peers.length}`);
  } else show(call.peer.id);
  if (call.direction === "incoming") show(call.peer.id);
  return next();
};
await serve({ port: 1, around: sees });
await connect("ws://x", { around: sees });
await serve({
  port: 1,
  around: ({ direction, peer }, next) => {
    if (direction === "incoming") show(peer.id);
    return next();
  },
});
await connect("ws://x", { around: ({ peer }, next) => (show(peer.id), next()) });
server
  .topic("den")
  .on("join", (peer) => show(peer.auth.user))
  .once("leave", (peer, reason) => {
    is<Equal<typeof peer.auth.user, string>>();
    is<Equal<typeof reason, LeaveReason>>();
    is<Equal<typeof reason, "deleted" | "closed">>();
  })
  .off("join", show as never);
server.on("peer", (peer, request) => {
  is<Equal<typeof peer.auth.user, string>>();
  peer.request("confirm", { question: request.url ?? "" });
});

const peer = await connect<ServerApi, ClientApi>("wss://example.org/rpc", {
  methods: { toast: ({ text }) => show(text), confirm: ({ question }) => window.confirm(question) },
});
const signal = new AbortController().signal;
const three = await peer.request("add", [1, 2]);
is<Equal<typeof three, number>>();
has<number>()(await peer.remote.add([1, 2], { signal }));
await peer.request("add", [1, 2] as const);
peer.notify("moved", { x: 4, y: 2 });
peer.notify("moved", { x: 4, y: 2 }, { latest: "ann" });
peer.notify("bye", undefined, { volatile: true });
peer.on("missed", ({ count }) => is<Equal<typeof count, number>>());
server.on("missed", (one, method) => {
  is<Equal<typeof method, string>>();
  one.notify("toast", { text: method });
});
server.peers.notify("toast", { text: "hi" }, { latest: "ann", except: undefined });
server.topic("den").notify("toast", { text: "hi" }, { volatile: true, whenSlow: "drop" });
peer.notify("bye");
for await (const line of peer.stream("tail", { file: "log" })) {
  is<Equal<typeof line, string>>();
  if (line === "end") break;
}
has<string[]>()(await peer.request("build", { target: "all" }, { signal, timeoutMs: 60_000, onProgress: bar.set }));
const pong = await peer.request("ping");
is<Equal<typeof pong, string>>();
await peer.request("ping", undefined, { signal });
await peer.remote.ping();
await peer.remote.list();
await peer.request("list", { cursor: "x" });
has<User | null>()(await peer.request("find", { id: "x" }));
const later = await peer.remote.later([1]);
is<Equal<typeof later, number>>();
await peer.remote["room/join"]({ room: "a" });
await peer.remote.upload({ chunks: peer.offer(lines("log", signal)) });
has<void>()(await peer.request("moved", { x: 1, y: 2 }));
peer.handle("toast", ({ text }, { peer }) => (peer.notify("bye"), show(text)));

// batch
const b = peer.batch();
const r1 = b.request("add", [1, 2]);
b.notify("bye");
b.send();
is<Equal<Awaited<typeof r1>, number>>();

// call-only, one type argument
const opening = open<ServerApi, ClientApi>("ws://x", {
  methods: { toast: ({ text }) => show(text), confirm: () => true },
  reconnect: { initial: true },
  retry: "not-sent",
  signal: AbortSignal.timeout(1000),
});
is<Equal<typeof opening, Peer<ClientApi, ServerApi>>>();
is<Equal<typeof opening.opened, Promise<void>>>();
is<Equal<typeof opening.state, "connecting" | "open" | "suspended" | "closed">>();
opening.on("attempt", ({ number, delayMs, error }) => show(`${number + delayMs}: ${error.message}`));
const opened: number = await opening.request("add", [1, 2], { retry: false });
show(`${opened} ${opening.reconnect()}`);
open<ServerApi>("ws://x");
const caller = await connect<ServerApi>("ws://x");
is<Equal<Awaited<ReturnType<typeof caller.remote.ping>>, string>>();
await connect<ServerApi>("ws://x", { methods: { toast: ({ text }) => show(text) } });
await connect<ServerApi>("ws://x", {
  onForeignMessage: ({ event }, peer) => peer.notify("moved", { x: Number(event), y: 0 }),
});
await serve({ port: 1, post: { notificationStatus: 200 }, onForeignMessage: (_message, peer) => void peer.close() });
// untyped
await serve({
  port: 1,
  methods: { add: ([a, b]) => a + b, who: async (_p, { peer, server }) => [peer.id, server.url] },
});
const u = await connect("ws://x", { methods: { toast: ({ text }) => show(text) }, signal: AbortSignal.timeout(1000) });
await u.request("add", [1, 2]);
await u.remote.add([1]);
u.notify("anything");
await u.request("x", { a: 1 }, { signal });
// helpers
declare function helper(one: AnyPeer, other: Peer): void;
helper(peer, peer);
helper(u, u);
for (const p of server.peers) helper(p, p);
declare const ofAny: Peer<any, any>;
await ofAny.request("add", [1, 2]);
// split files
const part = { add: ([a, b]) => a + b, ping: () => "x" } satisfies Partial<
  Handlers<ServerApi, ServerContext<ServerApi, ClientApi>>
>;
// handlers first
const mine = {
  hello: async ({ name }: { name: string }) => `hi ${name}`,
  ping: () => 1,
  async *t(p: { n: number }) {
    yield p.n;
  },
  *generated(p: { n: number }) {
    yield p.n;
  },
};
type Mine = ApiOf<typeof mine>;
await serve<Mine>({ methods: mine });
const m = await connect<Mine>("ws://x");
const hi = await m.remote.hello({ name: "x" });
is<Equal<typeof hi, string>>();
const one = await m.remote.ping();
is<Equal<typeof one, number>>();
for await (const n of m.stream("t", { n: 1 })) is<Equal<typeof n, number>>();
for await (const n of m.stream("generated", { n: 1 })) is<Equal<typeof n, number>>();
// in memory
const [sa, ca] = pair<ServerApi, ClientApi>({ methods: {} as any }, { methods: { toast() {}, confirm: () => true } });
await ca.request("add", [1, 2]);
await sa.request("confirm", { question: "" });
// modular: a helper that needs one method of the other side
function greet(p: Peer<any, { toast(params: { text: string }): void }, any>) {
  p.notify("toast", { text: "" });
}
for (const p of server.peers) greet(p);
const chat: Handlers<Pick<ServerApi, "join" | "moved">, ServerContext<ServerApi, ClientApi>> = {
  join: async ({ room }, { server }) => ({ members: [...server.topic(room)].map((p) => p.id) }),
  moved() {},
};
interface Opt {
  debug?(): void;
  on(params: []): void;
}
const o = await connect<Opt>("ws://x");
await o.remote.debug();
o.notify("on", []);
await serve<Opt>({ methods: { on() {} } });
// schemas of three libraries, typed by their output
import { z } from "zod";
import * as v from "valibot";
import { type } from "arktype";
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
await connect("ws://a", { auth: "token" });
await connect("ws://a", { auth: { token: 1 } });
await connect("ws://a", { auth: async () => null });
is<Equal<ReturnType<typeof renewed.reauthenticate>, Promise<void>>>();
await renewed.reauthenticate({ timeoutMs: 1_000 });
await serve<ServerApi, ClientApi, { user: string }>({
  port: 0,
  authenticate: (_request, auth) => {
    is<Equal<typeof auth, unknown>>();
    return typeof auth === "string" ? { user: auth } : null;
  },
  methods: {} as Handlers<ServerApi, ServerContext<ServerApi, ClientApi, { user: string }>>,
});
server.on("refresh", (peer, old) => {
  is<Equal<typeof old, { user: string }>>();
  is<Equal<typeof peer.auth, { user: string }>>();
});
// the next event of a peer
const [lost] = await opening.waitFor("lost");
lost.message;
const [method, params] = await opening.waitFor("notification", { signal: AbortSignal.timeout(1) });
method.length + String(params).length;

// a server in memory: its methods and the mocks of a client may be incomplete
import { testServer, type Line, type Network, type TestServer } from "reciproc/testing";
const kit = testServer<ServerApi, ClientApi, { user: string }>({
  authenticate: ({ headers, socket }) => headers.cookie && { user: `${socket.remoteAddress}` },
  methods: { add: ([a, b], { peer, server }) => (server.topic("a").add(peer), a + b + peer.auth.user.length) },
  limits: { maxUnsentBytes: 1000 },
});
is<Equal<typeof kit, TestServer<ServerApi, ClientApi, { user: string }>>>();
const tested = await kit.connect(kit.server.url, {
  headers: { cookie: "x", "x-many": ["a", "b"] },
  methods: { confirm: ({ question }, { peer }) => question === "" || peer.state === "open" },
});
is<Equal<typeof tested, Peer<ClientApi, ServerApi>>>();
is<Equal<Awaited<ReturnType<typeof tested.remote.add>>, number>>();
const line: Line = kit.network.of(tested);
const inMemory = kit.open(() => kit.server.url, {
  auth: async () => "token",
  methods: { toast: ({ text }) => void text },
});
is<Equal<typeof inMemory, Peer<ClientApi, ServerApi>>>();
const raw = new kit.WebSocket("ws://localhost", { protocols: ["mcp"], headers: { cookie: "x" } });
kit.network.of(raw).stop();
const { network, connect: connectInMemory }: { network: Network; connect: typeof kit.connect } = kit;
line.slow(100);
network.lose();
await connectInMemory("ws://localhost");
const untested = await testServer({ methods: { add: ([a, b]) => a + b } }).connect("ws://localhost");
is<Equal<Awaited<ReturnType<typeof untested.remote.add>>, any>>();

// Several servers.
interface RoomApi {
  said(params: { text: string; at: string }): void;
  changed(params: { at: string }): void;
  typing(params: { name: string }): void;
  confirm(params: { question: string }): boolean;
}
const engine: Engine = memory();
await using node = await serve<ServerApi, RoomApi, User>({
  noServer: true,
  authenticate: () => ({ id: "ada" }),
  principal: ({ id }) => id,
  methods: {} as Handlers<ServerApi, ServerContext<ServerApi, RoomApi, User>>,
  engine,
  topics: (name) =>
    name.startsWith("room:") ? { log: { length: 100, ttlMs: 60_000 }, members: { joined: "typing" } } : undefined,
  nodes: { methods: { reload: (_params, { from }) => from } },
});
const published: string = await node.topic("room:1").publish("said", { text: "hi" }, { key: "k" });
await node.topic("room:1").publish("changed");
node.topic("room:1").notify("typing", { name: "ada" }, { except: "id", here: true });
const { entries } = await node.topic("room:1").read({ since: published, limit: 5 });
const isConfirmed: boolean = await node.peer("id").remote.confirm({ question: "?" });
const { peers: adas, unheard } = await node.principal("ada").peers();
for (const ada of adas) node.topic("room:1").notify("typing", { name: "ada" }, { except: ada });
node.on("engine", ({ state, downMs, error }) => show(`${state} ${downMs} ${error?.message}`));
await using worker = await attach<RoomApi>({ engine });
await worker.topic("room:1").publish("said", { text: "hi" });
show(`${entries.length} ${isConfirmed} ${unheard.length} ${node.nodes.live.length} ${node.health().ok}`);
