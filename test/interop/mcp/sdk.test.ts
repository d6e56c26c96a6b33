/** Proves that the unmodified client and server of the MCP SDK can call and cancel, report progress, and be called by a reciproc peer. */
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Protocol, RequestHandlerExtra } from "@modelcontextprotocol/sdk/shared/protocol.js";
import {
  CreateMessageRequestSchema,
  ListRootsRequestSchema,
  McpError,
  type CallToolResult,
} from "@modelcontextprotocol/sdk/types.js";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import type { AnyPeer } from "../../../src/node.js";
import { gate, rejection } from "../../support/turns.js";
import { aborted, behavesWithSdk, type Handlers, type Joined, type Methods, type Sdk } from "../support/sdk.js";
import { initialize, sdkClient, sdkServer } from "./sdk.js";

type AnyProtocol = Protocol<any, any, any>;
type Extra = RequestHandlerExtra<any, any>;

const ANY_RESULT = z.looseObject({});

/** Registers a handler with the SDK, on either end. */
function handle(protocol: AnyProtocol, method: string, run: (params: any, extra: Extra) => unknown): void {
  const schema = z.object({ method: z.literal(method), params: z.any() });
  protocol.setRequestHandler(schema, ({ params }, extra) => run(params, extra) as object);
}

/** Sends one report of a call's progress by the SDK. */
function report({ _meta, sendNotification }: Extra, progress: number): Promise<void> {
  const params = { progressToken: _meta!.progressToken!, progress, total: 3 };
  return sendNotification({ method: "notifications/progress", params });
}

/** Connects either end of the SDK to a reciproc peer. */
type Open = (methods: Methods) => Promise<Joined & { protocol: AnyProtocol }>;

async function openClient(methods: Methods): ReturnType<Open> {
  const sdk = await sdkClient(methods);
  return { ...sdk, protocol: sdk.client };
}

async function openServer(methods: Methods): ReturnType<Open> {
  const sdk = await sdkServer(() => {}, methods);
  return { ...sdk, protocol: sdk.mcp.server };
}

/** Opens both ends for the shared suite. */
async function openSdk(open: Open, methods: Methods, handlers: Handlers, heard: (note: unknown) => void): Promise<Sdk> {
  const sdk = await open(methods);
  const { protocol } = sdk;
  for (const [name, run] of Object.entries(handlers)) {
    handle(protocol, name, (params, { signal }) => run(params, signal));
  }
  const note = z.object({ method: z.literal("_note"), params: z.any() });
  protocol.setNotificationHandler(note, ({ params }) => heard(params));
  return {
    ...sdk,
    request: (method, params, signal) =>
      protocol.request({ method, params }, ANY_RESULT, { ...(signal && { signal }) }),
    notify: (method, params) => protocol.notification({ method, params }),
    close: () => protocol.close(),
  };
}

