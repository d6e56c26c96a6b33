/** Dialects: choosing one, writing one, and what each reads. */
import { describe, expect, it } from "vitest";
import { acp, connect, lsp, mcp, Peer, serve, type Context, type Dialect } from "../../src/node.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { plainPeer, upgrade } from "../support/network.js";
import { testServer } from "../../src/testing/index.js";
import { rejection, turn } from "../support/turns.js";
import { expectNoDeadlines, until } from "./joined.js";
import { untilAborted } from "./waiting.js";

expectNoDeadlines();

/** A custom dialect, in which all params are positional. */
const own: Dialect = {
  name: "own",
  subprotocol: "own.v1",
  timeoutMs: 5,
  cancel: {
    method: "stop",
    params: (id) => [id],
    idOf: (params) => (Array.isArray(params) ? (params[0] as string) : undefined),
    isAnswered: true,
    exempt: ["forever"],
  },
  progress: {
    method: "so far",
    tokenIn: (params) => (params as { tell?: string } | undefined)?.tell,
    withToken: (params, tell) => ({ ...params, tell: `#${tell}` }),
    params: (token, value) => ({ [token]: value }),
    read(params) {
      const [entry] = Object.entries(params ?? {});
      return entry && { token: entry[0], value: entry[1] };
    },
  },
};

function fail(): never {
  throw new Error("not prepared for this");
}

