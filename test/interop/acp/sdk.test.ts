/** The Agent Client Protocol's own SDK calls a reciproc agent, as an editor, and serves a reciproc editor, as an agent. */
import { agent, client, RequestError, type AgentApp, type ClientApp } from "@agentclientprotocol/sdk";
import { createNodeWebSocketUpgradeHandler } from "@agentclientprotocol/sdk/experimental/node";
import { AcpServer } from "@agentclientprotocol/sdk/experimental/server";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { fileURLToPath } from "node:url";
import { describe, expect, it, vi } from "vitest";
import { WebSocketServer } from "ws";
import { acp, connect, type AnyPeer, type NodeConnectOptions } from "../../../src/node.js";
import { beginListening } from "../../cli/program.js";
import { bareHttp } from "../../support/network.js";
import { rejection } from "../../support/turns.js";
import { aborted, answersTo, behavesWithSdk, joinClient, joined, TappedWebSocket } from "../support/sdk.js";
import type { Handlers, Joined, Methods, Traits } from "../support/sdk.js";

const INITIALIZE = { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } } };
const NEW_SESSION = { cwd: "/", mcpServers: [] };
const PROMPT = { sessionId: "s-1", prompt: [{ type: "text" as const, text: "hello" }] };
const END = { stopReason: "end_turn" } as const;

const AGENT = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }),
  "session/new": () => ({ sessionId: "s-1" }),
};

/** The methods of an editor. `heard` receives the text of each update. */
function editor(heard: (text: string) => void): Record<string, (params: any) => unknown> {
  return {
    "session/update": ({ update }) => heard(update.content.text),
    "fs/read_text_file": ({ path }) => ({ content: `what is in ${path}` }),
    "session/request_permission": ({ options: [{ optionId }] }) => ({ outcome: { outcome: "selected", optionId } }),
  };
}

/** The side that calls the editor: a reciproc peer, or the SDK. */
interface Caller {
  request(method: string, params: object): Promise<unknown>;
  notify(method: string, params: object): unknown;
}

/** Answers a prompt in parts, and calls the editor meanwhile. */
async function answerInParts(caller: Caller, { prompt: [{ text: last }] }: any): Promise<object> {
  for (const text of ["you ", "said ", last]) {
    const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
    await caller.notify("session/update", { sessionId: "s-1", update });
  }
  const { content }: any = await caller.request("fs/read_text_file", { sessionId: "s-1", path: "/a.txt" });
  const options = [{ optionId: "once", name: "Allow", kind: "allow_once" }];
  const toolCall = { toolCallId: "t-1", title: "Edit" };
  const permission = { sessionId: "s-1", toolCall, options };
  const { outcome }: any = await caller.request("session/request_permission", permission);
  return { ...END, _meta: { content, permission: outcome.optionId } };
}

const IN_PARTS = ["you ", "said ", "hello", { ...END, _meta: { content: "what is in /a.txt", permission: "once" } }];

/** Collects the messages that the SDK does not understand, which it reports to the console. */
function listenToConsole(): unknown[] {
  const complaints: unknown[] = [];
  for (const level of ["error", "warn"] as const) {
    vi.spyOn(console, level).mockImplementation((...args) => void complaints.push(args));
  }
  return complaints;
}

async function joinEditor(app: ClientApp, methods: Methods, begin = true) {
  const both = await joinClient(acp, { ...AGENT, ...methods }, listenToConsole(), (url, Wire) =>
    app.connect(createWebSocketStream(url, { WebSocket: Wire as never })),
  );
  if (begin) await both.theirs.agent.request("initialize", INITIALIZE);
  return both;
}

async function joinAgent(app: AgentApp, methods: Methods = {}, options: NodeConnectOptions = {}): Promise<Joined> {
  const complaints = listenToConsole();
  const http = await bareHttp();
  const webSockets = new WebSocketServer({ noServer: true, WebSocket: TappedWebSocket });
  const agents = new AcpServer({ agent: app });
  http.server.on("upgrade", createNodeWebSocketUpgradeHandler(agents, webSockets));
  const peer: AnyPeer = await connect(`${http.url}/acp`, { link: "plain", dialect: acp, methods, ...options });
  const [wire] = webSockets.clients as Set<TappedWebSocket>;
  return joined(peer, wire!, agents, complaints, async () => {
    await agents.close();
    await http[Symbol.asyncDispose]();
  });
}

