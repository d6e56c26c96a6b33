import { once } from "node:events";
import { connect as connectHttp2, createServer as createHttp2 } from "node:http2";
import { describe, expect, it, vi } from "vitest";
import { RpcError, serve, Subscriptions, type CloseInfo, type ServerContext } from "../../src/node.js";
import { virtualClock } from "../../src/testing/index.js";
import { listening, readAnswer } from "../support/network.js";
import { call, post, postRaw, postText, read, write } from "../support/post.js";
import { failure, notification, request, result } from "../support/raw.js";
import { gate, rejection, turn } from "../support/turns.js";
import { recorded } from "./by-hand.js";

const methods = { add: ([a, b]: [number, number]) => a + b, sum: ({ a, b }: { a: number; b: number }) => a + b };

/** What a call by POST gets if it returns `value`. */
const ok = (value: unknown): unknown => [200, result(1, value)];

describe("a POST", () => {
  it("is answered with 200 and JSON, also if it is malformed, with each type of JSON in UTF-8", async () => {
    await using server = await serve({ port: 0, methods });
    for (const [type, message, reply] of [
      ["application/json", request(1, "add", [1, 2]), result(1, 3)],
      ['Application/JSON ;v=1;charset="UTF-8"', "", failure(null, -32700, "Parse error")],
      ["application/json-rpc", Buffer.of(0x22, 0xff, 0x22), failure(null, -32700, "Parse error")],
      [
        "application/jsonrequest;charset=utf-8",
        request(1, "$/enumerator/next", { token: 1 }),
        failure(1, -32001, "No such stream"),
      ],
    ] as const) {
      const response = await post(server.url, message, { "Content-Type": type, "Content-Encoding": "Identity" });
      expect([type, response.headers.get("content-type")]).toEqual([type, "application/json; charset=utf-8"]);
      expect(await read(response)).toEqual([200, reply]);
    }
  });

  it.each([
    [undefined, 204],
    [{ notificationStatus: 200 }, 200],
  ] as const)("gets no body if it is due no response: with `post` as %j, its status is %i", async (options, status) => {
    await using server = await serve({ port: 0, post: options, methods: { ...methods, later: turn } });
    for (const message of [
      notification("add", [1, 2]),
      notification("unserved"),
      [notification("add", [1, 2]), notification("later")],
      result(1, 3),
      [result(1, 3), failure(null, -32600, "Invalid Request")],
    ]) {
      const { headers, ...answer } = await postRaw(server.url, JSON.stringify(message));
      expect(answer).toEqual({ status, body: "" });
      expect([headers["content-type"], headers["content-length"]]).toEqual([
        undefined,
        status === 200 ? "0" : undefined,
      ]);
    }
    expect(await call(server, "add", [1, 2])).toEqual(ok(3));
  });

  it("is one of at most 100 on its connection that wait for their responses: beyond that, the connection is cut", async () => {
    const open = gate<number>();
    let running = 0;
    const slow = (_params: unknown, { signal }: ServerContext): Promise<number> => {
      running++;
      signal.addEventListener("abort", () => running--);
      return open.promise;
    };
    await using server = await serve({ port: 0, methods: { slow } });
    const one = postText(server.url, JSON.stringify(request(1, "slow")));
    const cut = await write(server.url, one.repeat(100));
    await vi.waitFor(() => expect(running).toBe(100));
    let bytes = 0;
    cut.on("data", (part: Buffer) => (bytes += part.length));
    cut.write(one);
    await new Promise((resolve) => cut.once("close", resolve));
    expect(bytes).toBe(0);
    await vi.waitFor(() => expect(running).toBe(0));
    const socket = await write(server.url, one.repeat(99) + postText(server.url, "", { Connection: "close" }));
    await vi.waitFor(() => expect(running).toBe(99));
    open.resolve(7);
    expect(String(Buffer.concat(await socket.toArray())).match(/"result":7/g)).toHaveLength(99);
  });

  it("can be a slow batch over HTTP/2, passed to handleRequest", async () => {
    using clock = virtualClock();
    await using server = await serve({ noServer: true, methods: { slow: () => (clock.stall(3), 1) } });
    await using http = await listening(
      createHttp2((asked, response) => server.handleRequest(asked as never, response as never)) as never,
    );
    const { host } = new URL(http.url);
    const session = connectHttp2(`http://${host}`);
    const stream = session.request({ ":method": "POST", ":path": "/", "content-type": "application/json", host });
    stream.end(JSON.stringify(Array.from({ length: 10 }, (_, i) => request(i, "slow"))));
    const body = String(Buffer.concat((await stream.toArray()) as Buffer[]));
    expect((JSON.parse(body) as { result: number }[]).map(({ result: one }) => one)).toEqual(Array(10).fill(1));
    session.close();
  });
});

