/** Proves that a reciproc agent serves the Agent Client Protocol's own client, as an editor runs it, over a WebSocket. */
import { client, RequestError, type ClientApp } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import { RpcError, type AnyPeer, type Context } from "../../../src/node.js";
import { gate, rejection } from "../../support/turns.js";
import { theirClient, type Joined } from "./joined.js";

const INITIALIZE = { protocolVersion: 1, clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } } };

/** The methods of every agent, with a handler for prompts. */
function agent(prompt: (params: any, context: Context) => unknown, more: object = {}): object {
  return {
    initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }),
    "session/new": () => ({ sessionId: "s-1" }),
    "session/prompt": prompt,
    ...more,
  };
}

/** Sends a part of the answer to the client. */
function say(peer: AnyPeer, text: string): void {
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
  peer.notify("session/update", { sessionId: "s-1", update });
}

/** Returns the SDK's client with a started session. */
async function inSession(app: ClientApp, prompt: (params: any, context: Context) => unknown, more: object = {}) {
  const both = await theirClient(app, agent(prompt, more) as never);
  await both.theirs.agent.request("initialize", INITIALIZE);
  const session = await both.theirs.agent.buildSession("/tmp").start();
  return { both, session, agent: both.theirs.agent };
}

const prompt = { sessionId: "s-1", prompt: [{ type: "text" as const, text: "hello" }] };

/** Returns the messages of the agent with this id. */
function answersTo(both: Joined, id: unknown): unknown[] {
  return both.wire.received.filter((message) => message.id === id && !("method" in message));
}