function answering(prompt: (context: any) => unknown = () => END): AgentApp {
  return agent()
    .onRequest("initialize", AGENT.initialize)
    .onRequest("session/new", AGENT["session/new"])
    .onRequest("session/prompt", prompt as () => typeof END);
}

async function inSession(app: AgentApp, methods: Methods = {}, options: NodeConnectOptions = {}): Promise<Joined> {
  const both = await joinAgent(app, methods, options);
  await both.peer.request("initialize", INITIALIZE);
  await both.peer.request("session/new", NEW_SESSION);
  return both;
}

function register(app: any, handlers: Handlers, heard: (params: unknown) => void): void {
  const any = (params: unknown): unknown => params;
  for (const [name, run] of Object.entries(handlers)) {
    app.onRequest(name, any, ({ params, signal }: any) => run(params, signal));
  }
  app.onNotification("_note", any, ({ params }: any) => heard(params));
}

/** The SDK's end behind the interface of the shared suite. */
function calling(end: any): Pick<Awaited<ReturnType<Traits["open"]>>, "request" | "notify"> {
  return {
    request: (method, params, cancellationSignal) =>
      end.request(method, params, { ...(cancellationSignal && { cancellationSignal }) }),
    notify: (method, params) => end.notify(method, params),
  };
}

const openEditor: Traits["open"] = async (methods, ...served) => {
  const app = client();
  register(app, ...served);
  const both = await joinEditor(app, methods);
  return { ...both, ...calling(both.theirs.agent), close: () => both.theirs.close() };
};

const openAgent: Traits["open"] = async (methods, ...served) => {
  let remote: unknown;
  const app = agent().onRequest("initialize", (context) => ((remote = context.client), AGENT.initialize()));
  register(app, ...served);
  const both = await joinAgent(app, methods);
  await both.peer.request("initialize", INITIALIZE);
  return { ...both, ...calling(remote), close: () => both.wire.close() };
};

describe.each<[string, Traits["open"], number]>([
  ["an editor of the ACP SDK", openEditor, 1],
  ["an agent of the ACP SDK", openAgent, 0],
])("%s", (_name, open, firstId) => {
  behavesWithSdk({
    open,
    firstId,
    cancel: (requestId) => ({ method: "$/cancel_request", params: { requestId } }),
    cancelled: -32800,
    error: (code, message, data) => new RequestError(code, message, data),
    closed: { message: "ACP connection closed" },
  });
});

describe("a reciproc agent", () => {
  it("answers a prompt in parts while it calls the SDK's editor, and reports progress that was asked for", async () => {
    const heard: unknown[] = [];
    const app = client();
    const any = (params: unknown): unknown => params;
    const { "session/update": update, ...requests } = editor((text) => heard.push(text));
    register(app, requests, () => {});
    app.onNotification("session/update", ({ params }) => void update!(params));
    app.onNotification("_reciproc/progress", any, ({ params }) => void heard.push(params));
    await using both = await joinEditor(app, {
      "session/prompt": (params, { peer, progress }) => {
        progress("half");
        return answerInParts(peer as Caller, params);
      },
    });
    const { agent: theirs } = both.theirs;
    await theirs.buildSession("/tmp").start();
    heard.push(await theirs.request("session/prompt", PROMPT));
    expect(heard.splice(0)).toEqual(IN_PARTS);
    heard.push(await theirs.request("session/prompt", { ...PROMPT, _meta: { "reciproc/progress": "p-1" } }));
    expect(heard).toEqual([{ token: "p-1", value: "half" }, ...IN_PARTS]);
  });

  it("answers a call that has id 0 and was cancelled before it was sent", async () => {
    const initialize: Methods[string] = async (_params, { signal }) => {
      await aborted(signal);
      throw signal.reason;
    };
    await using both = await joinEditor(client(), { initialize }, false);
    const options = { cancellationSignal: AbortSignal.abort(), stopWaitingOnCancel: true };
    const { agent: theirs } = both.theirs;
    const answer = rejection(theirs.request("initialize", INITIALIZE, options));
    expect(await answer).toMatchObject({ code: -32800 });
    await theirs.request("session/new", NEW_SESSION);
    expect(both.wire.sent[1]).toEqual({ jsonrpc: "2.0", method: "$/cancel_request", params: { requestId: 0 } });
    expect(answersTo(0, both.wire.received)).toMatchObject([{ error: { code: -32800 } }]);
  });
});

