/** Proves that a reciproc client drives an agent of the Agent Client Protocol's own SDK, on its own WebSocket server. */
import {
  agent,
  type AgentApp,
  type AgentRequestContext,
  type PromptRequest,
  type PromptResponse,
} from "@agentclientprotocol/sdk";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { acp, connect, type AnyPeer } from "../../../src/node.js";
import { start } from "../../cli/program.js";
import { rejection } from "../../support/turns.js";
import { behavesWithSdk, type Joined, type Methods, type Sdk } from "../support/sdk.js";
import { INITIALIZE, joinAgent, PROMPT, register, TRAITS } from "./joined.js";

type Prompting = (context: AgentRequestContext<PromptRequest>) => PromptResponse | Promise<PromptResponse>;

/** Returns the SDK's agent with this handler for prompts. */
function answering(prompt: Prompting): AgentApp {
  return agent()
    .onRequest("initialize", () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }))
    .onRequest("session/new", () => ({ sessionId: "s-1" }))
    .onRequest("session/prompt", prompt);
}

/** Returns a reciproc client with a started session. */
async function inSession(app: AgentApp, methods: Methods = {}): Promise<Joined> {
  const both = await joinAgent(app, methods);
  await both.peer.request("initialize", INITIALIZE);
  await both.peer.request("session/new", { cwd: "/tmp", mcpServers: [] });
  return both;
}

/** Opens both ends for the shared suite. */
async function open(methods: Methods, ...served: [handlers: any, heard: any]): Promise<Sdk> {
  let remote!: AgentRequestContext<any>["client"];
  const app = agent().onRequest("initialize", ({ client }) => {
    remote = client;
    return { protocolVersion: 1, agentCapabilities: {}, authMethods: [] };
  });
  register(app, ...served);
  const both = await joinAgent(app, methods);
  await both.peer.request("initialize", INITIALIZE);
  return {
    ...both,
    request: (method, params, cancellationSignal) =>
      remote.request(method, params, { ...(cancellationSignal && { cancellationSignal }) }),
    notify: (method, params) => remote.notify(method, params),
    close: () => both.wire.close(),
  };
}

describe("a reciproc client", () => {
  behavesWithSdk({ open, firstId: 0, ...TRAITS });

  it("begins a session, and gets the answer part by part while it serves the agent", async () => {
    const heard: unknown[] = [];
    const app = answering(async ({ params, client }) => {
      for (const text of ["you ", "said ", (params as any).prompt[0].text]) {
        const update = { sessionUpdate: "agent_message_chunk" as const, content: { type: "text" as const, text } };
        await client.notify("session/update", { sessionId: "s-1", update });
      }
      const file = await client.request("fs/read_text_file", { sessionId: "s-1", path: "/a.txt" });
      const permission = await client.request("session/request_permission", {
        sessionId: "s-1",
        toolCall: { toolCallId: "t-1", title: "Edit" },
        options: [{ optionId: "once", name: "Allow", kind: "allow_once" }],
      });
      return { stopReason: "end_turn", _meta: { file, permission } };
    });
    await using both = await inSession(app, {
      "session/update": ({ update }) => void heard.push(update.content.text),
      "fs/read_text_file": ({ path }) => ({ content: `what is in ${path}` }),
      "session/request_permission": ({ options: [{ optionId }] }) => ({ outcome: { outcome: "selected", optionId } }),
    });
    heard.push(await both.peer.request("session/prompt", PROMPT));
    const file = { content: "what is in /a.txt" };
    const permission = { outcome: { outcome: "selected", optionId: "once" } };
    expect(heard).toEqual(["you ", "said ", "hello", { stopReason: "end_turn", _meta: { file, permission } }]);
  });

  it("gets -32602 for invalid params, -32601 for unknown requests, and -32600 for a second initialize", async () => {
    await using both = await inSession(answering(() => ({ stopReason: "end_turn" })));
    both.peer.notify("$/hint");
    for (const [method, params, code] of [
      ["session/prompt", { prompt: 5 }, -32602],
      ["_acme/none", {}, -32601],
      ["$/ask", undefined, -32601],
      ["initialize", INITIALIZE, -32600],
    ] as const) {
      expect(await rejection(both.peer.request(method, params))).toMatchObject({ code });
    }
    expect(both.takeComplaints()).toEqual([[expect.anything(), "Initialize not allowed on existing connection"]]);
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
      _meta: { params: { ...PROMPT, _meta: { mine: 1, "reciproc/progress": expect.any(Number) } } },
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
    await using both = await joinAgent(answering(() => ({ stopReason: "end_turn" })));
    const answer = rejection(both.peer.request("session/new", { cwd: "/", mcpServers: [] }));
    expect(await answer).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await both.peer.closed).toEqual({ code: 1002, reason: "First message must be initialize" });
    expect(both.takeComplaints()).toHaveLength(1);
  });

  it("that offers reciproc.v1 speaks plain JSON-RPC to a server that agrees to it without knowing it", async () => {
    await using both = await joinAgent(
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
