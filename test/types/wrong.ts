// Mistakes that a user is likely to make. The comment of each says where the compiler reports it, and the essential text of the message,
// with `...` if that is in the lines that explain the message.
import { connect, contract, follow, limits, mutation, open, pair, presence } from "reciproc/node";
import { Peer, RpcError, serve, type Around, type Call, type Joined } from "reciproc/node";
import type { People, PresenceParams, Server, ServerContext, Stream } from "reciproc/node";
import { connect as connectPage } from "reciproc";
import { createReciproc, useMutation, useTopic } from "reciproc/react";
import { testServer } from "reciproc/testing";

interface AddApi {
  add(params: [a: number, b: number]): number;
}
interface BoardApi extends AddApi {
  ping(): string;
  moved(params: { x: number }): void;
  tail(params: { file: string }): Stream<string>;
  at(params: { from: Date }): { day: Date };
  log(): Stream<Date>;
  open(params: { id: string }): Joined<number>;
  people(params: { room: string } & PresenceParams<{ x: number }>): Joined<People>;
  put(params: { text: string; key: string }): Date;
  count(params: { key: number }): void;
}
interface ClientApi {
  confirm(params: { question: string }): boolean;
  changed?(params: { n: number; at?: string }): void;
}
declare module "reciproc" {
  interface AppTypes {
    data: { room?: string };
    as: { name: string };
    meta: { role: "viewer" | "editor" };
    context: { user: string };
  }
}
declare const call: Call & { direction: "incoming" };
declare const context: ServerContext;
declare const peer: Peer<ClientApi, BoardApi>;
declare const server: Server<BoardApi, ClientApi>;
declare const ofPeer: Around;
declare const schema: { "~standard": { validate(value: unknown): { value: [number] } } };
declare const service: { confirm(this: Date): boolean };
type Auth = { user: string };
const app = createReciproc<BoardApi, ClientApi>();
const confirm = () => true;
const add = () => 1;

