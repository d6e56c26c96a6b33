import { createRequire } from "node:module";
import { JSONRPCClient, JSONRPCErrorException, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";
import { Server } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { connect } from "../../support/connect.js";
import { bareHttp, plainPeer } from "../../support/network.js";
import { raising, rejection } from "../../support/turns.js";
import { Inbox } from "../../support/inbox.js";
import { ATTIC, commonMethods } from "../support/service.js";
import { behavesAsServer, connectPlainly, type ForeignServer } from "./behaviour.js";

// Its declarations name packages that it does not install, so they are not used.
const jayson = createRequire(import.meta.url)("jayson");

type Callback = (error: unknown, result?: unknown) => void;

async function startJayson(): Promise<ForeignServer> {
  const noted = new Inbox();
  const methods = Object.entries(commonMethods(noted)).map(([name, run]) => [
    name,
    async (params: unknown, done: Callback) => done(null, await run(params)),
  ]);
  const attic = (_params: unknown, done: Callback): void => done(ATTIC);
  const server = jayson.server({ ...Object.fromEntries(methods), attic });
  const http = await bareHttp();
  server.websocket({ server: http.server });
  return { ...http, noted };
}

// A reciproc client calls a jayson 5 WebSocket server, also in batches.
describe("a jayson server", () => {
  behavesAsServer({ start: startJayson });
});

async function startJsonRpc2(): Promise<ForeignServer & { clients: Inbox<JSONRPCServerAndClient> }> {
  const [noted, clients] = [new Inbox(), new Inbox<JSONRPCServerAndClient>()];
  const methods = Object.entries(commonMethods(noted));
  const http = await bareHttp();
  new WebSocketServer({ server: http.server }).on("connection", (webSocket) => {
    const both: JSONRPCServerAndClient = new JSONRPCServerAndClient(
      // The errors of its methods would be printed.
      new JSONRPCServer({ errorListener: () => {} }),
      new JSONRPCClient((message) => webSocket.send(JSON.stringify(message))),
    );
    for (const [name, run] of methods) both.addMethod(name, run);
    both.addMethod("attic", raising(new JSONRPCErrorException(ATTIC.message, ATTIC.code, ATTIC.data)));
    both.addMethod("ask", async (params) => `you said ${await both.request("confirm", params)}`);
    webSocket.on("message", (data: Buffer) => void both.receiveAndSend(JSON.parse(data.toString())));
    webSocket.on("close", () => both.rejectAllPendingRequests("the connection is closed"));
    clients.push(both);
  });
  return { ...http, clients, noted };
}

// A reciproc client calls a json-rpc-2.0 1.8 server, connected as in its README, and is called by it during a call.
describe("a json-rpc-2.0 server", () => {
  behavesAsServer({ start: startJsonRpc2, calls: true });

  it("notifies the client", async () => {
    await using foreign = await startJsonRpc2();
    const ticks = new Inbox();
    await using _peer = await connect(foreign.url, { methods: { tick: ticks.push } });
    const theirs = await foreign.clients.next();
    theirs.notify("tick", [1]);
    expect(await ticks.next()).toEqual([1]);
  });
});

async function startRpcWebSockets(): Promise<ForeignServer & { server: Server }> {
  const http = await bareHttp();
  const server = new Server({ server: http.server });
  const noted = new Inbox();
  for (const [name, run] of Object.entries(commonMethods(noted))) server.register(name, run as never);
  server.register("attic", () => {
    // It sends a thrown value unchanged if it is not an Error.
    throw server.createError(ATTIC.code, ATTIC.message, ATTIC.data as never);
  });
  server.event("tick");
  return { ...http, server, noted };
}

// A reciproc client calls an rpc-websockets 10 server, whose events are not JSON-RPC and are refused.
describe("an rpc-websockets server", () => {
  behavesAsServer({ start: startRpcWebSockets });

  it("pushes messages that are not JSON-RPC: each is refused, and the client closes with 1008 after a hundred, unless the limit is raised", async () => {
    await using foreign = await startRpcWebSockets();
    await using strict = await connectPlainly(foreign.url);
    const limits = { maxMalformedPerMinute: Infinity };
    await using patient = await connect(foreign.url, { link: "plain", limits });
    const errors = new Inbox<any>();
    patient.on("error", errors.push);
    for (const peer of [strict, patient]) expect(await peer.request("rpc.on", ["tick"])).toEqual({ tick: "ok" });
    foreign.server.emit("tick", 1, 2);
    // Its push has `notification` instead of a method and no `jsonrpc`. It refuses the refusal, and no further message is sent.
    expect(await errors.next()).toMatchObject({ name: "RpcError", code: -32602, data: "Method not specified" });
    expect(await patient.request("add", [1, 2])).toBe(3);
    expect(errors.all).toHaveLength(1);
    for (let i = 0; i < 100; i++) foreign.server.emit("tick", i);
    expect(await strict.closed).toMatchObject({ code: 1008 });
    expect(await patient.request("add", [1, 2])).toBe(3);
  });

  it("answers no call of id 0, which is why reciproc counts from 1, and an inherited name with an error of its own", async () => {
    await using foreign = await startRpcWebSockets();
    using bare = await plainPeer(foreign.url);
    for (const id of [0, 1]) bare.webSocket.send(JSON.stringify({ jsonrpc: "2.0", id, method: "echo", params: [id] }));
    expect(await bare.next()).toEqual({ jsonrpc: "2.0", id: 1, result: [1] });
    await using peer = await connectPlainly(foreign.url);
    const error = await rejection(peer.request("toString"));
    expect(error).toMatchObject({ name: "RpcError", code: -32000, message: "TypeError" });
  });
});
