/** Imports `core/deadlines`: timeouts that are left by the real clock are counted there alone. */
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { bytes, bytesOf, ConnectError, contract, RpcError, type AnyPeer, type Bytes } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { testServer, type TestServerOptions } from "../../src/testing/index.js";
import { gate, Outcomes, rejection } from "../support/turns.js";

/** Resolves with the error of a client that must be refused. */
async function refusal(connecting: Promise<unknown>): Promise<ConnectError> {
  const error = await rejection(connecting);
  expect(error).toBeInstanceOf(ConnectError);
  return error;
}

describe("a test server", () => {
  it("serves its clients, and calls them back", async () => {
    await using kit = testServer({
      methods: { greet: async ([name], { peer }) => `Hello, ${await peer.request("title")} ${name}` },
    });
    const { server, connect } = kit;
    const ada = await connect(server.url, { methods: { title: () => "Countess" } });
    const bob = await connect(server.url, { methods: { title: () => "Mr" } });
    expect(await Promise.all([ada.request("greet", ["Ada"]), bob.request("greet", ["Bob"])])).toEqual([
      "Hello, Countess Ada",
      "Hello, Mr Bob",
    ]);
    expect(server.peers.size).toBe(2);
    await bob.close(4000, "bye");
    await kit.network.settle();
    expect(server.peers.size).toBe(1);
    expect(server.stats()).toMatchObject({ opened: 2, closed: { 4000: 1 }, requestsReceived: 2 });
  });

  it("speaks `reciproc.v1` with sessions, or plain JSON-RPC as each side chooses", async () => {
    await using kit = testServer({ methods: { ping: () => "pong" } });
    for (const link of ["packed", "plain"] as const) {
      const client = await kit.connect(kit.server.url, { link });
      expect(await client.request("ping")).toBe("pong");
      kit.network.of(client).cut();
      expect(client.state).toBe(link === "packed" ? "suspended" : "closed");
      await client.close();
    }
    await using plain = testServer({ link: "plain", methods: { ping: () => "pong" } });
    const client = await plain.connect(plain.server.url);
    expect(await client.request("ping")).toBe("pong");
    plain.network.cut();
    expect(client.state).toBe("closed");
  });

  it("has topics, broadcasts and streams", async () => {
    await using kit = testServer({
      methods: {
        join: (_params, { peer, server }) => void server.topic("den").add(peer),
        async *count() {
          yield* [1, 2, 3];
        },
      },
    });
    const heard: unknown[] = [];
    const client = await kit.connect(kit.server.url, {
      methods: { said: (params: unknown) => void heard.push(params) },
    });
    await client.request("join");
    kit.server.topic("den").notify("said", ["to the den"]);
    kit.server.peers.notify("said", ["to all"]);
    const values: unknown[] = [];
    for await (const value of client.stream("count")) values.push(value);
    expect(heard).toEqual([["to the den"], ["to all"]]);
    expect(values).toEqual([1, 2, 3]);
  });

  it("emits `peer` with the request before the first message, and reports handler errors", async () => {
    const log: unknown[] = [];
    await using kit = testServer({
      methods: {
        hello: () => {
          log.push("hello");
          throw new Error("secret");
        },
      },
    });
    kit.server.on("peer", (peer, request) => log.push([peer.state, request.method, request.url]));
    kit.server.on("error", (error) => log.push((error as Error).message));
    const client = await kit.connect(`${kit.server.url}rooms?id=1`, {});
    expect(await rejection(client.request("hello"))).toMatchObject({ code: -32603, message: "Internal error" });
    expect(log).toEqual([["open", "GET", "/rooms?id=1"], "hello", "secret"]);
  });

  it("applies the limits of peers", async () => {
    await using kit = testServer({ limits: { maxInFlight: 1 }, methods: { wait: () => new Promise(() => {}) } });
    const client = await kit.connect(kit.server.url);
    const first = rejection(client.request("wait"));
    expect(await rejection(client.request("wait"))).toMatchObject({ code: -32009 });
    const second = await kit.connect(kit.server.url, { link: "plain", limits: { maxMessageBytes: 100 } });
    kit.server.peers.notify("long", ["x".repeat(200)]);
    expect((await second.closed).code).toBe(1009);
    await client.close();
    expect(await first).toMatchObject({ name: "ConnectionLostError" });
  });

  it("answers -32601 for methods that are not mocked, on both sides", async () => {
    interface Api {
      add(params: [a: number, b: number]): number;
      drop(params: { id: string }): void;
    }
    interface ClientApi {
      confirm(params: [text: string]): boolean;
      moved(params: { x: number }): void;
    }
    await using kit = testServer<Api, ClientApi>({ methods: { add: ([a, b]) => a + b } });
    const client = await kit.connect(kit.server.url, { methods: { confirm: ([text]) => text === "sure?" } });
    expect(await client.request("add", [1, 2])).toBe(3);
    expect(await rejection(client.request("drop", { id: "1" }))).toMatchObject({ code: -32601 });
    const [peer] = kit.server.peers;
    expect(await peer!.request("confirm", ["sure?"])).toBe(true);
    expect(await rejection(peer!.request("moved", { x: 1 }))).toMatchObject({ code: -32601 });
  });

  it("may lack methods of its contracts and schemas, and checks those that are there", async () => {
    const api = contract({
      add: { params: z.tuple([z.number(), z.number()]), result: z.number() },
      drop: { params: z.object({ id: z.string() }) },
    });
    const theirs = contract({ confirm: { result: z.boolean() }, moved: { params: z.object({ x: z.number() }) } });
    await using kit = testServer({ contract: api, remote: theirs, methods: { add: ([a, b]) => a + b } });
    const client = await kit.connect(kit.server.url, { contract: theirs, methods: { confirm: () => true } });
    const moved: unknown[] = [];
    client.on("notification", (method, params) => moved.push([method, params]));
    expect(await client.request("add", [1, 2])).toBe(3);
    expect(await rejection(client.request("add", [1, "2"] as never))).toMatchObject({ code: -32602 });
    expect(await rejection(client.request("drop", { id: "1" }))).toMatchObject({ code: -32601 });
    const [peer] = kit.server.peers;
    expect(await peer!.request("confirm")).toBe(true);
    peer!.notify("moved", { x: 1 });
    await kit.network.settle();
    expect(moved).toEqual([["moved", { x: 1 }]]);
    const schemas = { add: z.tuple([z.number(), z.number()]), drop: z.object({}) };
    await using withSchemas = testServer({ schemas, methods: { add: ([a, b]) => a + b } });
    const other = await withSchemas.connect(withSchemas.server.url);
    expect(await rejection(other.request("add", [1]))).toMatchObject({ code: -32602 });
    expect(await rejection(other.request("drop", { id: "1" }))).toMatchObject({ code: -32601 });
    expect(() => testServer({ contract: api, methods: { adds: () => 1 } as object })).toThrow("`adds`");
  });

  it("carries bytes as binary frames, and as base64 on a plain link", async () => {
    interface Api {
      twice(params: { data: Bytes }): { data: Bytes; kind: string };
    }
    await using kit = testServer<Api, { pushed(params: { data: Bytes }): void }>({
      methods: {
        twice: ({ data }) => {
          const view = bytesOf(data);
          return { data: bytes(Uint8Array.of(...view, ...view)), kind: typeof data };
        },
      },
    });
    for (const [link, kind] of [
      ["packed", "object"],
      ["plain", "string"],
    ] as const) {
      const pushed = gate<unknown>();
      const client = await kit.connect(kit.server.url, {
        link,
        methods: { pushed: ({ data }) => pushed.resolve(data) },
      });
      const view = Uint8Array.of(0, 1, 255);
      const result = await client.request("twice", { data: bytes(view) });
      expect(result.kind).toBe(kind);
      expect(typeof result.data).toBe(kind);
      expect(bytesOf(result.data)).toEqual(Uint8Array.of(0, 1, 255, 0, 1, 255));
      kit.server.peers.notify("pushed", { data: bytes(view) });
      // The sender may change its bytes afterwards: the network has copied them.
      await kit.network.settle();
      view.fill(9);
      expect(bytesOf((await pushed.promise) as Bytes)).toEqual(Uint8Array.of(0, 1, 255));
      await client.close();
    }
  });

  it.each<[option: string, value: unknown]>([
    ["port", 0],
    ["host", "127.0.0.1"],
    ["server", {}],
    ["noServer", true],
  ])("throws a TypeError for an address: %s", (name, value) => {
    expect(() => testServer({ [name]: value })).toThrow(
      new TypeError(`A test server needs no address, got \`${name}\``),
    );
  });

  it("throws a TypeError for a bad option, and so does its `connect`", async () => {
    expect(() => testServer({ heartbeats: false } as object)).toThrow("Unknown name `heartbeats`");
    await using kit = testServer({});
    const bad = [{ remoteAddress: 1 }, { headerss: {} }];
    for (const options of bad)
      expect(await rejection(kit.connect(kit.server.url, options as object))).toBeInstanceOf(TypeError);
    expect(await rejection(kit.connect("ftp://localhost"))).toBeInstanceOf(TypeError);
  });

  it("throws for HTTP, which it does not have", async () => {
    await using kit = testServer({});
    expect(() => kit.server.handleRequest(undefined!, undefined!)).toThrow("a test server takes no HTTP");
    expect(() => kit.server.handleUpgrade(undefined!, undefined!, undefined!)).toThrow("a test server takes no HTTP");
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

  it.each<[why: string, status: number, options: object, url: string, headers: Record<string, string>]>([
    ["`authenticate` returns null", 401, { authenticate: () => null }, "ws://localhost/", {}],
    ["`authenticate` rejects", 401, { authenticate: () => Promise.reject(new Error("no")) }, "ws://localhost/", {}],
    ["the origin is foreign", 403, {}, "ws://localhost/", { origin: "https://evil.test" }],
    ["the page was loaded without TLS", 403, {}, "wss://board.test/", { origin: "http://board.test" }],
    ["the host is not listed", 403, { hosts: ["board.test"] }, "ws://other.test/", {}],
    ["the path is not served", 404, { path: "/rpc" }, "ws://localhost/other", {}],
  ])("refuses a client if %s: %i", async (_why, status, options, url, headers) => {
    for (const link of ["packed", "plain"] as const) {
      await using kit = testServer(options);
      const refused: unknown[] = [];
      kit.server.on("refuse", (reason, request) => refused.push([reason.status, request.headers.host]));
      kit.server.on("error", () => {});
      const error = await refusal(kit.connect(url, { headers, link }));
      expect(error.status).toBe(status);
      expect(refused).toEqual([[status, new URL(url).host]]);
      expect(kit.server.stats()).toMatchObject({ opened: 0, refused: { [status]: 1 } });
    }
  });

  it("accepts the origins and hosts that its options list", async () => {
    await using kit = testServer({ hosts: ["board.test"], origins: ["https://page.test"], path: "/rpc" });
    expect(kit.server.url).toBe("ws://localhost/rpc");
    const client = await kit.connect("wss://board.test/rpc", { headers: { origin: "https://page.test" } });
    expect(client.state).toBe("open");
  });

  it("refuses a client with 503 while every slot is taken, and accepts one when a slot is free", async () => {
    await using kit = testServer({ limits: { maxConnections: 1 } });
    const first = await kit.connect(kit.server.url);
    expect((await refusal(kit.connect(kit.server.url))).status).toBe(503);
    await first.close();
    await kit.network.settle();
    expect((await kit.connect(kit.server.url)).state).toBe("open");
  });

  it("resumes a session only for the same principal", async () => {
    let user = "ada";
    await using kit = testServer<any, any, string>({ authenticate: () => user, principal: (name) => name });
    const client = await kit.connect(kit.server.url);
    await rejection(client.request("none"));
    await rejection(client.request("none"));
    const events: string[] = [];
    for (const name of ["lost", "resume"] as const) client.on(name, () => events.push(name));
    const resumed = new Promise((resolve) => client.once("resume", () => resolve(undefined)));
    user = "bob";
    kit.network.cut();
    await resumed;
    expect(events).toEqual(["lost", "resume"]);
    expect(kit.server.stats().resumed).toBe(0);
  });

  it("can take as long as `authenticate` does, and a client that gives up is forgotten", async () => {
    const asked = gate();
    const answer = gate<string>();
    await using kit = testServer({ authenticate: () => (asked.resolve(), answer.promise) });
    const controller = new AbortController();
    const connecting = rejection(kit.connect(kit.server.url, { signal: controller.signal }));
    await asked.promise;
    controller.abort(new Error("changed my mind"));
    expect((await connecting).message).toBe("changed my mind");
    answer.resolve("late");
    await kit.network.settle();
    expect(kit.server.stats().opened).toBe(0);
    expect((await kit.connect(kit.server.url)).state).toBe("open");
  });
});

describe("`open` of a test server", () => {
  it("returns a peer at once, whose calls are queued until it is open", async () => {
    await using kit = testServer({ methods: { add: ([a, b]) => a + b } });
    const peer = kit.open(kit.server.url, { methods: { title: () => "Countess" } });
    expect(peer.state).toBe("connecting");
    const sum = peer.request("add", [1, 2]);
    await peer.opened;
    expect([peer.state, await sum]).toEqual(["open", 3]);
    const [serverPeer] = kit.server.peers;
    expect(await serverPeer!.request("title")).toBe("Countess");
    expect(kit.network.of(peer)).toBe(kit.network.of(serverPeer!));
  });

  it("rejects `opened` for a client that is refused, whose calls were not sent", async () => {
    await using kit = testServer({ authenticate: () => null });
    const peer = kit.open(kit.server.url);
    const call = rejection(peer.request("add"));
    expect(await rejection(peer.opened)).toMatchObject({ name: "ConnectError", status: 401 });
    expect(await call).toMatchObject({ outcome: "not-sent" });
    expect(peer.state).toBe("closed");
  });

  it("ends by its signal, and with the server", async () => {
    const kit = testServer({});
    kit.network.stop();
    const controller = new AbortController();
    const peer = kit.open(kit.server.url, { signal: controller.signal });
    const waiting = kit.open(kit.server.url);
    controller.abort(new Error("changed my mind"));
    expect((await rejection(peer.opened)).message).toBe("changed my mind");
    const ended = refusal(waiting.opened);
    await kit.server.close();
    expect((await ended).message).toMatch(/server is clos(ed|ing)$/);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });

  it("throws a TypeError for a bad option at once", async () => {
    await using kit = testServer({});
    expect(() => kit.open(kit.server.url, { remoteAddress: 1 } as object)).toThrow(TypeError);
  });
});

/** Takes `{ user }` as `auth`, and refuses the user "eve". */
function users(): ReturnType<typeof testServer<any, any, { user: string; n?: number }>> {
  return testServer<any, any, { user: string; n?: number }>({
    authenticate: (_request, auth) => ((auth as { user: string }).user === "eve" ? null : (auth as { user: string })),
    principal: ({ user }) => user,
    methods: { who: (_params, { peer }) => peer.auth },
  });
}

describe("credentials", () => {
  it("reach `authenticate` as `auth`, and again by `reauthenticate`, which emits `refresh`", async () => {
    await using kit = users();
    const refreshed: unknown[] = [];
    kit.server.on("refresh", (peer, old) => refreshed.push([peer.auth, old]));
    let n = 0;
    const client = await kit.connect(kit.server.url, { auth: () => ({ user: "ada", n: ++n }) });
    expect(await client.request("who")).toEqual({ user: "ada", n: 1 });
    await client.reauthenticate();
    expect(await client.request("who")).toEqual({ user: "ada", n: 2 });
    expect(refreshed).toEqual([
      [
        { user: "ada", n: 2 },
        { user: "ada", n: 1 },
      ],
    ]);
  });

  it("that are refused close the client with 4401, at first and later", async () => {
    await using kit = users();
    expect((await refusal(kit.connect(kit.server.url, { auth: { user: "eve" } }))).status).toBe(401);
    let user = "ada";
    const client = await kit.connect(kit.server.url, { auth: () => ({ user }) });
    user = "bob";
    expect(await rejection(client.reauthenticate())).toBeInstanceOf(Error);
    expect((await client.closed).code).toBe(4401);
    await kit.network.settle();
    expect(kit.server.stats().closed).toEqual({ 4401: 1 });
  });

  it("come from functions of the URL and of the headers, once for each attempt", async () => {
    let calls = 0;
    const seen: unknown[] = [];
    await using kit = testServer<any, any, object>({
      authenticate: ({ url, headers }) => (seen.push([url, headers.authorization]), {}),
    });
    const client = await kit.connect(() => `ws://board.test/rpc?try=${++calls}`, {
      headers: async ({ reason }) => ({ Authorization: reason === undefined ? "Bearer 1" : "Bearer again" }),
    });
    await kit.network.settle();
    const resumed = new Promise<void>((resolve) => client.once("resume", resolve));
    kit.network.cut();
    await resumed;
    expect(seen).toEqual([
      ["/rpc?try=1", "Bearer 1"],
      ["/rpc?try=2", "Bearer again"],
    ]);
  });
});

describe("closing a test server", () => {
  it("closes the peers of both sides with 1001, rejects their calls, and leaves no deadline", async () => {
    const { server, connect } = testServer({ methods: { wait: () => new Promise(() => {}) } });
    const clients: AnyPeer[] = [
      await connect(server.url),
      await connect(server.url, { link: "plain" }),
      await connect(server.url, { reconnect: true, onOpen: (caller) => caller.notify("hello") }),
    ];
    const outcomes = new Outcomes();
    for (const client of clients) outcomes.watch("call", client.request("wait"));
    await server.close();
    expect(clients.map(({ state }) => state)).toEqual(["closed", "closed", "closed"]);
    const ends = await Promise.all(clients.map(({ closed }) => closed));
    expect(ends.map(({ code }) => code)).toEqual([1001, 1001, 1001]);
    expect(outcomes.list).toHaveLength(3);
    expect(outcomes.list.every((one) => "reason" in one)).toBe(true);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
    expect((await refusal(connect(server.url))).message).toContain("the test server is closed");
  });

  it("ends suspended sessions, and clients that cannot reach it", async () => {
    const { server, connect, network } = testServer({});
    const client = await connect(server.url);
    network.cut();
    network.stop();
    const pending = rejection(connect(server.url, { reconnect: { initial: true } }));
    await network.settle();
    await server.close();
    expect((await client.closed).code).toBe(1001);
    expect(await pending).toBeInstanceOf(Error);
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });

  it("happens at the end of a drain, which lets handlers finish and asks clients to come back later", async () => {
    const open = gate<string>();
    const started = gate();
    const { server, connect } = testServer({ methods: { slow: () => (started.resolve(), open.promise) } });
    const client = await connect(server.url);
    const outcomes = new Outcomes().watch("slow", client.request("slow"));
    await started.promise;
    client.once("suspend", () => outcomes.watch("suspended", Promise.resolve()));
    const drained = server.drain();
    expect((await refusal(connect(server.url))).status).toBe(503);
    open.resolve("done");
    await drained;
    expect(outcomes.names).toEqual(["slow", "suspended"]);
    expect(outcomes.list[0]).toMatchObject({ value: "done" });
    expect(client.state).toBe("closed");
    expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
  });

  it.each(["packed", "plain"] as const)("delivers what the server sent before its close (%s)", async (link) => {
    const answered = gate();
    const heard: string[] = [];
    const { server, connect } = testServer({ methods: { soon: () => (answered.resolve(), "done") } });
    const client = await connect(server.url, { link, methods: { said: ([text]: [string]) => void heard.push(text) } });
    const call = client.request("soon");
    await answered.promise;
    server.peers.notify("said", ["last words"]);
    await server.drain();
    expect(await call).toBe("done");
    expect(heard).toEqual(["last words"]);
  });

  it("happens once, however often it is called, and `await using` calls it too", async () => {
    const close = vi.fn<() => void>();
    {
      await using kit = testServer({});
      (await kit.connect(kit.server.url)).on("close", close);
      const closing = kit.server.close();
      expect(kit.server.close()).toBe(closing);
      await closing;
    }
    expect(close).toHaveBeenCalledOnce();
  });
});

describe("the options of a test server", () => {
  it("are those of `serve`: a dialect, schemas, `fallback` and `around`", async () => {
    const calls: string[] = [];
    const options: TestServerOptions<any, any, unknown> = {
      fallback: (_params, { method }) => `no ${method}`,
      around: ({ method, direction }, next) => {
        calls.push(`${direction} ${method}`);
        return next();
      },
      methods: {
        fail: () => {
          throw new RpcError(7, "seven", { why: "test" });
        },
      },
    };
    await using kit = testServer(options);
    const client = await kit.connect(kit.server.url);
    expect(await client.request("other")).toBe("no other");
    expect(await rejection(client.request("fail"))).toMatchObject({ code: 7, message: "seven", data: { why: "test" } });
    expect(calls).toEqual(["incoming other", "incoming fail"]);
  });
});
