/** Proves that an unmodified client of the MCP SDK, over its own WebSocket transport, can call and cancel, receive progress, and be called by a reciproc server. */
import {
  CreateMessageRequestSchema,
  EmptyResultSchema,
  ListRootsRequestSchema,
  McpError,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { afterEach, describe, expect, it, vi } from "vitest";
import { ConnectionLostError, lsp, mcp, RpcError, TimeoutError, type Context, type Peer } from "../../../src/node.js";
import { gate, rejection } from "../../support/turns.js";
import { answersTo, initialize, sdkClient, startClocks, stopClocks, type Methods } from "./sdk.js";

afterEach(startClocks);

const TEXT = { content: [{ type: "text", text: "done" }] };

describe("the handshake", () => {
  it("agrees on the subprotocol, and initialized arrives after the answer to initialize", async () => {
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
    expect(sdk.webSocket.protocol).toBe("mcp");
    expect(heard).toEqual([["initialize", 0, { name: "sdk", version: "3.2.1" }], ["initialized"]]);
    expect(sdk.client.getServerVersion()).toEqual({ name: "ours", version: "1.2.3" });
    expect(sdk.client.getServerCapabilities()).toEqual({ tools: { listChanged: true } });
  });

  it("chooses mcp by the subprotocol if the server prefers another dialect", async () => {
    const stopped = gate<unknown>();
    const running = gate();
    await using sdk = await sdkClient(
      {
        "tools/call": (_params, { signal }) =>
          new Promise<void>((resolve) => {
            signal.addEventListener("abort", () => (stopped.resolve(signal.reason), resolve()));
            running.resolve();
          }),
      },
      { dialect: [lsp, mcp] },
    );
    const abort = new AbortController();
    const call = rejection(sdk.client.callTool({ name: "slow" }, undefined, { signal: abort.signal }));
    await running.promise;
    abort.abort();
    await call;
    expect(await stopped.promise).toMatchObject({ name: "AbortError" });
  });
});

describe("calls", () => {
  it("are answered: ping, tools/list, tools/call", async () => {
    const tool = { name: "add", inputSchema: { type: "object", properties: { a: { type: "number" } } } };
    await using sdk = await sdkClient({
      "tools/list": () => ({ tools: [tool] }),
      "tools/call": ({ arguments: { a, b } }) => ({ content: [{ type: "text", text: String(a + b) }] }),
    });
    expect(await sdk.client.ping()).toEqual({});
    expect(await sdk.client.listTools()).toEqual({ tools: [tool] });
    expect(await sdk.client.callTool({ name: "add", arguments: { a: 1, b: 2 } })).toEqual({
      content: [{ type: "text", text: "3" }],
    });
  });

  it("settle each with its own answer, in any order of the answers", async () => {
    const gates = Array.from({ length: 50 }, () => gate());
    let running = 0;
    await using sdk = await sdkClient({
      "tools/call": async ({ arguments: { n } }) => {
        // The last call opens the first gate, and each handler opens the gate before it, which reverses the order.
        if (++running === gates.length) gates[gates.length - 1]!.resolve();
        await gates[n]!.promise;
        gates[n - 1]?.resolve();
        return { content: [{ type: "text", text: String(n) }] };
      },
    });
    const calls = gates.map((_, n) => sdk.client.callTool({ name: "echo", arguments: { n } }));
    const texts = (await Promise.all(calls)).map((result) => (result.content as { text: string }[])[0]!.text);
    expect(texts).toEqual(gates.map((_, n) => String(n)));
    const order = sdk.received.slice(-50).map((message) => message.id);
    expect(order).toEqual([...order].sort((a: number, b: number) => b - a));
  });

  it("reject with the error's code, message and data", async () => {
    await using sdk = await sdkClient({
      "tools/call": () => {
        throw new RpcError(-32602, "no such tool", { name: "nope" });
      },
    });
    const error = await rejection(sdk.client.callTool({ name: "nope" }));
    expect(error).toBeInstanceOf(McpError);
    expect(error).toMatchObject({
      code: -32602,
      message: expect.stringContaining("no such tool"),
      data: { name: "nope" },
    });
  });

  it("that fail internally reject without details", async () => {
    const failure = new Error("the password is hunter2");
    await using sdk = await sdkClient({
      "tools/call": () => {
        throw failure;
      },
    });
    expect(await rejection(sdk.client.callTool({ name: "any" }))).toMatchObject({ code: -32603, data: undefined });
    expect(JSON.stringify(sdk.received)).not.toContain("hunter2");
    expect(sdk.takeServerErrors()).toEqual([failure]);
  });

  it("resolve with a result if a tool reports its own failure", async () => {
    await using sdk = await sdkClient({ "tools/call": () => ({ ...TEXT, isError: true }) });
    expect(await sdk.client.callTool({ name: "any" })).toEqual({ ...TEXT, isError: true });
  });

  it("of an unknown method are refused with -32601", async () => {
    await using sdk = await sdkClient({});
    for (const method of ["no/such", "toString", "__proto__"]) {
      expect(await rejection(sdk.client.request({ method }, EmptyResultSchema))).toMatchObject({ code: -32601 });
    }
  });
});

describe("progress", () => {
  it("arrives as it was reported, in order and before the result", async () => {
    const seen: unknown[] = [];
    const third = gate();
    await using sdk = await sdkClient({
      "tools/call": async (_params, { progress }) => {
        progress(1);
        progress({ progress: 2, total: 3, message: "two of three" });
        progress(3);
        // The SDK loses a report that comes in one read with the result.
        await third.promise;
        return TEXT;
      },
    });
    const onprogress = (report: { progress: number }): void => {
      seen.push(report);
      if (report.progress === 3) third.resolve();
    };
    await sdk.client.callTool({ name: "any" }, undefined, { onprogress }).then((result) => seen.push(result));
    expect(seen).toEqual([{ progress: 1 }, { progress: 2, total: 3, message: "two of three" }, { progress: 3 }, TEXT]);
  });

  it("is sent before the result even if nothing is awaited between", async () => {
    await using sdk = await sdkClient({ "tools/call": (_params, { progress }) => (progress(1), TEXT) });
    await sdk.client.callTool({ name: "any" }, undefined, { onprogress: () => {} });
    expect(sdk.received.slice(-2)).toMatchObject([{ method: "notifications/progress" }, { result: TEXT }]);
    // Whether the SDK delivers it depends on how TCP splits the bytes.
    sdk.takeErrors();
  });

  it("is not sent to a client that did not ask, nor after the result", async () => {
    const asked = gate<(value: unknown) => void>();
    await using sdk = await sdkClient({
      "tools/call": ({ name }, { progress }) => {
        if (name === "asked") asked.resolve(progress);
        else progress(1);
        return TEXT;
      },
    });
    await sdk.client.callTool({ name: "unasked" });
    await sdk.client.callTool({ name: "asked" }, undefined, { onprogress: () => {} });
    (await asked.promise)(1);
    await sdk.client.ping();
    expect(sdk.received.filter(({ method }) => method !== undefined)).toEqual([]);
  });
});

describe("a call that the client aborts", () => {
  /** A tool that runs until its signal aborts, and then still answers. */
  function stubborn(): { methods: Methods; begun: Promise<void>; ended: Promise<AbortSignal> } {
    const begun = gate();
    const ended = gate<AbortSignal>();
    const call = async (_params: unknown, { signal }: Context): Promise<object> => {
      begun.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      ended.resolve(signal);
      return TEXT;
    };
    return { methods: { "tools/call": call }, begun: begun.promise, ended: ended.promise };
  }

  it("by its signal aborts the handler's signal, and no answer is sent", async () => {
    const { methods, begun, ended } = stubborn();
    await using sdk = await sdkClient(methods);
    const abort = new AbortController();
    const outcome = rejection(sdk.client.callTool({ name: "any" }, undefined, { signal: abort.signal }));
    await begun;
    const { id } = sdk.sent.at(-1);
    abort.abort("never mind");
    await outcome;
    expect((await ended).aborted).toBe(true);
    expect(sdk.sent.at(-1)).toMatchObject({
      method: "notifications/cancelled",
      params: { requestId: id, reason: "never mind" },
    });
    // An answer of the handler would precede this one.
    await sdk.client.ping();
    expect(answersTo(id, sdk.received)).toEqual([]);
  });

  it("by its timeout aborts the handler's signal, and no answer is sent", async () => {
    const { methods, begun, ended } = stubborn();
    await using sdk = await sdkClient(methods);
    stopClocks();
    const outcome = rejection(sdk.client.callTool({ name: "any" }, undefined, { timeout: 100 }));
    await begun;
    const { id } = sdk.sent.at(-1);
    vi.advanceTimersByTime(99);
    await sdk.client.ping();
    vi.advanceTimersByTime(1);
    expect(await outcome).toMatchObject({ code: -32001 });
    expect((await ended).aborted).toBe(true);
    await sdk.client.ping();
    expect(answersTo(id, sdk.received)).toEqual([]);
  });

  it("is not aborted while reports of it restart its timeout", async () => {
    const reporter = gate<(value: unknown) => void>();
    const finish = gate();
    await using sdk = await sdkClient({
      "tools/call": async (_params, { progress }) => {
        reporter.resolve(progress);
        await finish.promise;
        return TEXT;
      },
    });
    stopClocks();
    let reported = gate();
    const result = sdk.client.callTool({ name: "any" }, undefined, {
      timeout: 100,
      resetTimeoutOnProgress: true,
      onprogress: () => reported.resolve(),
    });
    const progress = await reporter.promise;
    for (const n of [1, 2, 3]) {
      vi.advanceTimersByTime(80);
      progress(n);
      await reported.promise;
      reported = gate();
    }
    vi.advanceTimersByTime(80);
    finish.resolve();
    expect(await result).toEqual(TEXT);
  });
});

describe("a tool that calls its caller", () => {
  const CAPABLE = { roots: { listChanged: true }, sampling: {} };
  const ROOTS = { roots: [{ uri: "file:///home/ada", name: "home" }] };
  const QUESTION = { messages: [{ role: "user", content: { type: "text", text: "2 + 2?" } }], maxTokens: 5 };
  const ANSWER = { model: "m", role: "assistant", content: { type: "text", text: "4" } } as const;

  it("gets its roots and a sampled message while the call is pending", async () => {
    const asked: unknown[] = [];
    await using sdk = await sdkClient(
      {
        "tools/call": async (_params, { peer, signal }: { peer: Peer; signal: AbortSignal }) => {
          const { roots } = await peer.request("roots/list", undefined, { signal });
          const { content } = await peer.request("sampling/createMessage", QUESTION, { signal });
          return { content: [{ type: "text", text: roots[0].uri }, content] };
        },
      },
      {
        capabilities: CAPABLE,
        prepare(client) {
          client.setRequestHandler(ListRootsRequestSchema, () => ROOTS);
          client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => (asked.push(params), ANSWER));
        },
      },
    );
    expect((await sdk.client.callTool({ name: "any" })).content).toEqual([
      { type: "text", text: "file:///home/ada" },
      { type: "text", text: "4" },
    ]);
    expect(asked).toEqual([QUESTION]);
  });

  it("pings it, and is refused with -32601 what the client does not serve", async () => {
    await using sdk = await sdkClient({});
    expect(await sdk.peer.request("ping")).toEqual({});
    expect(await rejection(sdk.peer.request("roots/list"))).toMatchObject({ code: -32601 });
  });

  it("gets the client's error", async () => {
    await using sdk = await sdkClient(
      {},
      {
        capabilities: CAPABLE,
        prepare: (client) =>
          client.setRequestHandler(CreateMessageRequestSchema, () => {
            throw new McpError(-1, "User rejected sampling request", { by: "ada" });
          }),
      },
    );
    const error = await rejection(sdk.peer.request("sampling/createMessage", QUESTION));
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: -1, message: expect.stringContaining("rejected"), data: { by: "ada" } });
  });

  it("gets reports of the client's progress, each of which restarts its timeout", async () => {
    const seen: unknown[] = [];
    const begun = gate<(progress: number) => Promise<void>>();
    const finish = gate();
    await using sdk = await sdkClient(
      {},
      {
        capabilities: CAPABLE,
        prepare: (client) =>
          client.setRequestHandler(CreateMessageRequestSchema, async ({ params }, { sendNotification }) => {
            const { progressToken } = params._meta!;
            begun.resolve((progress) =>
              sendNotification({
                method: "notifications/progress",
                params: { progressToken: progressToken!, progress, total: 3 },
              }),
            );
            await finish.promise;
            return ANSWER;
          }),
      },
    );
    stopClocks();
    let reported = gate();
    const onProgress = (report: unknown): void => (seen.push(report), reported.resolve());
    const options = { timeoutMs: 100, resetTimeoutOnProgress: true, onProgress };
    const result = sdk.peer.request("sampling/createMessage", QUESTION, options);
    const report = await begun.promise;
    for (const n of [1, 2, 3]) {
      vi.advanceTimersByTime(80);
      await report(n);
      await reported.promise;
      reported = gate();
    }
    vi.advanceTimersByTime(80);
    finish.resolve();
    expect(await result).toEqual(ANSWER);
    expect(seen).toEqual([1, 2, 3].map((progress) => ({ progress, total: 3 })));
  });

  it.each<["its signal" | "its timeout"]>([["its signal"], ["its timeout"]])(
    "gives up by %s: the client's handler stops and sends no answer",
    async (how) => {
      const begun = gate();
      const stopped = gate<unknown>();
      await using sdk = await sdkClient(
        {},
        {
          capabilities: CAPABLE,
          prepare: (client) =>
            client.setRequestHandler(CreateMessageRequestSchema, async (_request, { signal }) => {
              begun.resolve();
              await new Promise((resolve) => signal.addEventListener("abort", resolve));
              stopped.resolve(signal.reason);
              return ANSWER;
            }),
        },
      );
      stopClocks();
      const abort = new AbortController();
      const options = { signal: abort.signal, timeoutMs: 100 };
      const outcome = rejection(sdk.peer.request("sampling/createMessage", QUESTION, options));
      await begun.promise;
      const reason = new Error("never mind");
      if (how === "its signal") abort.abort(reason);
      else vi.advanceTimersByTime(100);
      const error = await outcome;
      if (how === "its signal") expect(error).toBe(reason);
      else expect(error).toBeInstanceOf(TimeoutError);
      expect(await stopped.promise).toBe(error.message);
      // The first request has the smallest id that reciproc sends. The SDK would ignore a cancel of id 0.
      const { id } = sdk.received.find(({ method }) => method === "sampling/createMessage");
      expect(id).toBe(1);
      await sdk.peer.request("ping");
      expect(answersTo(id, sdk.sent)).toEqual([]);
    },
  );
});

