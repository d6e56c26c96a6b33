/** The clients of other libraries call a reciproc server. */
import { once } from "node:events";
import { createRequire } from "node:module";
import { Client, RequestManager, WebSocketTransport } from "@open-rpc/client-js";
import { JSONRPCClient, type JSONRPCRequest, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";
import { Client as RpcWebSocketsClient } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import WebSocket from "ws";
import { rejection } from "../../support/turns.js";
import { Inbox, stateOf } from "../support/inbox.js";
import { ATTIC, startService } from "../support/service.js";
import { behavesAsClient, type ThirdPartyClient } from "./behaviour.js";

// Its declarations name packages that it does not install, so they are not used.
const jayson = createRequire(import.meta.url)("jayson");

interface OpenedJayson extends ThirdPartyClient {
  readonly client: any;
}

async function openJayson(url: string): Promise<OpenedJayson> {
  const webSocket = new WebSocket(url);
  const client = jayson.client.websocket({ ws: webSocket });
  const pushed = new Inbox();
  // It reads answers only. Other messages are read by other listeners of the same socket.
  webSocket.on("message", (data: Buffer) => {
    const { method, params } = JSON.parse(data.toString());
    if (method !== undefined) pushed.push([method, params]);
  });
  const closed = once(webSocket, "close");
  await once(webSocket, "open");
  return {
    client,
    call: (method, params) =>
      new Promise((resolve, reject) =>
        client.request(method, params, (failed: Error | null, error: unknown, result: unknown) =>
          failed === null && error === undefined ? resolve(result) : reject(failed ?? error),
        ),
      ),
    notify: (method, params) => new Promise((resolve) => client.request(method, params, null, resolve)),
    pushed,
    close: () => (webSocket.close(), closed),
  };
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

// jayson 5's WebSocket client calls a reciproc server, also in batches. It serves no calls, and on close its calls settle only by timeout.
describe("a jayson client", () => {
  behavesAsClient({
    open: openJayson,
    ids: (ids) => expect(ids).toEqual(ids.map(() => expect.stringMatching(UUID))),
    pending: "pending",
  });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const { client, close } = await openJayson(service.url);
    const batch = [
      client.request("add", [1, 2], "a"),
      client.request("note", ["in a batch"], null),
      client.request("attic", [], "b"),
    ];
    const answers = await new Promise((resolve, reject) =>
      client.request(batch, (error: unknown, result: unknown) => (error ? reject(error) : resolve(result))),
    );
    expect(answers).toEqual([
      { jsonrpc: "2.0", id: "a", result: 3 },
      { jsonrpc: "2.0", id: "b", error: ATTIC },
    ]);
    expect(service.noted.all).toEqual([["in a batch"]]);
    await close();
  });

  it("does not answer the server's calls, which time out, and its own calls still work", async () => {
    await using service = await startService();
    const client = await openJayson(service.url);
    const peer = await service.peers.next();
    const asked = peer.request("confirm", ["sure?"]);
    expect(await client.pushed.next()).toEqual(["confirm", ["sure?"]]);
    expect(await client.call("add", [1, 2])).toBe(3);
    expect(await stateOf(asked)).toBe("pending");
    const closed = expect(asked).rejects.toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    await client.close();
    await closed;
  });
});

interface OpenedJsonRpc2 extends ThirdPartyClient {
  readonly both: JSONRPCServerAndClient;
}

async function openJsonRpc2(url: string): Promise<OpenedJsonRpc2> {
  const webSocket = new WebSocket(url);
  const both: JSONRPCServerAndClient = new JSONRPCServerAndClient(
    new JSONRPCServer(),
    new JSONRPCClient((message) => webSocket.send(JSON.stringify(message))),
  );
  webSocket.on("message", (data: Buffer) => void both.receiveAndSend(JSON.parse(data.toString())));
  const closed = new Promise<void>((resolve) =>
    webSocket.on("close", () => {
      both.rejectAllPendingRequests("the connection is closed");
      resolve();
    }),
  );
  await once(webSocket, "open");
  const pushed = new Inbox();
  both.addMethod("tick", (params) => pushed.push(["tick", params]));
  return {
    both,
    call: (method, params) => both.request(method, params),
    notify: (method, params) => both.notify(method, params),
    pushed,
    close: () => (webSocket.close(), closed),
  };
}

