import { expect, it } from "vitest";
import { connect, serve, RpcError } from "../src/node.js";
it("calls over ws", async () => {
  const server = await serve({ port: 0, authenticate: (r) => (r.headers.cookie ? { user: r.headers.cookie } : null), methods: {
    add: ([x, y]: [number, number]) => x + y,
    async ask(_p: unknown, { peer, server }: any) { for (const p of server.peers) p.notify("hi", [peer.data.user]); return peer.request("confirm", {q: 1}); },
    boom() { throw new RpcError(7, "x", {a: 1}) },
  } });
  server.on("peer", (peer) => { peer.notify("welcome"); server.topic("a").add(peer); });
  await expect(connect(server.url)).rejects.toMatchObject({ status: 401 });
  await expect(connect("ws://127.0.0.1:9")).rejects.toThrow("ECONNREFUSED");
  const c = await connect(server.url, { headers: { cookie: "bob" }, methods: { confirm: () => true, hi: () => {} } });
  const got: string[] = [];
  c.on("notification", (m) => got.push(m));
  expect(await c.request("ask")).toBe(true);
  expect(got).toEqual(["welcome"]);
  expect(server.topic("a").size).toBe(1);
  await expect(c.request("boom")).rejects.toMatchObject({ code: 7, data: { a: 1 } });
  await server.close();
  expect((await c.closed).code).toBe(1001);
  expect(server.peers.size).toBe(0);
});
