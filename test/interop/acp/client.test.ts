/** Proves that a reciproc client drives an agent of the Agent Client Protocol's own SDK, on its own WebSocket server. */
import {
  agent,
  RequestError,
  type AgentApp,
  type AgentRequestContext,
  type PromptRequest,
  type PromptResponse,
} from "@agentclientprotocol/sdk";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { acp, connect, type AnyPeer } from "../../../src/node.js";
import { inspect } from "../../../src/peer/peer.js";
import { start } from "../../cli/program.js";
import type { AnyOptions } from "../../support/pair.js";
import { gate, rejection } from "../../support/turns.js";
import { theirAgent, type Joined } from "./joined.js";

type Methods = NonNullable<AnyOptions["methods"]>;
type Prompting = (context: AgentRequestContext<PromptRequest>) => PromptResponse | Promise<PromptResponse>;

const INITIALIZE = { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } } };

const PROMPT = { sessionId: "s-1", prompt: [{ type: "text", text: "hello" }] };

/** Returns the SDK's agent with this handler for prompts. */
function answering(prompt: Prompting): AgentApp {
  return agent()
    .onRequest("initialize", () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }))
    .onRequest("session/new", () => ({ sessionId: "s-1" }))
    .onRequest("session/prompt", prompt);
}

/** Returns a reciproc client with a started session. */
async function inSession(app: AgentApp, methods: Methods = {}): Promise<Joined> {
  const both = await theirAgent(app, methods);
  await both.peer.request("initialize", INITIALIZE);
  await both.peer.request("session/new", { cwd: "/tmp", mcpServers: [] });
  return both;
}

/** Returns the messages to the agent with this id. */
function answersTo(both: Joined, id: unknown): unknown[] {
  return both.wire.received.filter((message) => message.id === id && !("method" in message));
}