describe("a custom dialect", () => {
  it("defines the messages that are sent", async () => {
    const raw = rawPeer({ dialect: own });
    const controller = new AbortController();
    const call = raw.peer.request("m", { a: 1 }, { signal: controller.signal, onProgress: () => {} });
    controller.abort();
    await rejection(call);
    const exempt = raw.peer.request("forever", undefined, { signal: AbortSignal.any([controller.signal]) });
    await rejection(exempt);
    expect(raw.messages()).toEqual([
      request(1, "m", { a: 1, tell: expect.stringMatching(/^#\d+$/) }),
      notification("stop", [1]),
    ]);
  });

  it("defines the messages that are understood", async () => {
    const raw = rawPeer({
      dialect: own,
      methods: {
        wait: (_params, { signal, progress }: Context) => {
          progress("half");
          return new Promise((resolve) => signal.addEventListener("abort", () => resolve("stopped")));
        },
      },
    });
    raw.feed(request("x", "wait", { tell: "t" }));
    raw.feed(notification("$/cancelRequest", { id: "x" }));
    await turn();
    expect(raw.messages()).toEqual([notification("so far", { t: "half" })]);
    raw.feed(notification("stop", ["x"]));
    await turn();
    expect(raw.messages()[1]).toEqual(result("x", "stopped"));
  });

  it("delivers reports to the call whose token it wrote", async () => {
    const raw = rawPeer({
      dialect: { ...own, progress: { ...own.progress, withToken: (_params, tell) => ({ tell }) } },
    });
    const reports: unknown[] = [];
    const call = raw.peer.request("m", {}, { onProgress: (value) => reports.push(value), timeoutMs: 1000 });
    raw.feed(notification("so far", { 1: "by a string" }));
    const token = raw.peer.request("m", { tell: "t" }, { onProgress: (value) => reports.push(value), timeoutMs: 1000 });
    raw.feed(notification("so far", { t: "by its own" }));
    for (const id of [1, 2]) raw.feed(result(id, null));
    await Promise.all([call, token]);
    // The id 1 was sent as a number, so "1" is another token.
    expect(reports).toEqual(["by its own"]);
  });

  it("sets the timeout of a call, unless the peer or the call sets one", async () => {
    const timeouts = [
      rejection(rawPeer({ dialect: own }).peer.request("m")),
      rejection(rawPeer({ dialect: own, timeoutMs: 7 }).peer.request("m")),
      rejection(rawPeer({ dialect: own }).peer.request("m", [], { timeoutMs: 9 })),
    ];
    expect((await Promise.all(timeouts)).map(({ timeoutMs }) => timeoutMs)).toEqual([5, 7, 9]);
  });

  it("that throws for a received message is reported, and the connection stays open", async () => {
    const dialect = {
      ...own,
      cancel: { ...own.cancel, idOf: fail },
      progress: { ...own.progress, read: fail, tokenIn: fail },
    };
    const raw = rawPeer({ dialect, methods: { m: (_params, { progress }: Context) => progress(1), now: () => 1 } });
    raw.feed([notification("stop", [1]), notification("so far"), request(1, "m"), request(2, "now")]);
    expect(raw.messages()).toEqual([[failure(1, -32603, "Internal error"), result(2, 1)]]);
    expect(raw.errors).toEqual(Array.from({ length: 3 }, () => new Error("not prepared for this")));
    const error = await rejection(raw.peer.request("m", {}, { onProgress: () => {} }));
    expect(error).toEqual(new Error("not prepared for this"));
  });
});

describe("an invalid dialect", () => {
  const without = (part: "cancel" | "progress", name: string): unknown => ({
    ...own,
    [part]: { ...own[part], [name]: undefined },
  });

  it.each<[string, unknown, string]>([
    ["null", null, "`dialect.cancel.method` to be a string"],
    ["a name", "lsp", "`dialect.cancel.method` to be a string"],
    ["an empty object", {}, "`dialect.cancel.method` to be a string"],
    ["one without progress", { ...own, progress: undefined }, "`dialect.progress.method` to be a string"],
    ["one whose part is null", { ...own, cancel: null }, "`dialect.cancel.method` to be a string"],
    ["one without a method", without("progress", "method"), "`dialect.progress.method` to be a string"],
    ["one without cancel.params", without("cancel", "params"), "`dialect.cancel.params` to be a function"],
    ["one without cancel.idOf", without("cancel", "idOf"), "`dialect.cancel.idOf` to be a function"],
    ["one without progress.read", without("progress", "read"), "`dialect.progress.read` to be a function"],
    ["one without progress.tokenIn", without("progress", "tokenIn"), "`dialect.progress.tokenIn` to be a function"],
    ["one with a bad timeout", { ...own, timeoutMs: 0 }, "`timeoutMs` to be a positive number"],
  ])("throws an error that names the invalid member: %s", async (_name, dialect, message) => {
    expect(() => rawPeer({ dialect: dialect as Dialect })).toThrow(TypeError);
    expect(() => rawPeer({ dialect: dialect as Dialect })).toThrow(`Expected ${message}, got `);
    await expect(serve({ port: 0, dialect: dialect as Dialect })).rejects.toThrow(message);
    await expect(serve({ port: 0, dialect: [lsp, dialect as Dialect] })).rejects.toThrow(message);
    await expect(connect("ws://127.0.0.1:1", { dialect: dialect as Dialect })).rejects.toThrow(message);
  });
});

describe("params that are null", () => {
  const methods = { echo: (params: unknown) => ({ params }), emitted: () => {} };
  const invalid = failure(1, -32600, "Invalid Request");

  it.each<[string, Dialect | undefined]>([
    ["no dialect", undefined],
    ["mcp", mcp],
    ["acp", acp],
  ])("are refused if %s was chosen", (_name, dialect) => {
    const raw = rawPeer({ methods, dialect });
    raw.feed(request(1, "echo", null));
    raw.feed([request(1, "echo", null)]);
    expect(raw.messages()).toEqual([invalid, [invalid]]);
  });

  it("are read as absent in requests and notifications, alone and in batches", async () => {
    const seen: unknown[] = [];
    const raw = rawPeer({ methods: { ...methods, emitted: (params) => void seen.push(params) }, dialect: lsp });
    raw.feed(request(1, "echo", null));
    raw.feed(notification("emitted", null));
    raw.feed([request(2, "echo", null), notification("emitted", null), { jsonrpc: "2.0", id: 3, method: "echo" }]);
    expect(raw.messages()).toEqual([result(1, {}), [result(2, {}), result(3, {})]]);
    expect(seen).toEqual([undefined, undefined]);
  });

  it.each([5, "x", false])("but not params that are %j", (params) => {
    const raw = rawPeer({ methods, dialect: lsp });
    raw.feed(request(1, "echo", params));
    expect(raw.messages()).toEqual([invalid]);
  });
});

/** Serves `wait`, which ends when it is aborted, and collects its contexts. */
function waitingMethods(): { contexts: Context[]; methods: { wait: (params: unknown, context: Context) => unknown } } {
  const contexts: Context[] = [];
  const wait = (_params: unknown, context: Context): Promise<never> => (contexts.push(context), untilAborted(context));
  return { contexts, methods: { wait } };
}

describe("a server of several dialects", () => {
  const { contexts, methods } = waitingMethods();
  const cancels = {
    lsp: notification("$/cancelRequest", { id: 1 }),
    mcp: notification("notifications/cancelled", { requestId: 1 }),
    own: notification("stop", [1]),
  };

  it.each<[string, string[], keyof typeof cancels, string]>([
    ["the first, for who offers nothing", [], "lsp", ""],
    ["mcp, for who offers it", ["mcp"], "mcp", "mcp"],
    ["the first that the client offers and the server knows", ["x", "own.v1", "mcp"], "own", "own.v1"],
  ])("speaks %s", async (_name, offer, spoken, agreed) => {
    await using server = await serve({ port: 0, methods, dialect: [lsp, mcp, own] });
    const { webSocket, received } = await plainPeer(server.url, offer);
    expect(webSocket.protocol).toBe(agreed);
    const before = contexts.length;
    webSocket.send(JSON.stringify(request(1, "wait")));
    await until(() => contexts.length > before);
    for (const [name, cancel] of Object.entries(cancels)) if (name !== spoken) webSocket.send(JSON.stringify(cancel));
    webSocket.send(JSON.stringify(request(2, "unknown")));
    await until(() => received.length === 1);
    expect(contexts.at(-1)!.signal.aborted).toBe(false);
    webSocket.send(JSON.stringify(cancels[spoken]));
    await until(() => contexts.at(-1)!.signal.aborted);
    webSocket.send(JSON.stringify(request(3, "unknown")));
    await until(() => received.at(-1)!.includes('"id":3'));
    expect(received).toHaveLength(spoken === "mcp" ? 2 : 3);
    webSocket.terminate();
  });

  it("agrees to no subprotocol of a dialect it was not given", async () => {
    await using server = await serve({ port: 0, methods });
    const { status, headers } = await upgrade(server.url, { "Sec-WebSocket-Protocol": "mcp, unknown" });
    expect([status, headers["sec-websocket-protocol"]]).toEqual([101, undefined]);
  });
});

describe("connecting with a dialect", () => {
  it("offers its subprotocol beside those of reciproc, and uses the agreed one", async () => {
    const offers: unknown[] = [];
    await using kit = testServer({ methods: {}, dialect: mcp });
    const { server } = kit;
    server.on("peer", (_peer, { headers }) => offers.push(headers["sec-websocket-protocol"]));
    const plain = await kit.connect(server.url, { dialect: mcp, link: "plain" });
    const packed = await kit.connect(server.url, { dialect: mcp });
    const without = await kit.connect(server.url, { dialect: acp, link: "plain" });
    for (const peer of [plain, packed, without]) {
      expect(peer).toBeInstanceOf(Peer);
      await rejection(peer.request("unknown"));
      await peer.close();
    }
    expect(offers).toEqual(["mcp", "reciproc.v1,mcp", undefined]);
  });

  it.each(["plain", "packed"] as const)("cancels in that dialect, over a %s link", async (link) => {
    const { contexts, methods } = waitingMethods();
    await using kit = testServer({ methods, dialect: [lsp, mcp] });
    const { server } = kit;
    const peer = await kit.connect(server.url, { dialect: mcp, link });
    const controller = new AbortController();
    const call = peer.request("wait", undefined, { signal: controller.signal });
    await until(() => contexts.length === 1);
    controller.abort("x");
    expect(await rejection(call)).toBe("x");
    await until(() => contexts[0]!.signal.aborted);
    await peer.close();
  });
});
