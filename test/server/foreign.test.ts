/** Messages of another protocol, over real connections. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { describe, expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { connect, serve, type AnyPeer } from "../../src/node.js";
import { plainPeer } from "../support/network.js";
import { post } from "../support/post.js";
import { notification } from "../support/raw.js";
import { gate } from "../support/turns.js";

describe("onForeignMessage", () => {
  it("gets messages of another protocol from a server", async () => {
    const seen = gate<unknown>();
    const other = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    other.on("connection", (webSocket) => webSocket.send('{"event":"hello"}'));
    await once(other, "listening");
    const url = `ws://127.0.0.1:${(other.address() as AddressInfo).port}`;
    await using peer = await connect(url, { onForeignMessage: (message) => seen.resolve(message) });
    expect(await seen.promise).toEqual({ event: "hello" });
    expect(peer.stats()).toMatchObject({ malformed: 0 });
    other.close();
  });

  it("gets messages of a client, with the client's peer", async () => {
    const seen = gate<[message: object, peer: AnyPeer]>();
    await using server = await serve({
      port: 0,
      onForeignMessage: (message, peer) => {
        seen.resolve([message, peer]);
        peer.notify("seen");
      },
    });
    using client = await plainPeer(server.url);
    const next = client.next();
    client.webSocket.send('{"event":"hello"}');
    const [message, peer] = await seen.promise;
    expect(message).toEqual({ event: "hello" });
    expect(server.peers.has(peer)).toBe(true);
    expect(await next).toEqual(notification("seen"));
  });

  it("gets the body of a POST at a server, which responds with 204", async () => {
    const seen = gate<unknown>();
    await using server = await serve({ port: 0, onForeignMessage: (message) => seen.resolve(message) });
    const response = await post(server.url, { event: "hello" });
    expect(response.status).toBe(204);
    expect(await seen.promise).toEqual({ event: "hello" });
  });
});
