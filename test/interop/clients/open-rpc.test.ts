/** @open-rpc/client-js 2.1 calls a reciproc server with string ids from "0", also in batches. It serves no calls. */
import { Client, RequestManager, WebSocketTransport } from "@open-rpc/client-js";
import { describe, expect, it } from "vitest";
import { rejection } from "../../support/turns.js";
import { Inbox, stateOf } from "../support/inbox.js";
import { ATTIC, startService } from "../support/service.js";
import { behavesAsClient, type ThirdPartyClient } from "./behaviour.js";

interface Opened extends ThirdPartyClient {
  readonly client: Client;
}

async function open(url: string): Promise<Opened> {
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

describe("an @open-rpc/client-js client", () => {
  behavesAsClient({ open, ids: (ids) => expect(ids).toEqual(["0", "1", "2"]), pending: "pending" });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const { client, close } = await open(service.url);
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
    const { call, close } = await open(service.url);
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
