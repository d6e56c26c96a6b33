import { describe, expect, it } from "vitest";
import { acp, lsp, mcp, serve, type AnyPeer, type Context, type Dialect } from "../../src/node.js";
import { testServer } from "../../src/testing/index.js";
import { failure, notification, rawPeer, request, result } from "../support/raw.js";
import { pass, raising, rejection, turn, untilAborted, useVirtualClock } from "../support/time.js";
import { cancel } from "./kit.js";

useVirtualClock();

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

const fail = raising(new Error("not prepared for this"));

describe("a custom dialect", () => {
  it("defines the messages that are sent", async () => {
    const raw = rawPeer({ dialect: own });
    const { signal } = new AbortController();
    const controller = new AbortController();
    const call = raw.peer.request("m", { a: 1 }, { signal: controller.signal, onProgress: () => {} });
    const exempt = raw.peer.request("forever", undefined, { signal: AbortSignal.any([controller.signal, signal]) });
    controller.abort();
    await Promise.all([rejection(call), rejection(exempt)]);
    const asked = request(1, "m", { a: 1, tell: expect.stringMatching(/^#\d+$/) });
    expect(raw.messages()).toEqual([asked, request(2, "forever"), notification("stop", [1])]);
  });

  it("defines the messages that are understood", async () => {
    const raw = rawPeer({
      dialect: own,
      methods: {
        wait: (_params, { signal, progress }) => {
          progress("half");
          return new Promise((resolve) => signal.addEventListener("abort", () => resolve("stopped")));
        },
      },
    });
    raw.feed(request("x", "wait", { tell: "t" }));
    raw.feed(cancel("x"));
    await turn();
    expect(raw.messages()).toEqual([notification("so far", { t: "half" })]);
    raw.feed(notification("stop", ["x"]));
    await turn();
    expect(raw.messages()[1]).toEqual(result("x", "stopped"));
  });

  it("sets the timeout of a call, unless the peer or the call sets one", async () => {
    const timeouts = Promise.all([
      rejection(rawPeer({ dialect: own }).peer.request("m")),
      rejection(rawPeer({ dialect: own, timeoutMs: 7 }).peer.request("m")),
      rejection(rawPeer({ dialect: own }).peer.request("m", [], { timeoutMs: 9 })),
    ]);
    await pass(10);
    expect((await timeouts).map(({ timeoutMs }) => timeoutMs)).toEqual([5, 7, 9]);
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

const without = (part: "cancel" | "progress", name: string): unknown => ({
  ...own,
  [part]: { ...own[part], [name]: undefined },
});

it.each<[string, unknown, string]>([
  ["a name", "lsp", "`dialect.cancel.method` to be a string"],
  ["one without progress.read", without("progress", "read"), "`dialect.progress.read` to be a function"],
  ["one with a bad timeout", { ...own, timeoutMs: 0 }, "`timeoutMs` to be a positive number"],
])("an invalid dialect throws an error that names the invalid member: %s", async (_name, given, message) => {
  const dialect = given as Dialect;
  expect(() => rawPeer({ dialect })).toThrow(TypeError);
  expect(() => rawPeer({ dialect })).toThrow(`Expected ${message}, got `);
  await expect(serve({ noServer: true, dialect: [lsp, dialect] })).rejects.toThrow(message);
});

it.each<[string, Dialect]>([
  ["the first with a client that offers none", lsp],
  ["the one that the client offers", mcp],
  ["a custom one that the client offers", own],
])("a server of several dialects speaks %s", async (_name, dialect) => {
  const contexts: Context[] = [];
  const wait = (_params: unknown, context: Context): unknown => (contexts.push(context), untilAborted(context));
  const { server, connect, network } = testServer<any>({ dialect: [lsp, mcp, own], methods: { wait } });
  const peer: AnyPeer = await connect(server.url, { dialect, link: "plain" });
  const controller = new AbortController();
  const call = rejection(peer.request("wait", [], { signal: controller.signal }));
  controller.abort("enough");
  expect(await call).toBe("enough");
  await network.settle();
  expect(contexts[0]!.signal.aborted).toBe(true);
  await server.close();
});

it("connecting with a dialect offers its subprotocol beside those of reciproc, and uses the agreed one", async () => {
  const { server, connect } = testServer({ dialect: mcp });
  const offers: unknown[] = [];
  server.on("peer", (_peer, { headers }) => offers.push(headers["sec-websocket-protocol"]));
  await connect(server.url, { dialect: mcp, link: "plain" });
  await connect(server.url, { dialect: mcp });
  await connect(server.url, { dialect: acp, link: "plain" });
  expect(offers).toEqual(["mcp", "reciproc.v1,mcp", undefined]);
  await server.close();
});
