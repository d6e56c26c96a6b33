/** Imports `base/deadlines`: timeouts that are left by the real clock are counted there alone. */
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { bytes, ConnectError, contract, type AnyPeer } from "../../src/index.js";
import { countDeadlines } from "../../src/base/deadlines.js";
import { testServer } from "../../src/testing/index.js";
import { gate, Outcomes, rejection } from "../support/turns.js";

async function refusal(connecting: Promise<unknown>): Promise<ConnectError> {
  const error = await rejection(connecting);
  expect(error).toBeInstanceOf(ConnectError);
  return error;
}

describe("a test server", () => {
  it("may lack methods of its contracts and schemas, which get -32601, and checks those that are there", async () => {
    const api = contract({
      add: { params: z.tuple([z.number(), z.number()]), result: z.number() },
      drop: { params: z.object({ id: z.string() }) },
    });
    const theirs = contract({ confirm: { result: z.boolean() }, moved: { params: z.object({ x: z.number() }) } });
    const schemas = { add: z.tuple([z.number(), z.number()]), drop: z.object({}) };
    await using kit = testServer({ contract: api, remote: theirs, methods: { add: ([a, b]) => a + b } });
    await using withSchemas = testServer({ schemas, methods: { add: ([a, b]) => a + b } });
    for (const { connect, server } of [kit, withSchemas]) {
      const client = (await connect(server.url, { contract: theirs, methods: { confirm: () => true } })) as AnyPeer;
      const moved: unknown[] = [];
      client.on("notification", (method, params) => moved.push([method, params]));
      expect(await client.request("add", [1, 2])).toBe(3);
      expect(await rejection(client.request("add", [1, "2"]))).toMatchObject({ code: -32602 });
      expect(await rejection(client.request("drop", { id: "1" }))).toMatchObject({ code: -32601 });
      const [peer] = server.peers as Iterable<AnyPeer>;
      peer!.notify("moved", { x: 1 });
      expect(await peer!.request("confirm")).toBe(true);
      expect(moved).toEqual([["moved", { x: 1 }]]);
    }
    expect(() => testServer({ contract: api, methods: { adds: () => 1 } as object })).toThrow("`adds`");
  });

  it("copies bytes, which a receiver may change", async () => {
    await using kit = testServer({});
    const got: unknown[] = [];
    for (let i = 0; i < 2; i++) {
      const pushed = ([data]: [Uint8Array]): void => void (got.push([...data]), data.fill(9));
      const client = await kit.connect(kit.server.url, { methods: { pushed } });
      await rejection(client.request("none"));
    }
    kit.server.peers.notify("pushed", [bytes(Uint8Array.from({ length: 5_000 }, (_, i) => i))]);
    await kit.network.settle();
    expect(got[1]).toEqual(got[0]);
  });

  it("throws a TypeError for an address, for a bad option or URL of either side, and for HTTP", async () => {
    for (const address of [{ port: 0 }, { host: "127.0.0.1" }, { server: {} }, { noServer: true }])
      expect(() => testServer(address as object)).toThrow(TypeError);
    expect(() => testServer({ heartbeats: false } as object)).toThrow("`heartbeats`");
    await using kit = testServer({});
    const { server, connect, open } = kit;
    for (const options of [{ remoteAddress: 1 }, { headerss: {} }] as object[]) {
      expect(await rejection(connect(server.url, options))).toBeInstanceOf(TypeError);
      expect(() => open(server.url, options)).toThrow(TypeError);
    }
    expect(await rejection(connect("ftp://localhost"))).toBeInstanceOf(TypeError);
    expect(() => server.handleRequest(undefined!, undefined!)).toThrow(TypeError);
    expect(() => server.handleUpgrade(undefined!, undefined!, undefined!)).toThrow(TypeError);
  });
});

