/** rpc-websockets 10, the most used JSON-RPC client over WebSocket on npm, calls a reciproc server. Its calls do not settle on close. */
import { Client } from "rpc-websockets";
import { describe, expect, it } from "vitest";
import { rejection } from "../../support/turns.js";
import { Inbox, stateOf } from "../support/inbox.js";
import { startService } from "../support/service.js";
import { behavesAsClient, type ThirdPartyClient } from "./behaviour.js";

interface Opened extends ThirdPartyClient {
  readonly client: Client;
}

async function open(url: string): Promise<Opened> {
  const client = new Client(url, { reconnect: false });
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

describe("an rpc-websockets client", () => {
  behavesAsClient({ open, ids: (ids) => expect(ids).toEqual([1, 2, 3]), pending: "pending" });

  it("subscribes and logs in if the server registers `rpc.on` and `rpc.login` on purpose", async () => {
    await using service = await startService();
    const { client, pushed, close } = await open(service.url);
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
    const { client, call, close } = await open(service.url);
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
    const { call, close } = await open(service.url);
    const error = await rejection(Promise.resolve(call("ask", ["sure?"])));
    expect(error.message).toContain("Server response malformed");
    await close();
    // The server's handler is pending until its caller disconnects. That is no failure, and no `error` is emitted.
    await expect.poll(() => service.server.stats().running).toBe(0);
  });
});