describe("a reciproc editor", () => {
  it("gets the answer to a prompt in parts while it serves the SDK's agent, which agrees to reciproc.v1 without knowing it", async () => {
    const heard: unknown[] = [];
    const app = answering(({ params, client: theirs }) => answerInParts(theirs, params));
    const methods = editor((text) => heard.push(text)) as Methods;
    await using both = await inSession(app, methods, { link: "packed" });
    expect(both.wire.protocol).toBe("reciproc.v1");
    heard.push(await both.peer.request("session/prompt", PROMPT));
    expect(heard).toEqual(IN_PARTS);
  });

  it("gets -32602 for invalid params, -32601 for unknown requests, and -32600 for a second initialize and a batch", async () => {
    await using both = await inSession(answering());
    for (const [method, params, code] of [
      ["session/prompt", { prompt: 5 }, -32602],
      ["_acme/none", {}, -32601],
      ["initialize", INITIALIZE, -32600],
    ] as const) {
      expect(await rejection(both.peer.request(method, params))).toMatchObject({ code });
    }
    expect(both.takeComplaints()).toEqual([[expect.anything(), "Initialize not allowed on existing connection"]]);
    const batch = both.peer.batch();
    const calls = [0, 1].map(() => rejection(batch.request("session/new", NEW_SESSION)));
    batch.send();
    expect(await Promise.all(calls)).toMatchObject([{ code: -32600 }, { code: -32600 }]);
  });

  it("asks for progress as the protocol allows it, and gets it", async () => {
    const app = answering(async ({ params, client: theirs }) => {
      const { _meta: meta } = params;
      await theirs.notify("_reciproc/progress", { token: meta["reciproc/progress"], value: "half" });
      return { ...END, _meta: { params } };
    });
    await using both = await inSession(app);
    const heard: unknown[] = [];
    const onProgress = (value: unknown): void => void heard.push(value);
    const params = { ...PROMPT, _meta: { mine: 1 } };
    const { _meta: sent } = (await both.peer.request("session/prompt", params, { onProgress })) as any;
    expect(sent.params).toEqual({ ...PROMPT, _meta: { mine: 1, "reciproc/progress": expect.any(Number) } });
    expect(heard).toEqual(["half"]);
  });

  it("is closed with 1002 when it does not begin with initialize", async () => {
    await using both = await joinAgent(answering());
    const answer = rejection(both.peer.request("session/new", NEW_SESSION));
    expect(await answer).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await both.peer.closed).toEqual({ code: 1002, reason: expect.stringContaining("initialize") });
    expect(both.takeComplaints()).toHaveLength(1);
  });

  it("drives an agent over stdio behind `reciproc bridge`", async () => {
    const path = fileURLToPath(new URL("stdio-agent.mjs", import.meta.url));
    const bridge = await beginListening(["bridge", "--framing", "lines", "--", process.execPath, path]);
    const heard: unknown[] = [];
    const methods = editor((text) => heard.push(text)) as Methods;
    await using peer: AnyPeer = await connect(bridge.url, { link: "plain", dialect: acp, methods });
    await peer.request("initialize", INITIALIZE);
    await peer.request("session/new", NEW_SESSION);
    expect(await peer.request("session/prompt", PROMPT)).toEqual(END);
    expect(heard).toEqual(["what is in /größe 🙂.txt"]);
    await peer.close();
    bridge.signal("SIGTERM");
    expect(await bridge.ended).toMatchObject({ code: 0, stderr: "" });
  });
});