describe.each<[string, Open, number]>([
  // The first request of a client is `initialize`.
  ["a client of the MCP SDK", openClient, 1],
  ["a server of the MCP SDK", openServer, 0],
])("%s", (_name, open, firstId) => {
  behavesWithSdk({
    open: (...given) => openSdk(open, ...given),
    firstId,
    cancel: (requestId) => ({
      method: "notifications/cancelled",
      params: expect.objectContaining({ requestId }) as object,
    }),
    cancelled: undefined,
    error: (code, message, data) => new McpError(code, message, data),
    closed: { code: -32000, message: expect.stringContaining("Connection closed") },
  });

  it("passes the reason of an abort on, in both directions", async () => {
    const [begun, reason] = [gate(), gate<unknown>()];
    await using sdk = await open({ _wait: async (_params, { signal }) => (begun.resolve(), aborted(signal)) });
    handle(sdk.protocol, "_wait", async (_params, { signal }) => {
      await aborted(signal);
      reason.resolve(signal.reason);
      return {};
    });
    const [ours, theirs] = [new AbortController(), new AbortController()];
    const lost = rejection(sdk.peer.request("_wait", {}, { signal: ours.signal }));
    ours.abort(new Error("never mind"));
    await lost;
    expect(await reason.promise).toBe("never mind");
    const left = rejection(
      sdk.protocol.request({ method: "_wait", params: {} }, ANY_RESULT, { signal: theirs.signal }),
    );
    await begun.promise;
    theirs.abort("never again");
    await left;
    expect(sdk.wire.sent.at(-1)).toMatchObject({ params: { reason: "never again" } });
  });

  it("sends and gets reports of progress, in order and before the result", async () => {
    const [ours, theirs]: unknown[][] = [[], []];
    const third = gate();
    await using sdk = await open({
      _build: async (_params, { progress }) => {
        progress(1);
        progress({ progress: 2, total: 3, message: "two of three" });
        progress(3);
        // The SDK loses a report that comes in one read with the result.
        await third.promise;
        return {};
      },
    });
    handle(sdk.protocol, "_build", async (_params, extra) => {
      for (const n of [1, 2, 3]) await report(extra, n);
      return {};
    });
    const onprogress = (value: { progress: number }): void => {
      theirs!.push(value);
      if (value.progress === 3) third.resolve();
    };
    theirs!.push(await sdk.protocol.request({ method: "_build", params: {} }, ANY_RESULT, { onprogress }));
    expect(theirs).toEqual([{ progress: 1 }, { progress: 2, total: 3, message: "two of three" }, { progress: 3 }, {}]);
    const params = { _meta: { "example.org/tag": 7 } };
    const onProgress = (value: unknown): void => void ours!.push(value);
    ours!.push(await sdk.peer.request("_build", params, { onProgress }));
    expect(ours).toEqual([...[1, 2, 3].map((progress) => ({ progress, total: 3 })), {}]);
    const { params: sent } = sdk.wire.received.find(({ method }) => method === "_build");
    expect(sent._meta).toEqual({ "example.org/tag": 7, progressToken: expect.any(Number) });
  });
});

const TOOL = { name: "add", inputSchema: { type: "object", properties: { a: { type: "number" } } } };
const TEXT = { content: [{ type: "text", text: "done" }] };
const ROOTS = { roots: [{ uri: "file:///home/ada", name: "home" }] };
const QUESTION = { messages: [{ role: "user", content: { type: "text", text: "2 + 2?" } }], maxTokens: 5 };
const ANSWER = { model: "m", role: "assistant", content: { type: "text", text: "4" } } as const;

describe("the SDK's client, by its own methods", () => {
  it("makes the handshake, in order", async () => {
    const heard: unknown[] = [];
    const initialized = gate();
    await using sdk = await sdkClient({
      initialize: (params, { id }) => {
        heard.push(["initialize", id, params.clientInfo]);
        return initialize(params);
      },
      "notifications/initialized": () => (heard.push(["initialized"]), initialized.resolve()),
    });
    await initialized.promise;
    expect(sdk.wire.protocol).toBe("mcp");
    expect(heard).toEqual([["initialize", 0, { name: "sdk", version: "3.2.1" }], ["initialized"]]);
    expect(sdk.client.getServerVersion()).toEqual({ name: "ours", version: "1.2.3" });
    expect(sdk.client.getServerCapabilities()).toEqual({ tools: { listChanged: true } });
  });

  it("lists and calls tools, which call it back", async () => {
    const asked: unknown[] = [];
    const methods: Methods = {
      "tools/list": () => ({ tools: [TOOL] }),
      "tools/call": async ({ name }, { peer, signal }: { peer: AnyPeer; signal: AbortSignal }) => {
        if (name === "broken") return { ...TEXT, isError: true };
        const { roots } = (await peer.request("roots/list", undefined, { signal })) as typeof ROOTS;
        const { content } = (await peer.request("sampling/createMessage", QUESTION, { signal })) as typeof ANSWER;
        return { content: [{ type: "text", text: roots[0]!.uri }, content] };
      },
    };
    await using sdk = await sdkClient(methods, { roots: { listChanged: true }, sampling: {} });
    sdk.client.setRequestHandler(ListRootsRequestSchema, () => ROOTS);
    sdk.client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => (asked.push(params), ANSWER));
    expect(await sdk.client.ping()).toEqual({});
    expect(await sdk.client.listTools()).toEqual({ tools: [TOOL] });
    expect(await sdk.client.callTool({ name: "broken" })).toEqual({ ...TEXT, isError: true });
    expect((await sdk.client.callTool({ name: "any" })).content).toEqual([
      { type: "text", text: "file:///home/ada" },
      { type: "text", text: "4" },
    ]);
    expect(asked).toEqual([QUESTION]);
    expect(await sdk.peer.request("ping")).toEqual({});
  });
});

