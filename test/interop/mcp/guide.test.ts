/** Proves that the examples of docs/guides/mcp.md run as they stand: the server with the SDK's client, the client with that server. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { CreateMessageRequestSchema, ListRootsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { gate, rejection } from "../../support/turns.js";
import { clean, extract, Running } from "../../readme/examples.js";

let server: Running;
let url: string;

beforeAll(async () => {
  await extract("docs/guides/mcp.md");
  server = new Running("mcp-server.js");
  url = (await server.line(/listening/)).replace("listening on ", "");
});
afterAll(async () => {
  await server.stop();
  await clean();
});

const ROOTS = ["file:///poems", "file:///engines"].map((uri) => ({ uri }));

interface SamplingParams {
  messages: { content: unknown }[];
}

/** Connects the SDK's client, which answers a sampling request with what `sample` makes of its text. */
async function connectSdk(sample: (text: string, signal: AbortSignal) => Promise<string> | string): Promise<Client> {
  globalThis.WebSocket = WebSocket as never;
  const client = new Client({ name: "sdk", version: "1" }, { capabilities: { roots: {}, sampling: {} } });
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: ROOTS }));
  client.setRequestHandler(CreateMessageRequestSchema, async ({ params }, { signal }) => {
    const { text } = (params as SamplingParams).messages[0]!.content as { text: string };
    return { model: "m", role: "assistant", content: { type: "text", text: await sample(text, signal) } };
  });
  await client.connect(new WebSocketClientTransport(new URL(url)));
  return client;
}

describe("the MCP guide", () => {
  it("has a server whose tool the SDK's client can list and call, and which calls the client", async () => {
    const client = await connectSdk((text) => text.toUpperCase());
    expect(client.getServerVersion()).toEqual({ name: "surveyor", version: "1.0.0" });
    expect(await client.ping()).toEqual({});
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["survey"]);
    const reports: unknown[] = [];
    const onprogress = (report: unknown): void => void reports.push(report);
    const { content } = await client.callTool({ name: "survey" }, undefined, { onprogress });
    expect(content).toEqual(ROOTS.map(({ uri }) => ({ type: "text", text: `WHAT IS IN ${uri.toUpperCase()}?` })));
    expect(reports).toEqual(ROOTS.map(({ uri }, progress) => ({ progress, total: 2, message: uri })));
    expect(await rejection(client.callTool({ name: "nope" }))).toMatchObject({ code: -32602 });
    await client.close();
  });

  it("has a tool that stops, and cancels its own call, when the SDK's client cancels", async () => {
    const asked = gate();
    const withdrawn = gate();
    const client = await connectSdk(async (text, signal) => {
      asked.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      withdrawn.resolve();
      return text;
    });
    const abort = new AbortController();
    const call = rejection(client.callTool({ name: "survey" }, undefined, { signal: abort.signal }));
    await asked.promise;
    abort.abort();
    await call;
    await withdrawn.promise;
    await client.close();
  });

  it("has a client that runs unchanged", async () => {
    const client = new Running("mcp-client.js");
    await client.exited;
    expect(client.lines).toEqual([
      "talking to surveyor",
      "0 of 2: file:///home/ada/poems",
      "1 of 2: file:///home/ada/engines",
      "file:///home/ada/poems is in file:///home/ada/poems.",
      "file:///home/ada/engines is in file:///home/ada/engines.",
    ]);
  });
});