// json-rpc-2.0 1.8, connected to a WebSocket as in its README, calls a reciproc server and is called by it during a call.
describe("a json-rpc-2.0 client", () => {
  behavesAsClient({ open: openJsonRpc2, ids: (ids) => expect(ids).toEqual([1, 2, 3]), pending: "rejected" });

  it("answers a call that the server makes during its own call", async () => {
    await using service = await startService();
    const client = await openJsonRpc2(service.url);
    client.both.addMethod("confirm", ({ question }) => `yes to ${question}`);
    expect(await client.call("ask", { question: "sure?" })).toBe("you said yes to sure?");
    await client.close();
  });

  it("answers the server's call with its own error, and with -32601 for an unknown method", async () => {
    await using service = await startService();
    const client = await openJsonRpc2(service.url);
    const peer = await service.peers.next();
    client.both.addMethodAdvanced("attic", ({ id = null }) => Promise.resolve({ jsonrpc: "2.0", id, error: ATTIC }));
    expect(await rejection(peer.request("attic"))).toMatchObject({ ...ATTIC, method: "attic" });
    expect(await rejection(peer.request("nope"))).toMatchObject({ code: -32601 });
    await client.close();
  });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const client = await openJsonRpc2(service.url);
    const calls: JSONRPCRequest[] = [
      { jsonrpc: "2.0", id: "a", method: "add", params: [1, 2] },
      { jsonrpc: "2.0", method: "note", params: ["in a batch"] },
      { jsonrpc: "2.0", id: "b", method: "attic" },
    ];
    expect(await client.both.requestAdvanced(calls)).toEqual([
      { jsonrpc: "2.0", id: "a", result: 3 },
      { jsonrpc: "2.0", id: "b", error: ATTIC },
    ]);
    expect(service.noted.all).toEqual([["in a batch"]]);
    await client.close();
  });

  it("answers a batch of the server", async () => {
    await using service = await startService();
    const client = await openJsonRpc2(service.url);
    const peer = await service.peers.next();
    client.both.addMethod("twice", ([n]) => 2 * n);
    const batch = peer.batch();
    const calls = [batch.request("twice", [1]), batch.request("nope"), batch.request("twice", [3])];
    batch.notify("tick", ["in a batch"]);
    batch.send();
    expect(await calls[0]).toBe(2);
    expect(await rejection(calls[1]!)).toMatchObject({ code: -32601 });
    expect(await calls[2]).toBe(6);
    expect(await client.pushed.next()).toEqual(["tick", ["in a batch"]]);
    await client.close();
  });
});

interface OpenedOpenRpc extends ThirdPartyClient {
  readonly client: Client;
}

async function openOpenRpc(url: string): Promise<OpenedOpenRpc> {
  const transport = new WebSocketTransport(url);
  const manager = new RequestManager([transport]);
  const client = new Client(manager);
  const pushed = new Inbox();
  client.onNotification(({ method, params }) => pushed.push([method, params]));
  await manager.connectPromise;
  const closed = new Promise((resolve) => transport.connection.addEventListener("close", resolve));
  return {
    client,
    call: (method, params) => client.request(params === undefined ? { method } : { method, params }),
    notify: (method, params) => client.notify(params === undefined ? { method } : { method, params }),
    pushed,
    close: () => (client.close(), closed),
  };
}