describe("the SDK's server, by its own methods", () => {
  const done = (): CallToolResult => TEXT as CallToolResult;

  it("makes the handshake, and knows the client by it", async () => {
    const initialized = gate();
    await using sdk = await sdkServer((mcp) => (mcp.server.oninitialized = () => initialized.resolve()));
    await initialized.promise;
    expect(sdk.wire.protocol).toBe("mcp");
    expect(sdk.mcp.server.getClientVersion()).toEqual({ name: "ours", version: "1.2.3" });
    expect(sdk.wire.sent[0]).toMatchObject({ id: 1, result: { serverInfo: { name: "sdk", version: "3.2.1" } } });
  });

  it("makes the handshake if it agrees to any subprotocol and knows none", async () => {
    await using sdk = await sdkServer((mcp) => mcp.registerTool("any", {}, done), {}, {});
    expect(sdk.wire.protocol).toBe("reciproc.v1");
    expect(await sdk.peer.request("tools/call", { name: "any" })).toEqual(TEXT);
  });

  it("serves tools and resources, reports their failures, and calls the client back", async () => {
    const register = (mcp: McpServer): void => {
      mcp.registerTool("add", { inputSchema: { a: z.number() } }, ({ a }: { a: number }) => ({
        content: [{ type: "text", text: String(a + 1) }],
      }));
      mcp.registerTool("broken", {}, () => {
        throw new Error("it broke");
      });
      mcp.registerResource("gone", "file:///gone", {}, () => {
        throw new McpError(-32002, "Resource not found", { uri: "file:///gone" });
      });
      mcp.registerTool("ask", {}, async () => {
        const { roots } = await mcp.server.listRoots();
        const { content } = await mcp.server.createMessage(QUESTION as never);
        const requestedSchema = { type: "object", properties: { name: { type: "string" } } } as const;
        const elicited = await mcp.server.elicitInput({ message: "Your name?", requestedSchema });
        return { content: [{ type: "text", text: JSON.stringify([roots, content, elicited]) }] };
      });
    };
    const accepted = { action: "accept", content: { name: "Ada" } };
    await using sdk = await sdkServer(register, {
      ping: () => ({}),
      "roots/list": () => ROOTS,
      "sampling/createMessage": () => ANSWER,
      "elicitation/create": () => accepted,
    });
    const call = async (name: string, rest: object = {}): Promise<any> =>
      sdk.peer.request("tools/call", { name, ...rest });
    expect(await sdk.peer.request("ping")).toEqual({});
    expect(await sdk.mcp.server.ping()).toEqual({});
    expect(await sdk.peer.request("tools/list")).toMatchObject({ tools: [{ name: "add" }, {}, {}] });
    expect(await call("add", { arguments: { a: 1 } })).toEqual({ content: [{ type: "text", text: "2" }] });
    expect(await call("broken")).toEqual({ isError: true, content: [{ type: "text", text: "it broke" }] });
    expect(await call("nope")).toMatchObject({ isError: true });
    expect(await rejection(sdk.peer.request("resources/read", { uri: "file:///gone" }))).toMatchObject({
      code: -32002,
      data: { uri: "file:///gone" },
    });
    expect(JSON.parse((await call("ask")).content[0].text)).toEqual([ROOTS.roots, ANSWER.content, accepted]);
  });

  it("notifies a handler, or the notification event without one", async () => {
    const [changed, logged] = [gate<unknown>(), gate<unknown>()];
    await using sdk = await sdkServer((mcp) => mcp.registerTool("first", {}, done), {
      "notifications/tools/list_changed": (params) => changed.resolve(params),
    });
    sdk.peer.on("notification", (method, params) => logged.resolve([method, params]));
    sdk.mcp.registerTool("second", {}, done);
    expect(await changed.promise).toBeUndefined();
    await sdk.mcp.server.sendLoggingMessage({ level: "info", data: "hello" });
    expect(await logged.promise).toEqual(["notifications/message", { level: "info", data: "hello" }]);
  });
});
