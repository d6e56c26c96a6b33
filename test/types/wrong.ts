// What must not compile. Each line below a directive is a mistake that a user is likely to make; a compiler that accepts
// one reports the directive as unused.
import { connect, follow, mutation, pair, presence, RpcError, serve } from "reciproc/node";
import type { Around, Joined, Peer, People, PresenceParams, ServerContext, Stream, Transport } from "reciproc/node";
import { testServer } from "reciproc/testing";
import type { ClientApi, ServerApi } from "./api.js";

const handlers = { toast: () => {}, confirm: () => true };
const peer = await connect<ServerApi, ClientApi>("ws://x", { methods: handlers });

// The options.
// @ts-expect-error a method that the other side does not serve
await connect<ServerApi>("ws://x", { onForeignMessage: (_message, peer) => peer.notify("shifted") });
// @ts-expect-error a status outside the union
await serve({ port: 1, post: { notificationStatus: 202 } });

// The method.
// @ts-expect-error a method that the contract does not have
await peer.request("sub", [1, 2]);

// The params.
// @ts-expect-error a string for a number
await peer.request("add", [1, "2"]);
// @ts-expect-error missing
await peer.request("add");
// @ts-expect-error options in the place of params, where there are none
await peer.request("ping", { timeoutMs: 5 });

// The options.
// @ts-expect-error a misspelt option
await peer.request("add", [1, 2], { timeout: 5 });

// What JSON changes.
interface Dated {
  at(params: { from: Date }): { day: Date; tags: Set<string> };
  log(): Stream<Date>;
}
const dated = await connect<Dated>("ws://x");
// @ts-expect-error a Date arrives as a string
(await dated.request("at", { from: new Date() })).day.getTime();
// @ts-expect-error the values of a stream are JSON too
for await (const day of dated.stream("log")) day.getTime();

// Notifications.
// @ts-expect-error its result would be dropped unseen
peer.notify("add", [1, 2]);

// Streams.
// @ts-expect-error not a stream
peer.stream("add", [1, 2]);
// @ts-expect-error plain data is not a stream
peer.iterate([1, 2]);

// Handlers.
// @ts-expect-error one is missing
await connect<ServerApi, ClientApi>("ws://x", { methods: { toast: () => {} } });
await connect<ServerApi, ClientApi>("ws://x", {
  // @ts-expect-error one is misspelt
  methods: { toast: () => {}, confirn: () => true },
});
await connect<ServerApi, ClientApi>("ws://x", {
  // @ts-expect-error one too many
  methods: { toast: () => {}, confirm: () => true, extra: () => 1 },
});
await connect<ServerApi, ClientApi>("ws://x", {
  // @ts-expect-error a promise of a string for a boolean
  methods: { toast: () => {}, confirm: async () => "yes" },
});
await connect<ServerApi, ClientApi>("ws://x", {
  // @ts-expect-error no such member in the params
  methods: { toast: ({ txt }) => void txt, confirm: () => true },
});
pair<ServerApi, ClientApi>(
  // @ts-expect-error only a server has `server` in its context
  { methods: { ...({} as any), ping: (_params, { server }) => String(server) } },
  { methods: handlers },
);
// @ts-expect-error no such method to handle
peer.handle("tost", () => {});
// @ts-expect-error a handler that returns the wrong type
peer.handle("confirm", () => 1);

// A class instance as `methods`: its methods are not its own members, and `this` would be lost.
class Service {
  toast(): void {}
  confirm(this: Service): boolean {
    return true;
  }
}
// @ts-expect-error a handler has no `this`
await connect<ServerApi, ClientApi>("ws://x", { methods: new Service() });

// Contracts.
// @ts-expect-error two params
await connect<{ add(a: number, b: number): number }>("ws://x");
// @ts-expect-error a params that is neither array nor object
await connect<{ greet(name: string): string }>("ws://x");
// @ts-expect-error a property that is not a method
await connect<{ version: string }>("ws://x");

