/** json-rpc-2.0 1.8, connected to a WebSocket as in its README, calls a reciproc server and is called by it during a call. */
import { once } from "node:events";
import { JSONRPCClient, JSONRPCServer, JSONRPCServerAndClient, type JSONRPCRequest } from "json-rpc-2.0";
import { describe, expect, it } from "vitest";
import WebSocket from "ws";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../support/inbox.js";
import { ATTIC, startService } from "../support/service.js";
import { behavesAsClient, type ThirdPartyClient } from "./behaviour.js";

interface Opened extends ThirdPartyClient {
  readonly both: JSONRPCServerAndClient;
}

async function open(url: string): Promise<Opened> {
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

describe("a json-rpc-2.0 client", () => {
  behavesAsClient({ open, ids: (ids) => expect(ids).toEqual([1, 2, 3]), pending: "rejected" });

  it("answers a call that the server makes during its own call", async () => {
    await using service = await startService();
    const client = await open(service.url);
    client.both.addMethod("confirm", ({ question }) => `yes to ${question}`);
    expect(await client.call("ask", { question: "sure?" })).toBe("you said yes to sure?");
    await client.close();
  });

  it("answers the server's call with its own error, and with -32601 for an unknown method", async () => {
    await using service = await startService();
    const client = await open(service.url);
    const peer = await service.peers.next();
    client.both.addMethodAdvanced("attic", ({ id = null }) => Promise.resolve({ jsonrpc: "2.0", id, error: ATTIC }));
    expect(await rejection(peer.request("attic"))).toMatchObject({ ...ATTIC, method: "attic" });
    expect(await rejection(peer.request("nope"))).toMatchObject({ code: -32601 });
    await client.close();
  });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const client = await open(service.url);
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
    const client = await open(service.url);
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