describe("a reciproc agent", () => {
  it("is initialized, begins a session, and answers a prompt piece by piece", async () => {
    const seen: unknown[] = [];
    const app = client().onNotification("session/update", ({ params }) => void seen.push(params.update));
    const { both, agent: remote } = await inSession(app, ({ prompt: [{ text }] }, { peer }) => {
      for (const piece of ["you ", "said ", text]) say(peer, piece);
      return { stopReason: "end_turn" };
    });
    await using _ = both;
    expect(await remote.request("session/prompt", prompt)).toEqual({ stopReason: "end_turn" });
    expect(seen).toMatchObject([
      { content: { text: "you " } },
      { content: { text: "said " } },
      { content: { text: "hello" } },
    ]);
    expect(both.wire.sent.map(({ id }) => id)).toEqual([0, 1, 2]);
  });

  it("reads a file of the client and asks for its permission, while the prompt is pending", async () => {
    const app = client()
      .onRequest("fs/read_text_file", ({ params }) => ({ content: `what is in ${params.path}` }))
      .onRequest("session/request_permission", ({ params }) => ({
        outcome: { outcome: "selected", optionId: params.options[0]!.optionId },
      }));
    const { both, agent: remote } = await inSession(app, async ({ sessionId }, { peer }) => {
      const file = await peer.request("fs/read_text_file", { sessionId, path: "/a.txt" });
      const options = [{ optionId: "once", name: "Allow", kind: "allow_once" }];
      const toolCall = { toolCallId: "t-1", title: "Edit" };
      const permission = await peer.request("session/request_permission", { sessionId, toolCall, options });
      return { stopReason: "end_turn", _meta: { file, permission } };
    });
    await using _ = both;
    expect(await remote.request("session/prompt", prompt)).toEqual({
      stopReason: "end_turn",
      _meta: {
        file: { content: "what is in /a.txt" },
        permission: { outcome: { outcome: "selected", optionId: "once" } },
      },
    });
  });

  it("is stopped by session/cancel, and its prompt answers that it was", async () => {
    const turns = new Map<string, () => void>();
    const started = gate();
    const { both, agent: remote } = await inSession(
      client(),
      ({ sessionId }) =>
        new Promise((resolve) => {
          turns.set(sessionId, () => resolve({ stopReason: "cancelled" }));
          started.resolve();
        }),
      { "session/cancel": ({ sessionId }: { sessionId: string }) => turns.get(sessionId)!() },
    );
    await using _ = both;
    const answer = remote.request("session/prompt", prompt);
    await started.promise;
    await remote.notify("session/cancel", { sessionId: "s-1" });
    expect(await answer).toEqual({ stopReason: "cancelled" });
  });

  describe("whose call is cancelled by $/cancel_request", () => {
    it("ends by its signal, and the answer is -32800, once", async () => {
      const started = gate();
      const { both, agent: remote } = await inSession(client(), async (_params, { signal, peer }) => {
        started.resolve();
        return peer.request("fs/read_text_file", { sessionId: "s-1", path: "/a" }, { signal });
      });
      await using _ = both;
      const controller = new AbortController();
      const answer = rejection(remote.request("session/prompt", prompt, { cancellationSignal: controller.signal }));
      await started.promise;
      controller.abort();
      const error = await answer;
      expect(error).toBeInstanceOf(RequestError);
      expect(error).toMatchObject({ code: -32800 });
      expect(answersTo(both, 2)).toHaveLength(1);
    });

    it("may still answer with a result", async () => {
      const started = gate();
      const { both, agent: remote } = await inSession(client(), (_params, { signal }) => {
        started.resolve();
        return new Promise((resolve) => {
          signal.addEventListener("abort", () => resolve({ stopReason: "cancelled" }));
        });
      });
      await using _ = both;
      const controller = new AbortController();
      const answer = remote.request("session/prompt", prompt, { cancellationSignal: controller.signal });
      await started.promise;
      controller.abort();
      expect(await answer).toEqual({ stopReason: "cancelled" });
      expect(answersTo(both, 2)).toHaveLength(1);
    });

    it("answers calls that were cancelled before they started or that have id 0", async () => {
      const both = await theirClient(
        client(),
        agent(() => {}, {
          initialize: (_params: unknown, { signal }: Context) =>
            new Promise((_resolve, reject) => {
              signal.addEventListener("abort", () => reject(signal.reason as Error));
            }),
        }) as never,
      );
      await using _ = both;
      const options = { cancellationSignal: AbortSignal.abort(), stopWaitingOnCancel: true };
      const answer = rejection(both.theirs.agent.request("initialize", INITIALIZE, options));
      expect(await answer).toMatchObject({ code: -32800 });
      await both.theirs.agent.request("session/new", { cwd: "/", mcpServers: [] });
      expect(both.wire.sent[1]).toEqual({ jsonrpc: "2.0", method: "$/cancel_request", params: { requestId: 0 } });
      expect(answersTo(both, 0)).toMatchObject([{ error: { code: -32800 } }]);
    });
  });

  describe("that aborts a call of its own", () => {
    it("cancels it at the client, and ignores its answer", async () => {
      const [asked, told] = [gate(), gate()];
      const app = client().onRequest("session/request_permission", ({ signal }) => {
        asked.resolve();
        return new Promise((_resolve, reject) => {
          signal.addEventListener("abort", () => {
            told.resolve();
            reject(new DOMException("stop", "AbortError"));
          });
        });
      });
      const { both, agent: remote } = await inSession(app, async ({ sessionId }, { peer }) => {
        const controller = new AbortController();
        const params = { sessionId, toolCall: { toolCallId: "t-1", title: "Edit" }, options: [] };
        const answer = rejection(peer.request("session/request_permission", params, { signal: controller.signal }));
        await asked.promise;
        controller.abort("changed my mind");
        const reason: unknown = await answer;
        await told.promise;
        return { stopReason: "end_turn", _meta: { reason } };
      });
      await using _ = both;
      expect(await remote.request("session/prompt", prompt)).toMatchObject({ _meta: { reason: "changed my mind" } });
      expect(both.wire.received).toContainEqual({
        jsonrpc: "2.0",
        method: "$/cancel_request",
        params: { requestId: 1 },
      });
      expect(both.wire.sent.filter((message) => message.id === 1 && "error" in message)).toMatchObject([
        { error: { code: -32800 } },
      ]);
    });
  });

  it("sends errors with code, message and data, and receives those of the SDK", async () => {
    const app = client().onRequest("fs/read_text_file", ({ params }) => {
      throw RequestError.resourceNotFound(params.path);
    });
    const { both, agent: remote } = await inSession(app, async (_params, { peer }) => {
      const error = await rejection(peer.request("fs/read_text_file", { sessionId: "s-1", path: "/none" }));
      throw new RpcError(-32000, "Authentication required", { because: [error.code, error.data] });
    });
    await using _ = both;
    expect(await rejection(remote.request("session/prompt", prompt))).toMatchObject({
      code: -32000,
      message: "Authentication required",
      data: { because: [-32002, { uri: "/none" }] },
    });
    expect(await rejection(remote.request("_acme/none", {}))).toMatchObject({ code: -32601 });
  });

  it("answers invalid params with -32602 without details, and ignores unknown notifications", async () => {
    const app = client().onRequest("fs/read_text_file", () => ({ content: "never" }));
    const { both, agent: remote } = await inSession(app, async (_params, { peer }) => {
      peer.notify("$/hint", { a: 1 });
      peer.notify("_acme/hint");
      const errors = [
        await rejection(peer.request("fs/read_text_file", { path: 5 })),
        await rejection(peer.request("terminal/create", { sessionId: "s-1", command: "ls" })),
        await rejection(peer.request("$/ask")),
      ];
      return { stopReason: "end_turn", _meta: { codes: errors.map(({ code }) => code) } };
    });
    await using _ = both;
    expect(await remote.request("session/prompt", prompt)).toMatchObject({
      _meta: { codes: [-32602, -32601, -32601] },
    });
  });

  it("loses no session update, even if many arrive at once", async () => {
    const pieces = Array.from({ length: 200 }, (_, i) => `${i} `);
    const { both, session } = await inSession(client(), (_params, { peer }) => {
      for (const piece of pieces) say(peer, piece);
      return { stopReason: "end_turn" };
    });
    await using _ = both;
    const answer = session.prompt("go");
    expect(await session.readText()).toBe(pieces.join(""));
    expect(await answer).toEqual({ stopReason: "end_turn" });
    session.dispose();
  });

  it("reports progress to a client that asked for it by `_meta`, and to no other", async () => {
    const heard: unknown[] = [];
    const app = client().onNotification(
      "_reciproc/progress",
      (params) => params,
      ({ params }) => void heard.push(params),
    );
    const { both, agent: remote } = await inSession(app, (_params, { progress }) => {
      progress("half");
      return { stopReason: "end_turn" };
    });
    await using _ = both;
    await remote.request("session/prompt", { ...prompt, _meta: { "reciproc/progress": "p-1" } });
    await remote.request("session/prompt", prompt);
    expect(heard).toEqual([{ token: "p-1", value: "half" }]);
  });

  it("settles the calls of both sides when either closes", async () => {
    const [asked, lost] = [gate(), gate<any>()];
    const app = client().onRequest("fs/read_text_file", () => (asked.resolve(), new Promise(() => {})));
    const { both, agent: remote } = await inSession(app, async (_params, { peer }) => {
      lost.resolve(await rejection(peer.request("fs/read_text_file", { sessionId: "s-1", path: "/a" })));
    });
    await using _ = both;
    const answer = rejection(remote.request("session/prompt", prompt));
    await asked.promise;
    await both.peer.close();
    expect(await lost.promise).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await answer).toMatchObject({ message: "ACP connection closed" });
    await both.theirs.closed;
  });

  it("aborts its handlers' signals when the client closes", async () => {
    const [started, aborted] = [gate(), gate()];
    const { both, agent: remote } = await inSession(client(), (_params, { signal }) => {
      started.resolve();
      return new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => {
          aborted.resolve();
          reject(signal.reason as Error);
        });
      });
    });
    await using _ = both;
    const answer = rejection(remote.request("session/prompt", prompt));
    await started.promise;
    both.theirs.close();
    await aborted.promise;
    expect(await answer).toMatchObject({ message: "ACP connection closed" });
  });
});
