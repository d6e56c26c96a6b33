import { once } from "node:events";
import { createRequire } from "node:module";
import { Client, RequestManager, WebSocketTransport } from "@open-rpc/client-js";
import { JSONRPCClient, type JSONRPCRequest, JSONRPCServer, JSONRPCServerAndClient } from "json-rpc-2.0";
import { Client as RpcWebSocketsClient } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import WebSocket from "ws";
import { rejection } from "../../support/turns.js";
import { Inbox, stateOf } from "../../support/inbox.js";
import { behavesAsClient, meet, type ThirdPartyClient } from "./behaviour.js";

// Its declarations name packages that it does not install, so they are not used.
const jayson = createRequire(import.meta.url)("jayson");

/** Returns the outcomes of the calls "a" and "b", from the array that answers their batch. */
function outcomesOf(answers: { id: unknown; result?: unknown; error?: unknown }[]): [unknown, unknown] {
  expect(answers.map(({ id }) => id)).toEqual(["a", "b"]);
  return [answers[0]!.result, answers[1]!.error];
}

async function openJayson(url: string): Promise<ThirdPartyClient> {
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
    call: (method, params) =>
      new Promise((resolve, reject) =>
        client.request(method, params, (failed: Error | null, error: unknown, result: unknown) =>
          failed === null && error === undefined ? resolve(result) : reject(failed ?? error),
        ),
      ),
    notify: (method, params) => new Promise((resolve) => client.request(method, params, null, resolve)),
    async batch() {
      const calls = [
        client.request("add", [1, 2], "a"),
        client.request("note", ["in a batch"], null),
        client.request("attic", [], "b"),
      ];
      const answers = await new Promise<any>((resolve, reject) =>
        client.request(calls, (error: unknown, result: unknown) => (error ? reject(error) : resolve(result))),
      );
      return outcomesOf(answers);
    },
    pushed,
    close: () => (webSocket.close(), closed),
  };
}