describe("the handshake of a test server", () => {
  it("gives `authenticate` the path, the headers and the address of the client, and `peer.auth` is its result", async () => {
    const requests: unknown[] = [];
    await using kit = testServer({
      authenticate: ({ url, headers, rawHeaders, headersDistinct, socket, httpVersion }) => {
        requests.push({ url, cookie: headers.cookie, two: headers["x-two"], distinct: headersDistinct["x-two"] });
        requests.push(rawHeaders.filter((_, i, all) => /x-two/i.test(all[i - (i % 2)]!)));
        requests.push([socket.remoteAddress, httpVersion, headers.host]);
        return { user: "ada" };
      },
      methods: { who: (_params, { peer }) => peer.auth },
    });
    const client = await kit.connect("ws://board.test/rpc?room=1", {
      headers: { Cookie: "session=1", "X-Two": ["a", "b"] },
      remoteAddress: "203.0.113.7",
    });
    expect(await client.request("who")).toEqual({ user: "ada" });
    expect(requests).toEqual([
      { url: "/rpc?room=1", cookie: "session=1", two: "a, b", distinct: ["a", "b"] },
      ["X-Two", "a", "X-Two", "b"],
      ["203.0.113.7", "1.1", "board.test"],
    ]);
  });

  const LISTED = { hosts: ["board.test"], origins: ["https://page.test"], path: "/rpc" };
  it.each<[why: string, status: number | undefined, options: object, url: string, headers: Record<string, string>]>([
    ["`authenticate` returns null", 401, { authenticate: () => null }, "ws://localhost/", {}],
    ["the page was loaded without TLS", 403, {}, "wss://board.test/", { origin: "http://board.test" }],
    ["the host is not listed", 403, { hosts: ["board.test"] }, "ws://other.test/", {}],
    ["the path is not served", 404, { path: "/rpc" }, "ws://localhost/other", {}],
    ["nothing is wrong", undefined, LISTED, "wss://board.test/rpc", { origin: "https://page.test" }],
  ])("refuses a client if %s, with %s", async (_why, status, options, url, headers) => {
    for (const link of ["packed", "plain"] as const) {
      await using kit = testServer(options);
      const refused: unknown[] = [];
      kit.server.on("refuse", (reason, request) => refused.push([reason.status, request.headers.host]));
      const connecting = kit.connect(url, { headers, link });
      if (status === undefined) {
        expect((await connecting).state).toBe("open");
        continue;
      }
      expect((await refusal(connecting)).status).toBe(status);
      expect(refused).toEqual([[status, new URL(url).host]]);
      expect(kit.server.stats()).toMatchObject({ opened: 0, refused: { [status]: 1 } });
    }
  });
});

describe("closing a test server", () => {
  it("closes the peers of both sides with 1001, once, rejects their calls, and leaves no deadline", async () => {
    const { server, connect } = testServer({ methods: { wait: () => new Promise(() => {}) } });
    const closes: string[] = [];
    const outcomes = new Outcomes();
    for (const options of [{}, { link: "plain" as const }, { reconnect: true, onOpen: () => {} }]) {
      const client = await connect(server.url, options);
      client.on("close", ({ code }) => closes.push(`${client.state} ${code}`));
      outcomes.watch("call", client.request("wait"));
    }
    const closing = server.close();
    expect(server.close()).toBe(closing);
    await closing;
    expect(closes).toEqual(Array(3).fill("closed 1001"));
    expect(outcomes.list.filter((one) => "reason" in one)).toHaveLength(3);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
    expect((await refusal(connect(server.url))).message).toContain("the test server is closed");
  });

  it("ends suspended sessions, and clients that cannot reach it", async () => {
    const { server, connect, open, network } = testServer({});
    const client = await connect(server.url);
    network.cut();
    network.stop();
    const pending = refusal(connect(server.url, { reconnect: { initial: true } }));
    const opening = refusal(open(server.url).opened);
    await network.settle();
    await server.close();
    expect((await client.closed).code).toBe(1001);
    await Promise.all([pending, opening]);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });

  it.each(["packed", "plain"] as const)("delivers what was sent before it, also by a drain (%s)", async (link) => {
    const answered = gate();
    const heard: unknown[] = [];
    const { server, connect } = testServer({ methods: { soon: () => (answered.resolve(), "done") } });
    const client = await connect(server.url, { link, methods: { said: (params: unknown) => void heard.push(params) } });
    const call = client.request("soon");
    await answered.promise;
    server.peers.notify("said", ["last words"]);
    await server.drain();
    expect([await call, heard]).toEqual(["done", [["last words"]]]);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });
});
