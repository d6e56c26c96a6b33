/** jayson 5's WebSocket client calls a reciproc server, also in batches. It serves no calls, and on close its calls settle only by timeout. */
import { once } from "node:events";
import { createRequire } from "node:module";
import { describe, expect, it } from "vitest";
import WebSocket from "ws";
import { Inbox, stateOf } from "../support/inbox.js";
import { ATTIC, startService } from "../support/service.js";
import { behavesAsClient, type ThirdPartyClient } from "./behaviour.js";

// Its declarations name packages that it does not install, so they are not used.
const jayson = createRequire(import.meta.url)("jayson");

interface Opened extends ThirdPartyClient {
  readonly client: any;
}

async function open(url: string): Promise<Opened> {
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

describe("a jayson client", () => {
  behavesAsClient({
    open,
    ids: (ids) => expect(ids).toEqual(ids.map(() => expect.stringMatching(UUID))),
    pending: "pending",
  });

  it("sends a batch and gets one array for it", async () => {
    await using service = await startService();
    const { client, close } = await open(service.url);
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
    const client = await open(service.url);
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