describe("notifications", () => {
  it("reach the client, one by one and to all, and the server", async () => {
    const changed: string[] = [];
    const twice = gate();
    const heard = gate<unknown>();
    await using sdk = await sdkClient(
      { "notifications/roots/list_changed": (params) => heard.resolve(params) },
      {
        capabilities: { roots: { listChanged: true } },
        prepare: (client) =>
          client.setNotificationHandler(ToolListChangedNotificationSchema, ({ method }) => {
            if (changed.push(method) === 2) twice.resolve();
          }),
      },
    );
    sdk.peer.notify("notifications/tools/list_changed");
    sdk.server.peers.notify("notifications/tools/list_changed");
    await twice.promise;
    await sdk.client.sendRootsListChanged();
    expect(await heard.promise).toBeUndefined();
  });
});

describe("closing", () => {
  it("by the client during a call aborts the handler, and sends no answer", async () => {
    const stopped = gate<unknown>();
    const running = gate();
    await using sdk = await sdkClient({
      "tools/call": async (_params, { signal }) => {
        running.resolve();
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        stopped.resolve(signal.reason);
      },
    });
    const call = rejection(sdk.client.callTool({ name: "any" }));
    await running.promise;
    await sdk.client.close();
    expect(await call).toMatchObject({ code: -32000, message: expect.stringContaining("Connection closed") });
    expect(await stopped.promise).toBeInstanceOf(Error);
    expect((await sdk.peer.closed).code).toBe(1005);
  });

  it("by the server during a call rejects the pending calls of both sides", async () => {
    const running = gate();
    const outcome = gate<unknown>();
    await using sdk = await sdkClient(
      {
        "tools/call": async (_params, { peer }) => {
          const question = rejection(peer.request("roots/list"));
          outcome.resolve(await question);
        },
      },
      {
        capabilities: { roots: {} },
        prepare: (client) =>
          client.setRequestHandler(ListRootsRequestSchema, () => {
            running.resolve();
            return new Promise(() => {});
          }),
      },
    );
    const closed = gate();
    sdk.client.onclose = () => closed.resolve();
    const call = rejection(sdk.client.callTool({ name: "any" }));
    await running.promise;
    await sdk.server.close();
    const lost = await outcome.promise;
    expect(lost).toBeInstanceOf(ConnectionLostError);
    expect(lost).toMatchObject({ outcome: "unknown" });
    await closed.promise;
    expect(await call).toMatchObject({ code: -32000 });
  });
});