it.each(["GET", "HEAD"])("a %s is answered with 426, at any path", async (method) => {
  await using server = await serve({ port: 0, path: "/rpc", methods });
  const { refusals } = recorded(server);
  for (const url of [server.url, server.url.replace("/rpc", "/other")]) {
    const response = await fetch(url.replace("ws:", "http:"), { method });
    expect([response.status, response.headers.get("upgrade")]).toEqual([426, "websocket"]);
    expect((await response.text()) === "").toBe(method === "HEAD");
  }
  expect(refusals).toEqual([]);
});

describe("a refused request", () => {
  const runIt = JSON.stringify(request(1, "run"));

  it.each<[string, Record<string, string>, number, string]>([
    ["a form's type", { "Content-Type": "text/plain" }, 415, "`Content-Type`"],
    ["no type", { "Content-Type": "" }, 415, "`Content-Type`"],
    ["a type that begins like one", { "Content-Type": "application/json-rpc-2" }, 415, "`Content-Type`"],
    ["another charset of json-rpc", { "Content-Type": "application/json-rpc; charset=latin1" }, 415, "`Content-Type`"],
    ["a list of types", { "Content-Type": "application/json, text/plain" }, 415, "`Content-Type`"],
    ["a compressed body", { "Content-Encoding": "gzip" }, 415, "`Content-Encoding`"],
    ["another Host", { Host: "evil.example" }, 403, "Host"],
    ["another Origin", { Origin: "https://evil.example" }, 403, "Origin"],
    ["an empty credential, which authenticate returns", { Authorization: "" }, 401, "authentication"],
    ["a Content-Length over the limit", { "Content-Length": "1048577" }, 413, "`limits.maxMessageBytes`"],
  ])("is refused for %s: nothing runs, and the connection ends", async (_what, headers, status, reason) => {
    let ran = 0;
    await using server = await serve({
      port: 0,
      authenticate: ({ headers: { authorization = "none" } }) => authorization && authorization !== "unknown",
      methods: { run: () => ++ran },
    });
    const { refusals } = recorded(server);
    const socket = await write(server.url, postText(server.url, runIt, headers));
    if (status === 413) socket.end();
    const answer = await readAnswer(socket);
    expect(answer).toMatchObject({ status, headers: { connection: "close" } });
    if (status !== 413) expect(answer.body).toContain(reason);
    expect(refusals).toEqual([expect.stringMatching(`^${status} .*${reason}`)]);
    expect([server.stats().refused, ran]).toEqual([{ [status]: 1 }, 0]);
  });

  it("lists the allowed methods instead of another one", async () => {
    await using server = await serve({ port: 0, methods });
    const { host } = new URL(server.url);
    const answer = await readAnswer(await write(server.url, `PUT / HTTP/1.1\r\nHost: ${host}\r\n\r\n`));
    expect(answer).toMatchObject({ status: 405, headers: { allow: "GET, POST, OPTIONS" } });
    expect(server.stats().refused).toEqual({ 405: 1 });
  });
});

describe("the body of a POST", () => {
  const tooLarge = failure(null, -32007, "Request is too large", { maxMessageBytes: 50 });
  const limits = { maxMessageBytes: 50 };

  it("is refused with 413 and an error, with and without a Content-Length, over maxMessageBytes, even if the client first sends all of it", async () => {
    await using server = await serve({ port: 0, limits, methods });
    for (const body of ["张".repeat(17), " ".repeat(8 * 2 ** 20)])
      expect(await read(await post(server.url, body))).toEqual([413, tooLarge]);
    const chunk = `33\r\n${" ".repeat(51)}\r\n`;
    const socket = await write(server.url, postText(server.url, chunk, { "Transfer-Encoding": "chunked" }));
    expect(String((await once(socket, "data"))[0])).toContain("HTTP/1.1 413 ");
    socket.destroy();
    expect((await post(server.url, `${"张".repeat(16)}  `)).status).toBe(200);
  });

  it("may come in any number of parts, at any time with `handshakeTimeoutMs` as Infinity", async () => {
    await using server = await serve({ port: 0, limits: { handshakeTimeoutMs: Infinity }, methods });
    const parts = [...JSON.stringify(request(1, "add", [1, 2])).padEnd(3_000)].map((part) => `1\r\n${part}\r\n`);
    const text = postText(server.url, `${parts.join("")}0\r\n\r\n`, { "Transfer-Encoding": "chunked" });
    const concat = vi.spyOn(Buffer, "concat");
    expect((await readAnswer(await write(server.url, text))).body).toBe(JSON.stringify(result(1, 3)));
    // Each part takes 200 bytes of memory, so no more of them are kept.
    expect(Math.max(...concat.mock.calls.map(([list]) => list.length))).toBe(1024);
  });

  it("is cut after a second if it never ends", async () => {
    await using server = await serve({ port: 0, limits, methods });
    using clock = virtualClock();
    const socket = await write(server.url, postText(server.url, "x", { "Content-Length": "1000000" }));
    const ended = once(socket, "close");
    await once(socket, "data");
    await clock.pass(999);
    expect(socket.readableEnded).toBe(false);
    await clock.pass(1);
    socket.resume();
    await ended;
  });
});

