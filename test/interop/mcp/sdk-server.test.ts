/** Proves that a reciproc client can call and cancel, receive progress from, and be called by an unmodified `McpServer`. */
import { ErrorCode as McpErrorCode, McpError } from "@modelcontextprotocol/sdk/types.js";
import type { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import type { CallToolResult, ServerNotification } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { ConnectionLostError, RpcError, TimeoutError, type Context } from "../../../src/node.js";
import { gate, rejection } from "../../support/turns.js";
import { answersTo, sdkServer, startClocks, stopClocks } from "./sdk.js";

afterEach(startClocks);

const DONE: CallToolResult = { content: [{ type: "text", text: "done" }] };

/** The second argument of a tool's handler in the SDK. */
interface Extra {
  signal: AbortSignal;
  requestId: string | number;
  _meta?: { progressToken?: string | number | undefined } | undefined;
  sendNotification(notification: ServerNotification): Promise<void>;
}

/** Registers a tool without arguments. */
function tool(name: string, run: (extra: Extra) => Promise<CallToolResult> | CallToolResult) {
  return (mcp: McpServer): void => void mcp.registerTool(name, {}, run as never);
}

/** Sends one report of the call's progress. */
function report({ _meta, sendNotification }: Extra, progress: number): Promise<void> {
  const progressToken = _meta!.progressToken!;
  return sendNotification({
    method: "notifications/progress",
    params: { progressToken, progress, total: 3, message: `${progress} of 3` },
  });
}

describe("the handshake", () => {
  it("agrees on the subprotocol, and the server knows the client by its initialize", async () => {
    const initialized = gate();
    await using sdk = await sdkServer((mcp) => (mcp.server.oninitialized = () => initialized.resolve()));
    await initialized.promise;
    expect(sdk.webSocket.protocol).toBe("mcp");
    expect(sdk.mcp.server.getClientVersion()).toEqual({ name: "ours", version: "1.2.3" });
    expect(sdk.sent[0]).toMatchObject({ id: 1, result: { serverInfo: { name: "sdk", version: "3.2.1" } } });
  });

  it("succeeds if the server agrees to any subprotocol and knows none", async () => {
    await using sdk = await sdkServer(
      tool("any", () => DONE),
      {},
      {},
    );
    expect(sdk.webSocket.protocol).toBe("reciproc.v1");
    expect(await sdk.peer.request("tools/call", { name: "any" })).toEqual(DONE);
  });
});

describe("calls", () => {
  it("are answered: ping, tools/list, tools/call", async () => {
    await using sdk = await sdkServer((mcp) =>
      mcp.registerTool(
        "add",
        { description: "Adds.", inputSchema: { a: z.number(), b: z.number() } },
        ({ a, b }: { a: number; b: number }) => ({ content: [{ type: "text", text: String(a + b) }] }),
      ),
    );
    expect(await sdk.peer.request("ping")).toEqual({});
    expect(await sdk.peer.request("tools/list")).toMatchObject({
      tools: [{ name: "add", inputSchema: { type: "object", required: ["a", "b"] } }],
    });
    const result = await sdk.peer.request("tools/call", { name: "add", arguments: { a: 1, b: 2 } });
    expect(result).toEqual({ content: [{ type: "text", text: "3" }] });
  });

  it("reject with the code, message and data of an error", async () => {
    await using sdk = await sdkServer((mcp) =>
      mcp.registerResource("gone", "file:///gone", {}, () => {
        throw new McpError(-32002, "Resource not found", { uri: "file:///gone" });
      }),
    );
    const error = await rejection(sdk.peer.request("resources/read", { uri: "file:///gone" }));
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({
      code: -32002,
      message: expect.stringContaining("Resource not found"),
      data: { uri: "file:///gone" },
      method: "resources/read",
    });
  });

  it("resolve with a tool's own failure, which is a result", async () => {
    await using sdk = await sdkServer(
      tool("breaks", () => {
        throw new Error("it broke");
      }),
    );
    const failed = (text: unknown): object => ({ isError: true, content: [{ type: "text", text }] });
    expect(await sdk.peer.request("tools/call", { name: "breaks" })).toEqual(failed("it broke"));
    expect(await sdk.peer.request("tools/call", { name: "nope" })).toEqual(failed(expect.stringContaining("nope")));
  });

  it("of a method that the server does not serve reject with -32601", async () => {
    await using sdk = await sdkServer(() => {});
    expect(await rejection(sdk.peer.request("no/such"))).toMatchObject({ code: McpErrorCode.MethodNotFound });
  });

  it("settle each with its own answer, many at once", async () => {
    await using sdk = await sdkServer((mcp) =>
      mcp.registerTool("echo", { inputSchema: { n: z.number() } }, async ({ n }: { n: number }) => ({
        content: [{ type: "text", text: String(n) }],
      })),
    );
    const calls = Array.from({ length: 200 }, (_, n) =>
      sdk.peer.request("tools/call", { name: "echo", arguments: { n } }),
    );
    const texts = (await Promise.all(calls)).map(({ content: [{ text }] }) => text as string);
    expect(texts).toEqual(calls.map((_, n) => String(n)));
  });
});

describe("progress", () => {
  it("arrives as it was reported, in order and before the result", async () => {
    const seen: unknown[] = [];
    await using sdk = await sdkServer(
      tool("any", async (extra) => {
        for (const n of [1, 2, 3]) await report(extra, n);
        return DONE;
      }),
    );
    const onProgress = (value: unknown): void => void seen.push(value);
    const result = sdk.peer.request("tools/call", { name: "any", _meta: { "example.org/tag": 7 } }, { onProgress });
    seen.push(await result);
    expect(seen).toEqual([
      { progress: 1, total: 3, message: "1 of 3" },
      { progress: 2, total: 3, message: "2 of 3" },
      { progress: 3, total: 3, message: "3 of 3" },
      DONE,
    ]);
    const { id, params } = sdk.received.find(({ method }) => method === "tools/call");
    expect(params._meta).toEqual({ "example.org/tag": 7, progressToken: id });
  });

  it("is requested only with `onProgress`", async () => {
    const tokens: unknown[] = [];
    await using sdk = await sdkServer(
      tool("any", ({ _meta }) => {
        tokens.push(_meta?.progressToken);
        return DONE;
      }),
    );
    await sdk.peer.request("tools/call", { name: "any" });
    expect(tokens).toEqual([undefined]);
  });

  it("restarts the timeout, up to maxTotalTimeoutMs", async () => {
    const begun = gate<Extra>();
    const stopped = gate<unknown>();
    await using sdk = await sdkServer(
      tool("any", async (extra) => {
        begun.resolve(extra);
        await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
        stopped.resolve(extra.signal.reason);
        return DONE;
      }),
    );
    stopClocks();
    let reported = gate();
    const outcome = rejection(
      sdk.peer.request(
        "tools/call",
        { name: "any" },
        {
          timeoutMs: 100,
          maxTotalTimeoutMs: 300,
          resetTimeoutOnProgress: true,
          onProgress: () => reported.resolve(),
        },
      ),
    );
    const extra = await begun.promise;
    for (const n of [1, 2, 3]) {
      vi.advanceTimersByTime(80);
      await report(extra, n);
      await reported.promise;
      reported = gate();
    }
    // 240 ms have passed, each of them within 100 ms of a report.
    vi.advanceTimersByTime(60);
    expect(await outcome).toBeInstanceOf(TimeoutError);
    expect(await stopped.promise).toContain('"tools/call" was not answered within 300 ms');
  });
});

describe("an aborted call", () => {
  /** A tool that runs until its signal aborts, and then still answers. */
  function stubborn(): { register: (mcp: McpServer) => void; begun: Promise<Extra>; ended: Promise<unknown> } {
    const begun = gate<Extra>();
    const ended = gate<unknown>();
    const run = async (extra: Extra): Promise<CallToolResult> => {
      begun.resolve(extra);
      await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
      ended.resolve(extra.signal.reason);
      return DONE;
    };
    return { register: tool("any", run), begun: begun.promise, ended: ended.promise };
  }

  it("by its signal aborts the tool's signal with the same reason, and gets no answer", async () => {
    const { register, begun, ended } = stubborn();
    await using sdk = await sdkServer(register);
    const abort = new AbortController();
    const outcome = rejection(sdk.peer.request("tools/call", { name: "any" }, { signal: abort.signal }));
    const { requestId } = await begun;
    const reason = new Error("never mind");
    abort.abort(reason);
    expect(await outcome).toBe(reason);
    expect(await ended).toBe("never mind");
    await sdk.peer.request("ping");
    expect(answersTo(requestId, sdk.sent)).toEqual([]);
  });

  it("by its timeout aborts the tool's signal, and gets no answer", async () => {
    const { register, begun, ended } = stubborn();
    await using sdk = await sdkServer(register);
    stopClocks();
    const outcome = rejection(sdk.peer.request("tools/call", { name: "any" }, { timeoutMs: 100 }));
    const { requestId } = await begun;
    vi.advanceTimersByTime(100);
    expect(await outcome).toBeInstanceOf(TimeoutError);
    expect(await ended).toBe('"tools/call" was not answered within 100 ms');
    await sdk.peer.request("ping");
    expect(answersTo(requestId, sdk.sent)).toEqual([]);
  });

  it("after its answer sends nothing", async () => {
    await using sdk = await sdkServer(tool("any", () => DONE));
    const abort = new AbortController();
    await sdk.peer.request("tools/call", { name: "any" }, { signal: abort.signal });
    abort.abort();
    await sdk.peer.request("ping");
    expect(sdk.received.filter(({ method }) => method === "notifications/cancelled")).toEqual([]);
  });
});

describe("a tool that calls its caller", () => {
  const ROOTS = { roots: [{ uri: "file:///home/ada", name: "home" }] };
  const QUESTION = {
    messages: [{ role: "user" as const, content: { type: "text" as const, text: "2 + 2?" } }],
    maxTokens: 5,
  };
  const ANSWER = { model: "m", role: "assistant", content: { type: "text", text: "4" } };

  it("gets roots, a sampled message and an elicited answer while the call is pending", async () => {
    const asked: unknown[] = [];
    const elicitation = {
      message: "Who?",
      requestedSchema: { type: "object" as const, properties: { name: { type: "string" as const } } },
    };
    await using sdk = await sdkServer(
      (mcp) =>
        mcp.registerTool("any", {}, async () => {
          const { roots } = await mcp.server.listRoots();
          const { content } = await mcp.server.createMessage(QUESTION);
          const elicited = await mcp.server.elicitInput(elicitation);
          return { content: [{ type: "text", text: JSON.stringify([roots, content, elicited]) }] };
        }),
      {
        methods: {
          "roots/list": (params, { id }) => (asked.push([id, params]), ROOTS),
          "sampling/createMessage": (params, { id }) => (asked.push([id, params]), ANSWER),
          "elicitation/create": (_params, { id }) => (asked.push([id]), { action: "accept", content: { name: "Ada" } }),
        },
      },
    );
    const { content } = await sdk.peer.request("tools/call", { name: "any" });
    expect(JSON.parse(content[0].text)).toEqual([
      ROOTS.roots,
      ANSWER.content,
      { action: "accept", content: { name: "Ada" } },
    ]);
    // The SDK counts from 0.
    expect(asked).toEqual([[0, undefined], [1, QUESTION], [2]]);
  });

  it("gets an answer to its ping, -32601 for an unknown method, and the errors of handlers", async () => {
    await using sdk = await sdkServer(() => {}, {
      methods: {
        ping: () => ({}),
        "sampling/createMessage": () => {
          throw new RpcError(-1, "User rejected sampling request", { by: "ada" });
        },
      },
    });
    expect(await sdk.mcp.server.ping()).toEqual({});
    expect(await rejection(sdk.mcp.server.listRoots())).toMatchObject({ code: -32601 });
    const error = await rejection(sdk.mcp.server.createMessage(QUESTION));
    expect(error).toMatchObject({ code: -1, message: expect.stringContaining("rejected"), data: { by: "ada" } });
  });

  it("gets progress reports, each of which restarts its timeout", async () => {
    const seen: unknown[] = [];
    const begun = gate<(value: unknown) => void>();
    const finish = gate();
    await using sdk = await sdkServer(() => {}, {
      methods: {
        "sampling/createMessage": async (_params, { progress }: Context) => {
          begun.resolve(progress);
          await finish.promise;
          return ANSWER;
        },
      },
    });
    stopClocks();
    let reported = gate();
    const result = sdk.mcp.server.createMessage(QUESTION, {
      timeout: 100,
      resetTimeoutOnProgress: true,
      onprogress: (value) => (seen.push(value), reported.resolve()),
    });
    const progress = await begun.promise;
    for (const n of [1, 2, 3]) {
      vi.advanceTimersByTime(80);
      progress({ progress: n, total: 3 });
      await reported.promise;
      reported = gate();
    }
    vi.advanceTimersByTime(80);
    finish.resolve();
    expect(await result).toEqual(ANSWER);
    expect(seen).toEqual([1, 2, 3].map((n) => ({ progress: n, total: 3 })));
  });

  it.each<["its signal" | "its timeout"]>([["its signal"], ["its timeout"]])(
    "gives up by %s: our handler's signal fires and no answer is sent",
    async (how) => {
      const begun = gate<unknown>();
      const stopped = gate<unknown>();
      await using sdk = await sdkServer(() => {}, {
        methods: {
          ping: () => ({}),
          "sampling/createMessage": async (_params, { signal, id }: Context) => {
            begun.resolve(id);
            await new Promise((resolve) => signal.addEventListener("abort", resolve));
            stopped.resolve(signal.reason);
            return ANSWER;
          },
        },
      });
      stopClocks();
      const abort = new AbortController();
      const outcome = rejection(sdk.mcp.server.createMessage(QUESTION, { signal: abort.signal, timeout: 100 }));
      const id = await begun.promise;
      if (how === "its signal") abort.abort("never mind");
      else vi.advanceTimersByTime(100);
      expect(await outcome).toMatchObject({ code: McpErrorCode.RequestTimeout });
      expect(await stopped.promise).toMatchObject({ name: "AbortError" });
      await sdk.mcp.server.ping();
      expect(answersTo(id, sdk.received)).toEqual([]);
    },
  );

  it("aborts the handler's signal when it cancels its first request, whose id is 0", async () => {
    const begun = gate<unknown>();
    const stopped = gate();
    await using sdk = await sdkServer(() => {}, {
      methods: {
        "roots/list": async (_params, { signal, id }: Context) => {
          begun.resolve(id);
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          stopped.resolve();
        },
      },
    });
    const abort = new AbortController();
    const outcome = rejection(sdk.mcp.server.listRoots(undefined, { signal: abort.signal }));
    expect(await begun.promise).toBe(0);
    abort.abort();
    await outcome;
    await stopped.promise;
  });
});

describe("notifications", () => {
  it("reach a handler, or the notification event without one, and the server", async () => {
    const changed = gate<unknown>();
    const logged = gate<unknown>();
    const heard = gate();
    await using sdk = await sdkServer(
      (mcp) => {
        tool("first", () => DONE)(mcp);
        mcp.server.setNotificationHandler(z.object({ method: z.literal("notifications/roots/list_changed") }), () =>
          heard.resolve(),
        );
      },
      { methods: { "notifications/tools/list_changed": (params) => changed.resolve(params) } },
    );
    sdk.peer.on("notification", (method, params) => logged.resolve([method, params]));
    tool("second", () => DONE)(sdk.mcp);
    expect(await changed.promise).toBeUndefined();
    await sdk.mcp.server.sendLoggingMessage({ level: "info", data: "hello" });
    expect(await logged.promise).toEqual(["notifications/message", { level: "info", data: "hello" }]);
    sdk.peer.notify("notifications/roots/list_changed");
    await heard.promise;
  });
});

describe("closing", () => {
  it("by the server during a call rejects the call, with its outcome, and aborts the client's handler", async () => {
    const running = gate();
    const stopped = gate();
    await using sdk = await sdkServer(
      (mcp) =>
        mcp.registerTool("any", {}, async () => {
          await mcp.server.listRoots();
          return DONE;
        }),
      {
        methods: {
          "roots/list": async (_params, { signal }: Context) => {
            running.resolve();
            await new Promise((resolve) => signal.addEventListener("abort", resolve));
            stopped.resolve();
          },
        },
      },
    );
    const outcome = rejection(sdk.peer.request("tools/call", { name: "any" }));
    await running.promise;
    await sdk.mcp.close();
    const lost = await outcome;
    expect(lost).toBeInstanceOf(ConnectionLostError);
    expect(lost).toMatchObject({ outcome: "unknown" });
    await stopped.promise;
  });

  it("by the client during a call aborts the tool", async () => {
    const begun = gate();
    const stopped = gate();
    await using sdk = await sdkServer(
      tool("any", async ({ signal }) => {
        begun.resolve();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        stopped.resolve();
        return DONE;
      }),
    );
    const outcome = rejection(sdk.peer.request("tools/call", { name: "any" }));
    await begun.promise;
    await sdk.peer.close();
    expect(await outcome).toBeInstanceOf(ConnectionLostError);
    await stopped.promise;
  });
});
