import { describe, expect, it, vi } from "vitest";
import { lsp, mcp, serve } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { plainPeer } from "../support/network.js";
import { raising, rejection } from "../support/turns.js";
import { joinSilent } from "./members.js";

it("the `peer` event is emitted with the request before the peer's first message is dispatched, even one sent at once", async () => {
  const log: unknown[] = [];
  await using server = await serve({
    port: 0,
    methods: { hello: (_params, { peer }) => (log.push(`hello from ${peer.auth} ${peer.data["name"]}`), "hi") },
    authenticate: () => "unknown",
  });
  server.on("peer", (peer, { url }) => {
    peer.data["name"] = "Ada";
    log.push(`peer ${url}`);
  });
  using client = await plainPeer(`${server.url}?x`, {}, '{"jsonrpc":"2.0","id":1,"method":"hello"}');
  expect(await client.next()).toMatchObject({ result: "hi" });
  expect(log).toEqual(["peer /?x", "hello from unknown Ada"]);
});

it("the `peer` event is reported to `error` with the peer if a listener throws or rejects, as is what a handler throws, and the peer stays", async () => {
  const bugs = [1, 2, 3].map((n) => new Error(`bug ${n}`));
  await using kit = testServer({ methods: { bad: () => Promise.reject(bugs[2]!), here: () => true } });
  const { server } = kit;
  const errors: unknown[][] = [];
  server.on("peer", raising(bugs[0]!));
  server.on("peer", () => Promise.reject(bugs[1]!));
  server.on("error", (error, peer) => errors.push([error, peer]));
  const client = await kit.connect(server.url);
  expect(await rejection(client.request("bad"))).toMatchObject({ code: -32603, message: "Internal error" });
  expect(await client.request("here")).toBe(true);
  const [peer] = server.peers;
  expect(errors).toEqual(bugs.map((bug, i) => [bug, i === 1 ? expect.anything() : peer]));
});

it("a server without a listener for `error` warns of the first failure of each method, for all peers together, and of none that has a listener", async () => {
  const warnings: string[] = [];
  vi.spyOn(process, "emitWarning").mockImplementation((warning) => {
    warnings.push((warning as Error).message);
  });
  await using kit = testServer({
    methods: { bad: failing, worse: failing, worst: failing },
    dialect: [lsp, mcp],
  });
  const { server } = kit;
  await using one = await kit.connect(server.url);
  await using two = await kit.connect(server.url, { dialect: mcp });
  for (const peer of [one, two, one]) await rejection(peer.request("bad"));
  expect(warnings).toEqual([expect.stringContaining('"bad"')]);
  for (const peer of server.peers) peer.on("error", () => {});
  await rejection(one.request("worse"));
  for (const peer of server.peers) peer.removeAllListeners("error");
  server.once("error", () => {});
  await rejection(one.request("worse"));
  expect(warnings).toHaveLength(1);
  await rejection(two.request("worst"));
  expect(warnings).toHaveLength(2);
});

function failing(): Promise<never> {
  return Promise.reject(new Error("bug"));
}

describe("server.accept", () => {
  it("makes a peer of a transport that still connects: its messages wait, and it is closed with the server", async () => {
    const server = await serve({ noServer: true });
    const reported = vi.fn<() => void>();
    server.on("peer", reported);
    const { peer, sent, open } = joinSilent(server, { isConnecting: true });
    expect([peer.state, [...server.peers]]).toEqual(["connecting", [peer]]);
    const topic = server.topic("room").add(peer);
    topic.notify("first", [1], { latest: "a" });
    topic.notify("first", [2], { latest: "a" });
    server.peers.notify("second", [], { whenSlow: "close" });
    peer.notify("third");
    topic.notify("fourth", [], { volatile: true });
    expect(sent).toEqual([]);
    open();
    expect(peer.state).toBe("open");
    expect(sent.map((text) => JSON.parse(text) as object)).toMatchObject([
      { method: "first", params: [2] },
      { method: "second" },
      { method: "third" },
    ]);
    await server.close();
    expect([await peer.closed, reported.mock.calls]).toMatchObject([{ code: 1001 }, []]);
  });

  it("reports a group's message that a transport which connects has no room for", async () => {
    await using server = await serve({ noServer: true, limits: { maxUnsentBytes: 100_000 } });
    const missed: string[] = [];
    server.on("missed", (_peer, method) => missed.push(method));
    const { peer } = joinSilent(server, { isConnecting: true });
    for (const whenSlow of ["drop", "close"] as const)
      for (const method of ["a", "b"]) server.peers.notify(method, ["x".repeat(30_000)], { whenSlow });
    expect([missed, peer.stats().dropped]).toEqual([["b", "a", "b"], 3]);
  });
});