const origins = ["https://app.example"];
const Origin = "https://app.example";

it("a page of another origin can send JSON and read the response, also a refusal, without credentials if it is allowed", async () => {
  let asked = 0;
  await using server = await serve({ port: 0, origins, authenticate: () => ++asked === 1, methods });
  const preflight = await fetch(server.url.replace("ws:", "http:"), {
    method: "OPTIONS",
    headers: {
      Origin,
      "Access-Control-Request-Method": "POST",
      "Access-Control-Request-Headers": "authorization,content-type",
    },
  });
  expect(preflight.status).toBe(204);
  expect(Object.fromEntries(preflight.headers)).toMatchObject({
    "access-control-allow-origin": Origin,
    "access-control-allow-methods": "POST",
    "access-control-allow-headers": "authorization,content-type",
    vary: "Origin",
  });
  expect(asked).toBe(0);
  const other = await post(server.url, "{}", { Origin: "https://evil.example" });
  expect([other.status, other.headers.get("access-control-allow-origin")]).toEqual([403, null]);
  const reply = await post(server.url, request(1, "add", [1, 2]), { Origin });
  const refusal = await post(server.url, request(1, "add", [1, 2]), { Origin });
  expect([reply.status, refusal.status]).toEqual([200, 401]);
  for (const { headers } of [preflight, reply, refusal]) {
    expect(headers.get("access-control-allow-origin")).toBe(Origin);
    expect(headers.get("access-control-allow-credentials")).toBeNull();
  }
});

describe("the peer of a POST", () => {
  it("has the `auth` that authenticate returns, is in no group, emits no event, and is closed when it is answered", async () => {
    const closed = gate<CloseInfo>();
    let peers = 0;
    await using server = await serve({
      port: 0,
      authenticate: ({ headers }, auth) => ({ user: headers.cookie, auth: typeof auth }),
      methods: {
        look(_params, { peer, server: its }) {
          void peer.closed.then(closed.resolve);
          expect(() => its.topic("den").add(peer)).toThrow(TypeError);
          return [its === server, its.peers.size, its.peers.has(peer), its.topic("den").size, peer.auth];
        },
      },
    });
    server.on("peer", () => peers++);
    // A POST has no `auth`, whatever it offers.
    const headers = { Cookie: "ada", "Sec-WebSocket-Protocol": "reciproc.v1, reciproc.auth" };
    const seen = [true, 0, false, 0, { user: "ada", auth: "undefined" }];
    expect(await call(server, "look", undefined, headers)).toEqual(ok(seen));
    expect([await closed.promise, peers]).toEqual([{ code: 1000, reason: "" }, 0]);
  });

  it("cannot be called, and the error gives the reason", async () => {
    const lost = gate<unknown[]>();
    await using server = await serve({
      port: 0,
      methods: {
        async ask(_params, { peer }) {
          const batch = peer.batch();
          const batched = rejection(batch.request("confirm"));
          const taken = batch.notify("toast");
          batch.send();
          lost.resolve([await rejection(peer.request("confirm")), await batched]);
          return [peer.state, peer.notify("toast"), taken];
        },
      },
    });
    expect(await call(server, "ask")).toEqual(ok(["open", false, false]));
    const cause = { message: expect.stringContaining("HTTP POST") };
    for (const error of await lost.promise)
      expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "not-sent", cause });
  });

  it("is answered with 500 if its handler or a limit closes it, and not by a silent cut that causes a retry", async () => {
    await using server = await serve({
      port: 0,
      limits: { maxMalformedPerMinute: 2 },
      methods: { leave: (_params, { peer }) => peer.close(4001, "go away").then(() => "late") },
    });
    const response = await post(server.url, request(1, "leave"));
    expect(await read(response)).toEqual([500, expect.stringContaining("may have run")]);
    expect((await post(server.url, [1, 2, 3])).status).toBe(500);
  });
});