describe("a reciproc client", () => {
  it("initializes, begins a session, and receives the answer part by part before its end", async () => {
    const heard: unknown[] = [];
    const app = answering(async ({ params, client }) => {
      for (const text of ["you ", "said ", (params as any).prompt[0].text]) {
        const update = { sessionUpdate: "agent_message_chunk" as const, content: { type: "text" as const, text } };
        await client.notify("session/update", { sessionId: "s-1", update });
      }
      return { stopReason: "end_turn" };
    });
    await using both = await inSession(app, {
      "session/update": ({ update }) => void heard.push(update.content.text),
    });
    heard.push(await both.peer.request("session/prompt", PROMPT));
    expect(heard).toEqual(["you ", "said ", "hello", { stopReason: "end_turn" }]);
  });

  it("reads a file and gives a permission for the agent, while its prompt is pending", async () => {
    const app = answering(async ({ client }) => {
      const file = await client.request("fs/read_text_file", { sessionId: "s-1", path: "/a.txt" });
      const permission = await client.request("session/request_permission", {
        sessionId: "s-1",
        toolCall: { toolCallId: "t-1", title: "Edit" },
        options: [{ optionId: "once", name: "Allow", kind: "allow_once" }],
      });
      return { stopReason: "end_turn", _meta: { file, permission } };
    });
    await using both = await inSession(app, {
      "fs/read_text_file": ({ path }) => ({ content: `what is in ${path}` }),
      "session/request_permission": ({ options: [{ optionId }] }) => ({ outcome: { outcome: "selected", optionId } }),
    });
    expect(await both.peer.request("session/prompt", PROMPT)).toEqual({
      stopReason: "end_turn",
      _meta: {
        file: { content: "what is in /a.txt" },
        permission: { outcome: { outcome: "selected", optionId: "once" } },
      },
    });
  });

  it("stops a prompt by session/cancel, and receives the confirmation", async () => {
    const [started, stopped] = [gate(), gate()];
    const app = answering(async () => {
      started.resolve();
      await stopped.promise;
      return { stopReason: "cancelled" };
    }).onNotification("session/cancel", () => stopped.resolve());
    await using both = await inSession(app);
    const answer = both.peer.request("session/prompt", PROMPT);
    await started.promise;
    both.peer.notify("session/cancel", { sessionId: "s-1" });
    expect(await answer).toEqual({ stopReason: "cancelled" });
  });

  it("that aborts a prompt cancels it at the agent, and ignores its answer", async () => {
    const [started, told] = [gate(), gate<unknown>()];
    const app = answering(({ signal }) => {
      started.resolve();
      return new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          told.resolve(signal.reason);
          reject(new DOMException("stop", "AbortError"));
        });
      });
    });
    await using both = await inSession(app);
    const controller = new AbortController();
    const answer = rejection(both.peer.request("session/prompt", PROMPT, { signal: controller.signal }));
    await started.promise;
    controller.abort("the user typed on");
    expect(await answer).toBe("the user typed on");
    expect(await told.promise).toMatchObject({ code: -32800, data: { requestId: 3 } });
    while (inspect(both.peer).unmatched === 0) {
      await both.peer.request("session/new", { cwd: "/tmp", mcpServers: [] });
    }
    expect(both.wire.sent).toContainEqual(
      expect.objectContaining({ id: 3, error: expect.objectContaining({ code: -32800 }) }),
    );
  });

  describe("whose handler the agent cancels by $/cancel_request", () => {
    it("ends by its signal and answers -32800, once; for id 0 too", async () => {
      const controller = new AbortController();
      const app = answering(async ({ client }) => {
        const params = { sessionId: "s-1", path: "/a" };
        const answer = client.request("fs/read_text_file", params, { cancellationSignal: controller.signal });
        const error = await rejection(answer);
        return { stopReason: "end_turn", _meta: { code: error.code } };
      });
      await using both = await inSession(app, {
        "fs/read_text_file": (_params, { signal }) => {
          controller.abort();
          return new Promise((_resolve, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
          });
        },
      });
      expect(await both.peer.request("session/prompt", PROMPT)).toMatchObject({ _meta: { code: -32800 } });
      expect(both.wire.sent).toContainEqual({
        jsonrpc: "2.0",
        method: "$/cancel_request",
        params: { requestId: 0 },
      });
      expect(answersTo(both, 0)).toMatchObject([{ error: { code: -32800 } }]);
    });

    it("may still answer with a result", async () => {
      const controller = new AbortController();
      const app = answering(async ({ client }) => {
        const params = { sessionId: "s-1", path: "/a" };
        const file = await client.request("fs/read_text_file", params, { cancellationSignal: controller.signal });
        return { stopReason: "end_turn", _meta: { file } };
      });
      await using both = await inSession(app, {
        "fs/read_text_file": (_params, { signal }) => {
          controller.abort();
          return new Promise((resolve) => {
            signal.addEventListener("abort", () => resolve({ content: "half of it" }));
          });
        },
      });
      expect(await both.peer.request("session/prompt", PROMPT)).toMatchObject({
        _meta: { file: { content: "half of it" } },
      });
      expect(answersTo(both, 0)).toHaveLength(1);
    });
  });

  it("receives errors with code, message and data", async () => {
    const app = answering(() => {
      throw RequestError.authRequired({ how: "log in" });
    });
    await using both = await inSession(app);
    expect(await rejection(both.peer.request("session/prompt", PROMPT))).toMatchObject({
      name: "RpcError",
      code: -32000,
      message: "Authentication required",
      data: { how: "log in" },
      method: "session/prompt",
    });
    expect(await rejection(both.peer.request("session/prompt", { prompt: 5 }))).toMatchObject({ code: -32602 });
    expect(await rejection(both.peer.request("_acme/none", {}))).toMatchObject({ code: -32601 });
    expect(await rejection(both.peer.request("$/ask"))).toMatchObject({ code: -32601 });
    both.peer.notify("$/hint");
    expect(await rejection(both.peer.request("initialize", INITIALIZE))).toMatchObject({ code: -32600 });
    expect(both.takeComplaints()).toEqual([[expect.anything(), "Initialize not allowed on existing connection"]]);
  });

  it("has many calls in flight, and each gets its own answer", async () => {
    const open = gate();
    const app = answering(() => ({ stopReason: "end_turn" })).onRequest(
      "_acme/echo",
      (params: any) => params as { n: number },
      async ({ params: { n } }) => {
        if (n % 3 === 0) await open.promise;
        return { n };
      },
    );
    await using both = await inSession(app);
    const numbers = Array.from({ length: 300 }, (_, i) => i);
    const answers = numbers.map((n) => both.peer.request("_acme/echo", { n }));
    await answers[1];
    open.resolve();
    expect(await Promise.all(answers)).toEqual(numbers.map((n) => ({ n })));
  });

  it("asks for progress if the protocol allows it, without changing the caller's params", async () => {
    const app = answering(async ({ params, client }) => {
      const { _meta: meta } = params;
      await client.notify("_reciproc/progress", { token: meta!["reciproc/progress"], value: "half" });
      return { stopReason: "end_turn", _meta: { params } };
    });
    await using both = await inSession(app);
    const heard: unknown[] = [];
    const params = { ...PROMPT, _meta: { mine: 1 } };
    const onProgress = (value: unknown): void => void heard.push(value);
    expect(await both.peer.request("session/prompt", params, { onProgress })).toEqual({
      stopReason: "end_turn",
      _meta: { params: { ...PROMPT, _meta: { mine: 1, "reciproc/progress": 3 } } },
    });
    expect(heard).toEqual(["half"]);
    expect(params).toEqual({ ...PROMPT, _meta: { mine: 1 } });
  });

  it("has a batch refused as a whole, because the protocol has no batches", async () => {
    await using both = await inSession(answering(() => ({ stopReason: "end_turn" })));
    const batch = both.peer.batch();
    const calls = [0, 1].map(() => rejection(batch.request("session/new", { cwd: "/", mcpServers: [] })));
    batch.send();
    expect(await Promise.all(calls)).toMatchObject([{ code: -32600 }, { code: -32600 }]);
  });

  it("is closed with 1002 when it does not begin with initialize", async () => {
    await using both = await theirAgent(answering(() => ({ stopReason: "end_turn" })));
    const answer = rejection(both.peer.request("session/new", { cwd: "/", mcpServers: [] }));
    expect(await answer).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await both.peer.closed).toEqual({ code: 1002, reason: "First message must be initialize" });
    expect(both.takeComplaints()).toHaveLength(1);
  });

  it("that offers reciproc.v1 speaks plain JSON-RPC to a server that agrees to it without knowing it", async () => {
    await using both = await theirAgent(
      answering(() => ({ stopReason: "end_turn" })),
      {},
      { link: "packed" },
    );
    expect(both.wire.protocol).toBe("reciproc.v1");
    await both.peer.request("initialize", INITIALIZE);
    expect(await both.peer.request("session/prompt", PROMPT)).toEqual({ stopReason: "end_turn" });
  });

  it("drives an agent over stdio behind `reciproc bridge`", async () => {
    const path = fileURLToPath(new URL("stdio-agent.mjs", import.meta.url));
    const bridge = start(["bridge", "--framing", "lines", "--port", "0", "--", process.execPath, path]);
    const url = (await bridge.until("stdout", "\n")).replace(/^listening on (\S+)\n$/, "$1");
    const heard: unknown[] = [];
    await using peer: AnyPeer = await connect(url, {
      link: "plain",
      dialect: acp,
      methods: {
        "fs/read_text_file": ({ path: name }) => ({ content: `what is in ${name} 🙂\n` }),
        "session/update": ({ update }) => void heard.push(update.content.text),
      },
    });
    await peer.request("initialize", INITIALIZE);
    await peer.request("session/new", { cwd: "/tmp", mcpServers: [] });
    expect(await peer.request("session/prompt", PROMPT)).toEqual({ stopReason: "end_turn" });
    expect(heard).toEqual(["what is in /größe.txt 🙂\n"]);
    await peer.close();
    bridge.child.kill("SIGTERM");
    expect(await bridge.ended).toMatchObject({ code: 0, stderr: "" });
  });
});
