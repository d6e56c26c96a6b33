/** The `route` of a session: the name by which a load balancer finds the server that has it. */
import type { IncomingMessage } from "node:http";
import { expect, it } from "vitest";
import { WebSocketServer } from "ws";
import { serve, type Server } from "../../src/node.js";
import { confirmed, describeClients, event, type Connect } from "./clients.js";
import { bareHttp } from "../support/network.js";
import { rejection } from "../support/turns.js";
import { Relay } from "../support/relay.js";

const LIMITS = { maxMessageBytes: 2 ** 20, logFrames: 64, logLength: 2 ** 20 };

/** A server that records the URL of each upgrade. */
async function recording(session: object | false, urls: string[]): Promise<Server<any, any, any>> {
  const authenticate = (request: IncomingMessage): object => {
    urls.push(request.url!);
    return {};
  };
  return serve<any, any, any>({ port: 0, session, authenticate });
}

describeClients("a client whose session has a route", (connect: Connect) => {
  it("adds it to the end of its URL when it resumes, and leaves the rest of the URL alone", async () => {
    for (const [path, resumed] of [
      ["rpc", "/rpc?node=n7"],
      ["rpc?signed=a+b%20c~%2f", "/rpc?signed=a+b%20c~%2f&node=n7"],
    ]) {
      const urls: string[] = [];
      await using server = await recording({ route: "n7" }, urls);
      await using relay = await Relay.to(server.url);
      await using peer = await confirmed(connect, relay.url + path);
      for (let cuts = 0; cuts < 2; cuts++) {
        relay.cut();
        await event(peer, "resume");
      }
      expect(urls).toEqual([`/${path}`, resumed, resumed]);
    }
  });

  it("does not add it when the session has ended, and adds that of the next session", async () => {
    const urls: string[] = [];
    await using first = await recording({ route: "n7" }, urls);
    await using second = await recording({ route: "n8" }, urls);
    await using relay = await Relay.to(first.url);
    await using peer = await confirmed(connect, relay.url);
    const connected = async (count: number): Promise<void> => {
      await expect.poll(() => urls.length).toBe(count);
      // Rejects with an error of the server's present session, or of the one that was lost.
      for (let i = 0; i < 2; i++) await rejection(peer.request("confirmed"));
    };
    const [served] = first.peers;
    await served!.close(4001);
    await connected(2);
    relay.target = second.url;
    relay.cut();
    // This server does not have the session: its hello on the same socket begins another one.
    await connected(3);
    relay.cut();
    await connected(4);
    expect(urls).toEqual(["/", "/", "/?node=n7", "/?node=n8"]);
  });

  it("refuses one that no URL can carry as a breach of the protocol, and connects again", async () => {
    await using http = await bareHttp();
    const sockets = new WebSocketServer({ server: http.server, handleProtocols: () => "reciproc.v1" });
    const closes: number[] = [];
    const routes = ["a\ud800", "\udc00", "n7"];
    sockets.on("connection", (socket) => {
      socket.on("close", (code) => closes.push(code));
      const session = { token: "t", ttlMs: 60_000, limits: LIMITS, route: routes.shift() };
      socket.send(JSON.stringify({ hello: { session } }));
    });
    await using peer = await connect(http.url, { reconnect: { initial: true } });
    expect(peer.state).toBe("open");
    // A standard WebSocket sends 4400 for 1002.
    await expect.poll(() => closes.map((code) => (code === 4400 ? 1002 : code))).toEqual([1002, 1002]);
    http.cut();
  });

  it("adds nothing for a server that gives none", async () => {
    const urls: string[] = [];
    await using server = await recording({}, urls);
    await using relay = await Relay.to(server.url);
    await using peer = await confirmed(connect, relay.url);
    relay.cut();
    await event(peer, "resume");
    expect(urls).toEqual(["/", "/"]);
  });
});

it("a server accepts every client, whatever its URL says about a route", async () => {
  const urls: string[] = [];
  await using server = await recording({ route: "n7" }, urls);
  const { connect } = await import("../../src/node.js");
  await using peer = await connect(`${server.url}?node=n8`);
  expect(peer.state).toBe("open");
});

it.each(["", "a b", "a&b", "x".repeat(65), 7, null])("a server refuses the route %j", async (route) => {
  await expect(serve({ noServer: true, session: { route: route as string } })).rejects.toThrow(
    "Expected `session.route`",
  );
});

it("a server takes a route of 64 characters", async () => {
  await using server = await serve({ noServer: true, session: { route: `A.z_-9${"x".repeat(58)}` } });
  expect(server.url).toBe("");
});