// Options.
await connect<AddApi, ClientApi>("ws://x", { timeoutMs: "5", methods: { confirm } }); // at `timeoutMs`: 'string' is not assignable to type 'number'
await connect<AddApi, ClientApi>("ws://x", { openTimeout: 5, methods: { confirm } }); // at `openTimeout`: Did you mean to write 'openTimeoutMs'?
await connect<AddApi, ClientApi>("ws://x"); // at `connect`: Expected 2 arguments, but got 1.
await connectPage<AddApi>("ws://x", { reconnect: "yes" }); // at `reconnect`: is not assignable to type 'boolean | ReconnectOptions
open("ws://x", { reconnect: { intial: true } }); // at `intial`: Did you mean to write 'initial'?
open("ws://x", { headers: { a: 1 } }); // at `a: 1`: 'number' is not assignable to type 'string
pair<AddApi, AddApi>({ timeoutMs: "5", methods: { add } }, { methods: { add } }); // at `timeoutMs`: 'string' is not assignable to type 'number'
testServer<AddApi>({ timeoutMs: "5" }); // at `timeoutMs`: 'string' is not assignable to type 'number'
testServer({ port: 0 }); // at `port`: 'port' does not exist in type
await serve({ prot: 1, methods: {} }); // at `prot`: 'prot' does not exist in type
await serve<AddApi>({ port: 1, timeoutMs: "5", methods: { add } }); // at `timeoutMs`: 'string' is not assignable to type 'number'
await serve({ port: 1, post: { notificationStatus: 202 } }); // at `notificationStatus`: Type '202' is not assignable to type
await serve<{}, ClientApi>({ noServer: true, topics: () => ({ members: "joins" }) }); // at `topics`: ... Type '"joins"' is not assignable to type
await serve<AddApi, object, Auth>({ port: 1, methods: { add } }); // at `{ port`: ... Property 'authenticate' is missing in type
await serve<AddApi, object, Auth>({ port: 1, authenticate: () => ({ name: "x" }), methods: { add } }); // at `({ name`: Type '{ name: string; }' is not assignable to type
testServer<AddApi, ClientApi, Auth>({}); // at `{}`: ... Property 'authenticate' is missing in type '{}'
await serve({ port: 1, around: ({ peer }, next) => (peer.id, next()) }); // at `peer.id`: 'peer' is possibly 'undefined'.
await serve({ port: 1, around: ofPeer }); // at `around`: ... Type 'undefined' is not assignable to type 'AnyPeer'.
await serve({ port: 1, around: [ofPeer] }); // at `ofPeer`: ... Type 'undefined' is not assignable to type 'AnyPeer'.
limits<AddApi>({ ad: {} }); // at `ad:`: 'ad' does not exist in type
limits({ add: { peerRate: { calls: 1, perMss: 1 } } }); // at `perMss`: Did you mean to write 'perMs'?
// The method, its params, its options, and its result.
await peer.request("sub", [1, 2]); // at `"sub"`: Argument of type '"sub"' is not assignable to parameter of type
await peer.remote.sub([1, 2]); // at `sub`: Property 'sub' does not exist on type
await peer.request("add", [1, "2"]); // at `"2"`: Type 'string' is not assignable to type 'number'.
await peer.request("add"); // at `request`: Expected 2-3 arguments, but got 1.
await peer.request("ping", { timeoutMs: 5 }); // at `{ timeoutMs`: is not assignable to parameter of type 'undefined'
await peer.request("add", [1, 2], { timeout: 5 }); // at `timeout`: 'timeout' does not exist in type
const text: string = await peer.request("add", [1, 2]); // at `text`: Type 'number' is not assignable to type 'string'.
(await peer.request("at", { from: new Date() })).day.getTime(); // at `getTime`: Property 'getTime' does not exist on type 'string'.
for await (const day of peer.stream("log")) day.getTime(); // at `getTime`: Property 'getTime' does not exist on type 'string'.
peer.stream("add", [1, 2]); // at `"add"`: Argument of type '"add"' is not assignable to parameter of type
peer.iterate([1, 2]); // at `[1`: 'number[]' is missing the following properties from type 'Stream<unknown>'
peer.notify("add", [1, 2]); // at `"add"`: Argument of type '"add"' is not assignable to parameter of type
peer.notify("moved", { x: 1 }, { latest: 7 }); // at `latest`: Type 'number' is not assignable to type 'string'.
peer.batch().notify("moved", { x: 1 }, { volatile: true }); // at `{ volatile`: arguments, but got 3.
await connect<AddApi>("ws://x", { onForeignMessage: (_, one) => one.notify("sub") }); // at `"sub"`: Argument of type '"sub"' is not assignable to parameter of type 'never'.
// Handlers.
await connect<AddApi, ClientApi>("ws://x", { methods: {} }); // at `methods`: ... Property 'confirm' is missing in type '{}'
await connect<AddApi, ClientApi>("ws://x", { methods: { confirn: () => true } }); // at `confirn`: Did you mean to write 'confirm'?
await connect<AddApi, ClientApi>("ws://x", { methods: { confirm, extra: () => 1 } }); // at `extra`: 'extra' does not exist in type
await connect<AddApi, ClientApi>("ws://x", { methods: { confirm: ({ txt }) => txt === "" } }); // at `txt`: Property 'txt' does not exist on type
await connect<AddApi, ClientApi>("ws://x", { methods: { confirm: () => "yes" } }); // at `"yes"`: 'string' is not assignable to type 'boolean
await connect<AddApi, ClientApi>("ws://x", { methods: { confirm: async () => "yes" } }); // at `"yes"`: ... Type 'string' is not assignable to type 'boolean'.
await connect<AddApi, ClientApi>("ws://x", { methods: service }); // at `methods`: ... The 'this' types of each signature are incompatible.
await serve<AddApi>({ port: 1, methods: { add: () => true } }); // at `true`: 'boolean' is not assignable to type 'number
pair<AddApi, {}>({ methods: { add: (_, { server }) => Number(server) } }, { methods: {} }); // at `server`: Property 'server' does not exist on type
peer.handle("confirn", confirm); // at `"confirn"`: Argument of type '"confirn"' is not assignable to parameter of type
peer.handle("confirm", () => 1); // at `1`: Type 'number' is not assignable to type 'boolean
await testServer<AddApi, ClientApi>({}).connect("ws://localhost", { methods: { confirm: () => "yes" } }); // at `confirm`: ... Type 'string' is not assignable to type 'boolean
new Peer({ send: () => true, close: () => {} }, {}); // at `{ send`: Property 'start' is missing
// Events, topics and groups.
peer.on("closed", () => {}); // at `"closed"`: Argument of type '"closed"' is not assignable to parameter of type
server.on("peers", () => {}); // at `"peers"`: Argument of type '"peers"' is not assignable to parameter of type
server.topic("a").on("joined", () => {}); // at `"joined"`: Argument of type '"joined"' is not assignable to parameter of type
server.topic("a").notify("moved", { x: 1 }); // at `"moved"`: Argument of type '"moved"' is not assignable to parameter of type '"changed"'.
void server.topic("a").publish("changed", { n: "1" }); // at `n: "1"`: Type 'string' is not assignable to type 'number'.
void server.topic("a").publish("changed", { n: 1, at: "x.1" }); // at `at`: 'at' does not exist in type
void server.topic("a").publish("confirm", { question: "?" }); // at `"confirm"`: Argument of type '"confirm"' is not assignable to parameter of type '"changed"'.
server.on("peer", (one) => void server.topic("a").join(one, { as: { nam: "Ada" } })); // at `nam`: Did you mean to write 'name'?
await server.peers.request("confirm", { question: "?" }, { onProgress: () => {} }); // at `onProgress`: 'onProgress' does not exist in type
(await server.peers.request("confirm", { question: "?" }))[0]!.value.valueOf(); // at `(await`: Object is possibly 'undefined'.
void server.runOnce("k", () => 1); // at `"k"`: Argument of type 'string' is not assignable to parameter of type
(await server.runOnce(context, () => new Date())).getTime(); // at `getTime`: Property 'getTime' does not exist on type 'string'.
void server.runOnce(context, 5); // at `5`: Argument of type 'number' is not assignable to parameter of type
peer.data.rom = "den"; // at `rom`: Did you mean 'room'?
call.context.user = 5; // at `call`: 'number' is not assignable to type 'string'
call.context.usr = "ada"; // at `usr`: Did you mean 'user'?
new RpcError("403", "declined"); // at `"403"`: Argument of type 'string' is not assignable to parameter of type 'number'
// Contracts.
await connect<{ add(a: number, b: number): number }>("ws://x"); // at `{ add`: ... a method takes one `params`: an array or an object
await connect<{ greet(name: string): string }>("ws://x"); // at `{ greet`: ... a method takes one `params`: an array or an object
await connect<{ version: string }>("ws://x"); // at `{ version`: ... a contract holds methods only
contract({ add: { reslt: schema } }); // at `reslt`: Did you mean to write 'result'?
contract({ add: { meta: { role: "admin" } } }); // at `role`: Type '"admin"' is not assignable to type
contract({ add: { meta: { role: "editor", rol: "viewer" } } }); // at `rol:`: 'string' is not assignable to type 'never'
contract({ add: { meta: { role: "editor", limits: { maxRunning: "1" } } } }); // at `maxRunning`: 'string' is not assignable to type 'number'
await serve<AddApi>({ port: 1, methods: { add }, schemas: { add: schema } }); // at `add: schema`: ... Source has 1 element(s) but target requires 2.
// Stores and hooks.
follow(peer, "open", {}, { reduce: {} }); // at `{}`: Property 'id' is missing in type '{}'
follow(peer, "open", { id: "a" }, { reduce: { moved: (n: number) => n } }); // at `moved`: 'moved' does not exist in type
presence(peer, "people", {}); // at `{}`: Property 'room' is missing in type '{}'
presence(peer, "people", { room: "a" }, { state: { y: 1 } }); // at `y`: 'y' does not exist in type '{ x: number; }'
mutation(peer, "tail"); // at `"tail"`: Argument of type '"tail"' is not assignable to parameter of type '"put"'.
mutation(peer, "ping"); // at `"ping"`: Argument of type '"ping"' is not assignable to parameter of type '"put"'.
mutation(peer, "add"); // at `"add"`: Argument of type '"add"' is not assignable to parameter of type '"put"'.
mutation(peer, "count"); // at `"count"`: Argument of type '"count"' is not assignable to parameter of type '"put"'.
void mutation(peer, "put").mutate({ key: "k" }); // at `{ key`: ... Property 'text' is missing in type '{ key: string; }'
void mutation(peer, "put").mutate({ text: "", kye: "k" }); // at `kye`: 'kye' does not exist in type
void mutation(peer, "put").mutate({ text: "" }, { timeout: 5 }); // at `timeout`: 'timeout' does not exist in type
app.useNotification("chnged", () => {}); // at `"chnged"`: Argument of type '"chnged"' is not assignable to parameter of type '"changed"'.
app.useHandler("confirm", () => 1); // at `1`: Type 'number' is not assignable to type 'boolean
app.useStream("tail", { fil: "log" }); // at `fil:`: 'fil' does not exist in type '{ file: string; }'
useTopic(peer, "open", { i: "a" }, { reduce: {} }); // at `i:`: 'i' does not exist in type
useMutation(peer, "add"); // at `"add"`: Argument of type '"add"' is not assignable to parameter of type '"put"'.