// Servers.
await serve<{ ping(): string }, object, { user: string }>({
  port: 1,
  // @ts-expect-error authenticate returns a type other than the declared one
  authenticate: () => ({ name: "x" }),
  methods: { ping: () => "" },
});
// @ts-expect-error `authenticate` is missing, and the type of `auth` is declared
await serve<{ ping(): string }, object, { user: string }>({ port: 1, methods: { ping: () => "" } });
const authenticate = () => ({ user: "x" });
const server = await serve<ServerApi, ClientApi, { user: string }>({ port: 1, authenticate, methods: {} as any });
// @ts-expect-error a topic notifies what the client serves
server.topic("a").notify("moved", { x: 1, y: 1 });
// @ts-expect-error a key that is no string
peer.notify("moved", { x: 1, y: 1 }, { latest: 7 });
// @ts-expect-error a batch is sent whole
peer.batch().notify("moved", { x: 1, y: 1 }, { volatile: true });
// @ts-expect-error progress is reported by one peer, not by a group
await server.peers.request("confirm", { question: "?" }, { onProgress: () => {} });
// @ts-expect-error an outcome has a value only if it is fulfilled
const isSure: boolean = (await server.peers.request("confirm", { question: "?" }))[0]!.value;
// @ts-expect-error a message to a group has no peer
await serve({ port: 1, around: ({ peer }, next) => (peer.id, next()) });
const ofPeer: Around = (call, next) => (call.peer.id, next());
// @ts-expect-error the same, for a function that is made for calls through one peer
await serve({ port: 1, around: ofPeer });
// @ts-expect-error no such event of a topic
server.topic("a").on("joined", () => {});

const kit = testServer<ServerApi, ClientApi>({});
// @ts-expect-error the mock returns another type
await kit.connect("ws://localhost", { methods: { confirm: () => "yes" } });
// @ts-expect-error a misspelt option
await serve({ prot: 1, methods: {} });

// Schemas.
declare const numbers: { "~standard": { validate(value: unknown): { value: [number] } } };
await serve<{ shout(params: [text: string]): string }>({
  port: 1,
  methods: { shout: ([text]) => text.toUpperCase() },
  // @ts-expect-error the schema accepts other params than the handler takes
  schemas: { shout: numbers },
});
// A server in memory.
// @ts-expect-error it needs no address
testServer({ port: 0 });
// @ts-expect-error `authenticate` is required if the type of `auth` is declared
testServer<ServerApi, ClientApi, { user: string }>({});

// Several servers.
interface RoomApi {
  said(params: { text: string; at: string }): void;
  confirm(params: { question: string }): boolean;
}
const node = await serve<{}, RoomApi>({
  noServer: true,
  // @ts-expect-error members are notified of what the client serves
  topics: () => ({ members: "joins" }),
});
// @ts-expect-error the log adds `at`
await node.topic("a").publish("said", { text: "hi", at: "x.1" });
// @ts-expect-error what is published has no result
await node.topic("a").publish("confirm", { question: "?" });

// The rest.
// @ts-expect-error an error's code is a number
new RpcError("403", "declined");
// @ts-expect-error a transport must deliver messages
const half: Transport = { send: () => true, close: () => {} };

export { half, isSure };

// A followed topic.
interface Boards {
  open(p: { id: string }): Joined<number>;
  people(p: { room: string } & PresenceParams<{ x: number }>): Joined<People>;
}
declare const page: Peer<{ changed?(params: { n: number }): void }, Boards>;
// @ts-expect-error a missing param
follow(page, "open", {}, { reduce: {} });
// @ts-expect-error a missing param
presence(page, "people", {});
// @ts-expect-error a state that the contract does not have
presence(page, "people", { room: "a" }, { state: { y: 1 } });
// Changes.
interface Changes {
  put(p: { text: string; key: string }): Date;
  list(p: { text: string }): string[];
  clear(): void;
  add(p: [key: string]): void;
  count(p: { key: number }): void;
}
declare const changing: Peer<object, Changes>;
// @ts-expect-error params without a key
mutation(changing, "list");
// @ts-expect-error no params
mutation(changing, "clear");
// @ts-expect-error params by position
mutation(changing, "add");
// @ts-expect-error a key that is no string
mutation(changing, "count");
// @ts-expect-error a missing param
void mutation(changing, "put").mutate({ key: "k" });
// @ts-expect-error a misspelt param
void mutation(changing, "put").mutate({ text: "", kye: "k" });
// @ts-expect-error a misspelt option
void mutation(changing, "put").mutate({ text: "" }, { timeout: 5 });
declare const context: ServerContext;
// @ts-expect-error the key in place of the context
void server.runOnce("k", () => 1);
// @ts-expect-error a Date arrives as a string
(await server.runOnce(context, () => new Date())).getTime();
// @ts-expect-error no function
void server.runOnce(context, 5);
// @ts-expect-error a publication that the contract does not have
follow(page, "open", { id: "a" }, { reduce: { moved: (n: number) => n } });