// @open-rpc/client-js 2.1 calls a reciproc server with string ids from "0", also in batches. It serves no calls.
describe("an @open-rpc/client-js client", () => {
  behavesAsClient({ open: openOpenRpc, ids: (ids) => expect(ids).toEqual(["0", "1", "2"]), pending: "pending" });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const { client, close } = await openOpenRpc(service.url);
    client.startBatch();
    const calls = [client.request({ method: "add", params: [1, 2] }), client.request({ method: "attic" })];
    const noted = client.notify({ method: "note", params: ["in a batch"] });
    client.stopBatch();
    expect(await calls[0]).toBe(3);
    expect(await rejection(calls[1]!)).toMatchObject(ATTIC);
    expect(await noted).toBe(undefined);
    expect(service.noted.all).toEqual([["in a batch"]]);
    await close();
  });

  it("mistakes the server's call for an answer without a result to its own call of the same number", async () => {
    await using service = await startService();
    const { call, close } = await openOpenRpc(service.url);
    const first = call("wait", ["first"]);
    const second = call("ask", ["sure?"]);
    // Its first call has the id "0", its second "1". The server's first call has 1.
    expect(await second).toBe(undefined);
    expect(await stateOf(first)).toBe("pending");
    service.gateOf("first").resolve("answered");
    expect(await first).toBe("answered");
    await close();
    // The server's handler is pending until its caller disconnects. That is no failure, and no `error` is emitted.
    await expect.poll(() => service.server.stats().running).toBe(0);
  });
});

interface OpenedRpcWebSockets extends ThirdPartyClient {
  readonly client: RpcWebSocketsClient;
}

async function openRpcWebSockets(url: string): Promise<OpenedRpcWebSockets> {
  const client = new RpcWebSocketsClient(url, { reconnect: false });
  const pushed = new Inbox();
  client.on("tick", (params: unknown) => pushed.push(["tick", params]));
  const closed = new Promise((resolve) => client.once("close", resolve));
  await new Promise<void>((resolve) => client.once("open", () => resolve()));
  return {
    client,
    call: (method, params) => client.call(method, params),
    notify: (method, params) => client.notify(method, params),
    pushed,
    close: () => (client.close(), closed),
  };
}

// rpc-websockets 10, the most used JSON-RPC client over WebSocket on npm, calls a reciproc server. Its calls do not settle on close.
describe("an rpc-websockets client", () => {
  behavesAsClient({ open: openRpcWebSockets, ids: (ids) => expect(ids).toEqual([1, 2, 3]), pending: "pending" });

  it("subscribes and logs in if the server registers `rpc.on` and `rpc.login` on purpose", async () => {
    await using service = await startService();
    const { client, pushed, close } = await openRpcWebSockets(service.url);
    expect(await rejection(client.subscribe("tick"))).toMatchObject({ code: -32601 });
    const peer = await service.peers.next();
    const subscribed: string[] = [];
    peer.handle("rpc.on", (names: string[]) => {
      subscribed.push(...names);
      return Object.fromEntries(names.map((name) => [name, "ok"]));
    });
    peer.handle("rpc.login", ({ user }) => user === "ada");
    expect(await client.subscribe("tick")).toEqual({ tick: "ok" });
    expect(subscribed).toEqual(["tick"]);
    peer.notify("tick", { n: 1 });
    expect(await pushed.next()).toEqual(["tick", { n: 1 }]);
    expect(await client.login({ user: "ada" })).toBe(true);
    expect(await rejection(client.login({ user: "eve" }))).toMatchObject({ message: "authentication failed" });
    await close();
  });

  it("treats the server's calls as events without an answer, and its own calls still work", async () => {
    await using service = await startService();
    const { client, call, close } = await openRpcWebSockets(service.url);
    const peer = await service.peers.next();
    const asked = peer.request("confirm", { question: "sure?" });
    const params = await new Promise((resolve) => client.once("confirm", resolve));
    expect(params).toEqual({ question: "sure?" });
    expect(await call("add", [1, 2])).toBe(3);
    expect(await stateOf(asked)).toBe("pending");
    const lost = expect(asked).rejects.toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    await close();
    await lost;
  });

  it("mistakes the server's call for a malformed answer to its own call of the same number", async () => {
    await using service = await startService();
    const { call, close } = await openRpcWebSockets(service.url);
    const error = await rejection(Promise.resolve(call("ask", ["sure?"])));
    expect(error.message).toContain("Server response malformed");
    await close();
    // The server's handler is pending until its caller disconnects. That is no failure, and no `error` is emitted.
    await expect.poll(() => service.server.stats().running).toBe(0);
  });
});