describe("a feature that needs more than one message", () => {
  const heads = new Subscriptions({ method: "eth_subscription" });
  const many = {
    async *count([to]: [number]) {
      for (let n = 1; n <= to; n++) {
        // Sometimes slower than it is read.
        if (n % 100 === 0) await turn();
        yield n;
      }
    },
    async *failing() {
      yield "x".repeat(70_000);
      await turn();
      throw new RpcError(7, "no more");
    },
    subscribe: (_params: unknown, context: ServerContext) => heads.open(context).id,
  };

  it.each<[string, string, unknown, object]>([
    ["a long stream", "count", [20_000], result(1, { values: Array.from({ length: 20_000 }, (_, i) => i + 1) })],
    ["the error of a stream that fails", "failing", [], failure(1, 7, "no more")],
    ["an error for a subscription", "subscribe", [], failure(1, -32601, "Notifications not supported")],
  ])("sends as the response %s, alone and in a batch", async (_what, method, params, reply) => {
    await using server = await serve({ port: 0, methods: many });
    server.on("error", () => {});
    expect(await call(server, method, params)).toEqual([200, reply]);
    expect(await read(await post(server.url, [request(1, method, params)]))).toEqual([200, [reply]]);
    expect(heads.size).toBe(0);
  });

  it("refuses an endless stream as too large and stops its source", async () => {
    const stopped = gate<boolean>();
    await using server = await serve({
      port: 0,
      limits: { maxReplyBytes: 100_000 },
      methods: {
        async *endless(_params: unknown, { signal }: { signal: AbortSignal }) {
          try {
            for (;;) yield "x".repeat(1000);
          } finally {
            stopped.resolve(signal.aborted);
          }
        },
      },
    });
    const reply = failure(1, -32008, "Response is too large", { maxReplyBytes: 100_000 });
    expect(await call(server, "endless")).toEqual([200, reply]);
    expect(await stopped.promise).toBe(true);
  });
});

it("aborts the signals of its handlers when its client disconnects, pipelined ones too, and no longer counts", async () => {
  const started: { signal: AbortSignal; closed: Promise<CloseInfo> }[] = [];
  await using server = await serve({
    port: 0,
    limits: { maxConnections: 2 },
    methods: {
      ...methods,
      // Never ends by itself, only when the client disconnects.
      stuck: (_params, { signal, peer }) => new Promise(() => started.push({ signal, closed: peer.closed })),
    },
  });
  const one = postText(server.url, JSON.stringify(request(1, "stuck")));
  const socket = await write(server.url, one + one);
  await vi.waitFor(() => expect(started).toHaveLength(2));
  expect((await post(server.url, request(1, "add", [1, 2]))).status).toBe(503);
  socket.destroy();
  for (const { signal, closed } of started) {
    expect(await closed).toEqual({ code: 1006, reason: "the client is gone" });
    expect(signal.aborted).toBe(true);
  }
  await vi.waitFor(async () => expect((await post(server.url, request(1, "add", [1, 2]))).status).toBe(200));
});

describe("server.close()", () => {
  it("aborts running handlers, also of an answered notification, and the client gets the error that the call may have run", async () => {
    const [called, notified] = [gate<AbortSignal>(), gate<AbortSignal>()];
    const server = await serve({
      port: 0,
      methods: {
        stuck: (_params, { signal }) => new Promise(() => called.resolve(signal)),
        work: (_params, { signal }) => new Promise(() => notified.resolve(signal)),
      },
    });
    expect((await post(server.url, notification("work"))).status).toBe(204);
    const answer = post(server.url, request(1, "stuck"));
    const signal = await called.promise;
    await server.close();
    expect(signal.reason).toMatchObject({ message: expect.stringContaining("1001") });
    expect((await notified.promise).aborted).toBe(true);
    expect(await read(await answer)).toEqual([500, expect.stringContaining("may have run")]);
  });

  it.each(["whose authenticate runs", "whose body is in flight"])("refuses with 503 a request %s", async (what) => {
    const open = gate<object>();
    const asked = gate();
    let ran = 0;
    const server = await serve({
      port: 0,
      authenticate: () => (asked.resolve(), what === "whose authenticate runs" ? open.promise : {}),
      methods: { run: () => ++ran },
    });
    const { refusals } = recorded(server);
    const text = postText(server.url, JSON.stringify(request(1, "run")));
    const socket = await write(server.url, what === "whose authenticate runs" ? text : text.slice(0, -1));
    const answer = readAnswer(socket);
    await asked.promise;
    await turn();
    const closing = server.close();
    if (what !== "whose authenticate runs") socket.write("}");
    open.resolve({});
    await closing;
    expect((await answer).status).toBe(503);
    expect(refusals).toHaveLength(1);
    expect(ran).toBe(0);
  });

  it("cuts a client that does not read its response after 5 s", async () => {
    const long = "x".repeat(32 * 2 ** 20);
    const server = await serve({ port: 0, limits: { maxReplyBytes: 64 * 2 ** 20 }, methods: { long: () => long } });
    const socket = await write(server.url, postText(server.url, JSON.stringify(request(1, "long"))));
    await once(socket, "readable");
    using clock = virtualClock();
    let closed = false;
    const closing = server.close().then(() => (closed = true));
    await clock.pass(4_900);
    expect(closed).toBe(false);
    await clock.pass(100);
    await closing;
    socket.destroy();
  });
});
