/** Proves that a reciproc agent serves the Agent Client Protocol's own client, as an editor runs it, over a WebSocket. */
import { client, type ClientApp } from "@agentclientprotocol/sdk";
import { describe, expect, it } from "vitest";
import type { AnyPeer, Context } from "../../../src/node.js";
import { rejection } from "../../support/turns.js";
import { aborted, answersTo, behavesWithSdk, type Methods, type Sdk } from "../support/sdk.js";
import { INITIALIZE, joinClient, PROMPT, register, TRAITS } from "./joined.js";

/** The methods of every agent. */
const AGENT: Methods = {
  initialize: () => ({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] }),
  "session/new": () => ({ sessionId: "s-1" }),
};

/** Sends a part of the answer to the client. */
function say(peer: AnyPeer, text: string): void {
  const update = { sessionUpdate: "agent_message_chunk", content: { type: "text", text } };
  peer.notify("session/update", { sessionId: "s-1", update });
}

/** Returns the SDK's client with a started session. */
async function inSession(app: ClientApp, prompt: (params: any, context: Context) => unknown) {
  const both = await joinClient(app, { ...AGENT, "session/prompt": prompt as never });
  const { agent } = both.theirs;
  await agent.request("initialize", INITIALIZE);
  await agent.buildSession("/tmp").start();
  return { both, agent };
}

/** Opens both ends for the shared suite. */
async function open(methods: Methods, ...served: [handlers: any, heard: any]): Promise<Sdk> {
  const app = client();
  register(app, ...served);
  const both = await joinClient(app, { ...AGENT, ...methods });
  const { agent } = both.theirs;
  await agent.request("initialize", INITIALIZE);
  return {
    ...both,
    request: (method, params, cancellationSignal) =>
      agent.request(method, params, { ...(cancellationSignal && { cancellationSignal }) }),
    notify: (method, params) => agent.notify(method, params),
    close: () => both.theirs.close(),
  };
}

describe("a reciproc agent", () => {
  behavesWithSdk({ open, firstId: 1, ...TRAITS });

  it("begins a session and answers a prompt piece by piece, while it calls the client", async () => {
    const seen: unknown[] = [];
    const app = client()
      .onNotification("session/update", ({ params }) => void seen.push(params.update))
      .onRequest("fs/read_text_file", ({ params }) => ({ content: `what is in ${params.path}` }))
      .onRequest("session/request_permission", ({ params }) => ({
        outcome: { outcome: "selected", optionId: params.options[0]!.optionId },
      }));
    const { both, agent } = await inSession(app, async ({ sessionId, prompt: [{ text }] }, { peer }) => {
      for (const piece of ["you ", "said ", text]) say(peer, piece);
      const file = await peer.request("fs/read_text_file", { sessionId, path: "/a.txt" });
      const options = [{ optionId: "once", name: "Allow", kind: "allow_once" }];
      const toolCall = { toolCallId: "t-1", title: "Edit" };
      const permission = await peer.request("session/request_permission", { sessionId, toolCall, options });
      return { stopReason: "end_turn", _meta: { file, permission } };
    });
    await using _ = both;
    expect(await agent.request("session/prompt", PROMPT)).toEqual({
      stopReason: "end_turn",
      _meta: {
        file: { content: "what is in /a.txt" },
        permission: { outcome: { outcome: "selected", optionId: "once" } },
      },
    });
    expect(seen).toMatchObject(["you ", "said ", "hello"].map((text) => ({ content: { text } })));
    expect(both.wire.sent.flatMap(({ id, method }) => (method === undefined ? [] : [id]))).toEqual([0, 1, 2]);
  });

  it("answers calls that were cancelled before they started or that have id 0", async () => {
    const both = await joinClient(client(), {
      ...AGENT,
      initialize: async (_params, { signal }) => {
        await aborted(signal);
        throw signal.reason;
      },
    });
    await using _ = both;
    const options = { cancellationSignal: AbortSignal.abort(), stopWaitingOnCancel: true };
    const answer = rejection(both.theirs.agent.request("initialize", INITIALIZE, options));
    expect(await answer).toMatchObject({ code: -32800 });
    await both.theirs.agent.request("session/new", { cwd: "/", mcpServers: [] });
    expect(both.wire.sent[1]).toEqual({ jsonrpc: "2.0", method: "$/cancel_request", params: { requestId: 0 } });
    expect(answersTo(0, both.wire.received)).toMatchObject([{ error: { code: -32800 } }]);
  });

  it("reports progress to a client that asked for it by `_meta`, and to no other", async () => {
    const heard: unknown[] = [];
    const app = client().onNotification(
      "_reciproc/progress",
      (params) => params,
      ({ params }) => void heard.push(params),
    );
    const { both, agent } = await inSession(app, (_params, { progress }) => {
      progress("half");
      return { stopReason: "end_turn" };
    });
    await using _ = both;
    await agent.request("session/prompt", { ...PROMPT, _meta: { "reciproc/progress": "p-1" } });
    await agent.request("session/prompt", PROMPT);
    expect(heard).toEqual([{ token: "p-1", value: "half" }]);
  });
});