// jayson 5's WebSocket client calls a reciproc server, also in batches. It serves no calls, and on close its calls settle only by timeout.
describe("a jayson client", () => {
  const uuid: unknown = expect.stringMatching(/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  behavesAsClient({ open: openJayson, ids: [uuid, uuid, uuid], pending: "pending", called: "ignores" });
});

async function openJsonRpc2(url: string): Promise<ThirdPartyClient & { both: JSONRPCServerAndClient }> {
  const webSocket = new WebSocket(url);
  const both: JSONRPCServerAndClient = new JSONRPCServerAndClient(
    new JSONRPCServer(),
    new JSONRPCClient((message) => webSocket.send(JSON.stringify(message))),
  );
  webSocket.on("message", (data: Buffer) => void both.receiveAndSend(JSON.parse(data.toString())));
  const closed = once(webSocket, "close").then(() => both.rejectAllPendingRequests("the connection is closed"));
  await once(webSocket, "open");
  const pushed = new Inbox();
  both.addMethod("tick", (params) => pushed.push(["tick", params]));
  both.addMethod("confirm", ({ question }) => `yes to ${question}`);
  return {
    both,
    call: async (method, params) => both.request(method, params),
    notify: (method, params) => both.notify(method, params),
    async batch() {
      const calls: JSONRPCRequest[] = [
        { jsonrpc: "2.0", id: "a", method: "add", params: [1, 2] },
        { jsonrpc: "2.0", method: "note", params: ["in a batch"] },
        { jsonrpc: "2.0", id: "b", method: "attic" },
      ];
      return outcomesOf(await both.requestAdvanced(calls));
    },
    pushed,
    close: () => (webSocket.close(), closed),
  };
}

// json-rpc-2.0 1.8, connected to a WebSocket as in its README, calls a reciproc server and is called by it during a call.
describe("a json-rpc-2.0 client", () => {
  behavesAsClient({ open: openJsonRpc2, ids: [1, 2, 3], pending: "rejected", called: "answers" });

  it("answers a batch of the server", async () => {
    await using both = await meet(openJsonRpc2);
    const { client, peer } = both;
    client.both.addMethod("twice", ([n]) => 2 * n);
    const batch = peer.batch();
    const calls = [batch.request("twice", [1]), batch.request("nope"), batch.request("twice", [3])];
    batch.notify("tick", ["in a batch"]);
    batch.send();
    expect(await calls[0]).toBe(2);
    expect(await rejection(calls[1]!)).toMatchObject({ code: -32601 });
    expect(await calls[2]).toBe(6);
    expect(await client.pushed.next()).toEqual(["tick", ["in a batch"]]);
  });
});

async function openOpenRpc(url: string): Promise<ThirdPartyClient> {
  const transport = new WebSocketTransport(url);
  const manager = new RequestManager([transport]);
  const client = new Client(manager);
  const pushed = new Inbox();
  client.onNotification(({ method, params }) => pushed.push([method, params]));
  await manager.connectPromise;
  const closed = new Promise((resolve) => transport.connection.addEventListener("close", resolve));
  return {
    call: (method, params) => client.request(params === undefined ? { method } : { method, params }),
    notify: (method, params) => client.notify(params === undefined ? { method } : { method, params }),
    async batch() {
      client.startBatch();
      const sum = client.request({ method: "add", params: [1, 2] });
      const error = rejection(client.request({ method: "attic" }));
      const noted = client.notify({ method: "note", params: ["in a batch"] });
      client.stopBatch();
      await noted;
      return [await sum, await error];
    },
    pushed,
    close: () => (client.close(), closed),
  };
}

// @open-rpc/client-js 2.1 calls a reciproc server with string ids from "0", also in batches. It serves no calls.
describe("an @open-rpc/client-js client", () => {
  behavesAsClient({ open: openOpenRpc, ids: ["0", "1", "2"], pending: "pending", called: "mistakes" });

  it("mistakes the server's call for an answer without a result to its own call of the same number", async () => {
    await using both = await meet(openOpenRpc);
    const { client } = both;
    const first = client.call("wait", ["first"]);
    // Its first call has the id "0", its second "1". The server's first call has 1.
    expect(await client.call("ask", ["sure?"])).toBe(undefined);
    expect(await stateOf(first)).toBe("pending");
    await client.notify("release", ["first"]);
    expect(await first).toBe("first");
  });
});

async function openRpcWebSockets(url: string): Promise<ThirdPartyClient & { client: RpcWebSocketsClient }> {
  const client = new RpcWebSocketsClient(url, { reconnect: false });
  const pushed = new Inbox();
  for (const name of ["tick", "confirm"]) client.on(name, (params: unknown) => pushed.push([name, params]));
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
  behavesAsClient({ open: openRpcWebSockets, ids: [1, 2, 3], pending: "pending", called: "ignores", batches: false });

  it("subscribes and logs in if the server registers `rpc.on` and `rpc.login` on purpose", async () => {
    await using both = await meet(openRpcWebSockets);
    const { peer } = both;
    const { client, pushed } = both.client;
    expect(await rejection(client.subscribe("tick"))).toMatchObject({ code: -32601 });
    peer.handle("rpc.on", (names: string[]) => Object.fromEntries(names.map((name) => [name, "ok"])));
    peer.handle("rpc.login", ({ user }) => user === "ada");
    expect(await client.subscribe("tick")).toEqual({ tick: "ok" });
    peer.notify("tick", { n: 1 });
    expect(await pushed.next()).toEqual(["tick", { n: 1 }]);
    expect(await client.login({ user: "ada" })).toBe(true);
    expect(await rejection(client.login({ user: "eve" }))).toBeInstanceOf(Error);
  });

  it("mistakes the server's call for a malformed answer to its own call of the same number", async () => {
    await using both = await meet(openRpcWebSockets);
    expect(await rejection(both.client.call("ask", ["sure?"]))).toBeInstanceOf(Error);
    // The server has neither answered its call, nor got an answer.
    expect(both.peer.stats()).toMatchObject({ running: 1, pending: 1 });
  });
});
