/** Proves that the unmodified client and server of the MCP SDK can call and cancel, report progress, and be called by a reciproc peer. */
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { Protocol, RequestHandlerExtra } from "@modelcontextprotocol/sdk/shared/protocol.js";
import { McpError, type CallToolResult } from "@modelcontextprotocol/sdk/types.js";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { gate, raising, rejection } from "../../support/turns.js";
import { aborted, behavesWithSdk, type Joined, type Methods, type Traits } from "../support/sdk.js";
import { sdkClient, sdkServer } from "./sdk.js";

type AnyProtocol = Protocol<any, any, any>;
type Extra = RequestHandlerExtra<any, any>;

const ANY_RESULT = z.looseObject({});

function handle(protocol: AnyProtocol, method: string, run: (params: any, extra: Extra) => unknown): void {
  const schema = z.object({ method: z.literal(method), params: z.any() });
  protocol.setRequestHandler(schema, ({ params }, extra) => run(params, extra) as object);
}

type Open = (methods: Methods) => Promise<Joined<AnyProtocol>>;

const openServer: Open = async (methods) => {
  const { theirs, ...sdk } = await sdkServer(() => {}, methods);
  return { ...sdk, theirs: theirs.server };
};

function opening(open: Open): Traits["open"] {
  return async (methods, handlers, heard) => {
    const sdk = await open(methods);
    const { theirs } = sdk;
    for (const [name, run] of Object.entries(handlers))
      handle(theirs, name, (params, { signal }) => run(params, signal));
    const note = z.object({ method: z.literal("_note"), params: z.any() });
    theirs.setNotificationHandler(note, ({ params }) => heard(params));
    return {
      ...sdk,
      request: (method, params, signal) =>
        theirs.request({ method, params }, ANY_RESULT, { ...(signal && { signal }) }),
      notify: (method, params) => theirs.notification({ method, params }),
      close: () => theirs.close(),
    };
  };
}

describe.each<[string, Open, number]>([
  // The first request of a client is `initialize`.
  ["a client of the MCP SDK", sdkClient, 1],
  ["a server of the MCP SDK", openServer, 0],
])("%s", (_name, open, firstId) => {
  behavesWithSdk({
    open: opening(open),
    firstId,
    cancel: (requestId) => ({
      method: "notifications/cancelled",
      params: expect.objectContaining({ requestId }) as object,
    }),
    cancelled: undefined,
    error: (code, message, data) => new McpError(code, message, data),
    closed: { code: -32000, message: expect.stringContaining("Connection closed") },
  });

  it("agrees to the subprotocol mcp, and passes the reason of an abort on", async () => {
    const reason = gate<unknown>();
    await using sdk = await open({});
    expect(sdk.wire.protocol).toBe("mcp");
    handle(sdk.theirs, "_wait", async (_params, { signal }) => {
      await aborted(signal);
      reason.resolve(signal.reason);
      return {};
    });
    const abort = new AbortController();
    const lost = rejection(sdk.peer.request("_wait", {}, { signal: abort.signal }));
    abort.abort(new Error("never mind"));
    await lost;
    expect(await reason.promise).toBe("never mind");
  });

  it("sends reports of progress that arrive in order and before the result", async () => {
    await using sdk = await open({});
    handle(sdk.theirs, "_build", async (_params, { _meta, sendNotification }) => {
      const { progressToken } = _meta!;
      for (const progress of [1, 2, 3])
        await sendNotification({ method: "notifications/progress", params: { progressToken, progress, total: 3 } });
      return {};
    });
    const heard: unknown[] = [];
    heard.push(await sdk.peer.request("_build", {}, { onProgress: (value) => void heard.push(value) }));
    expect(heard).toEqual([...[1, 2, 3].map((progress) => ({ progress, total: 3 })), {}]);
  });
});

describe("the SDK's server, by its own methods", () => {
  const TEXT = { content: [{ type: "text", text: "done" }] } as CallToolResult;
  const ROOTS = { roots: [{ uri: "file:///home/ada", name: "home" }] };
  const QUESTION = { messages: [{ role: "user", content: { type: "text", text: "2 + 2?" } }], maxTokens: 5 };
  const ANSWER = { model: "m", role: "assistant", content: { type: "text", text: "4" } };

  it("makes the handshake, also if it agrees to any subprotocol and knows none", async () => {
    const initialized = gate();
    const register = (mcp: McpServer): void => {
      mcp.server.oninitialized = () => initialized.resolve();
      mcp.registerTool("any", {}, () => TEXT);
    };
    await using sdk = await sdkServer(register, {}, {});
    await initialized.promise;
    expect(sdk.wire.protocol).toBe("reciproc.v1");
    expect(sdk.theirs.server.getClientVersion()).toEqual({ name: "ours", version: "1.2.3" });
    expect(sdk.wire.sent[0]).toMatchObject({ id: 1, result: { serverInfo: { name: "sdk", version: "3.2.1" } } });
    expect(await sdk.peer.request("tools/call", { name: "any" })).toEqual(TEXT);
  });

  it("serves tools and resources, reports their failures, and calls the client back", async () => {
    const register = (mcp: McpServer): void => {
      mcp.registerTool("broken", {}, raising(new Error("it broke")));
      mcp.registerResource(
        "gone",
        "file:///gone",
        {},
        raising(new McpError(-32002, "Resource not found", { uri: "file:///gone" })),
      );
      mcp.registerTool("ask", {}, async () => {
        const { roots } = await mcp.server.listRoots();
        const { content } = await mcp.server.createMessage(QUESTION as never);
        const requestedSchema = { type: "object", properties: { name: { type: "string" } } } as const;
        const elicited = await mcp.server.elicitInput({ message: "Your name?", requestedSchema });
        return { content: [{ type: "text", text: JSON.stringify([roots, content, elicited]) }] };
      });
    };
    const accepted = { action: "accept", content: { name: "Ada" } };
    const changed = gate<unknown>();
    await using sdk = await sdkServer(register, {
      ping: () => ({}),
      "roots/list": () => ROOTS,
      "sampling/createMessage": () => ANSWER,
      "elicitation/create": () => accepted,
      "notifications/tools/list_changed": (params) => changed.resolve(params),
    });
    const call = async (name: string): Promise<any> => sdk.peer.request("tools/call", { name });
    expect(await sdk.peer.request("ping")).toEqual({});
    expect(await sdk.theirs.server.ping()).toEqual({});
    sdk.theirs.registerTool("new", {}, () => TEXT);
    expect(await changed.promise).toBeUndefined();
    expect(await sdk.peer.request("tools/list")).toMatchObject({ tools: [{ name: "broken" }, {}, { name: "new" }] });
    expect(await call("broken")).toEqual({ isError: true, content: [{ type: "text", text: "it broke" }] });
    const gone = await rejection(sdk.peer.request("resources/read", { uri: "file:///gone" }));
    expect(gone).toMatchObject({ code: -32002, data: { uri: "file:///gone" } });
    expect(JSON.parse((await call("ask")).content[0].text)).toEqual([ROOTS.roots, ANSWER.content, accepted]);
  });
});
