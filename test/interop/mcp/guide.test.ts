/** The examples of docs/guides/mcp.md, and examples/mcp-server: their servers with the SDK's client, and their clients. */
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  ResourceListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { join } from "node:path";
import { clean, extract, Running } from "../../readme/examples.js";
import { gate, rejection } from "../../support/turns.js";
import { connectClient } from "./sdk.js";

describe("the MCP guide", () => {
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

  /** Connects the SDK's client, which answers a sampling request with what `sample` makes of its text. */
  function connectSdk(sample: (text: string, signal: AbortSignal) => Promise<string> | string): Promise<Client> {
    return connectClient(url, { roots: {}, sampling: {} }, WebSocket, (client) => {
      client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: ROOTS }));
      client.setRequestHandler(CreateMessageRequestSchema, async ({ params }, { signal }) => {
        const { text } = params.messages[0]!.content as { text: string };
        return { model: "m", role: "assistant", content: { type: "text", text: await sample(text, signal) } };
      });
    });
  }

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
    const [asked, stopped] = [gate(), gate()];
    const client = await connectSdk(async (text, signal) => {
      asked.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      stopped.resolve();
      return text;
    });
    const abort = new AbortController();
    const call = rejection(client.callTool({ name: "survey" }, undefined, { signal: abort.signal }));
    await asked.promise;
    abort.abort();
    await call;
    await stopped.promise;
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

describe("the example mcp-server", () => {
  const EXAMPLE = join(import.meta.dirname, "../../../examples/mcp-server");
  let server: Running;
  let url: string;
  beforeAll(async () => {
    server = new Running(join(EXAMPLE, "server.js"), [], { PORT: "0" });
    url = (await server.line(/^notes: /)).replace("notes: ", "");
  });
  afterAll(async () => {
    await server.stop();
    expect(server.errors).toBe("");
  });

  async function call(client: Client, name: string, args: Record<string, unknown>): Promise<unknown[]> {
    const { content, isError } = await client.callTool({ name, arguments: args });
    return [(content as { text: string }[])[0]!.text, ...(isError === true ? ["failed"] : [])];
  }

  it("serves tools and resources to the SDK's client, and reports changes of the list and what is wrong with a call", async () => {
    const changed = gate();
    const client = await connectClient(url, {}, WebSocket);
    client.setNotificationHandler(ResourceListChangedNotificationSchema, () => changed.resolve());
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["add_note", "find_notes", "delete_note"]);
    expect(await call(client, "add_note", { text: "Buy milk" })).toEqual(["The note has the id 2."]);
    await changed.promise;
    expect(await call(client, "find_notes", { text: "milk" })).toEqual(["2: Buy milk"]);
    const { resources } = await client.listResources();
    expect(resources.map(({ uri }) => uri)).toEqual(["note:///1", "note:///2"]);
    const { contents } = await client.readResource({ uri: "note:///2" });
    expect(contents).toEqual([{ uri: "note:///2", mimeType: "text/plain", text: "Buy milk" }]);
    expect(await call(client, "find_notes", {})).toEqual(['"text" must be a string.', "failed"]);
    expect(await call(client, "delete_note", { id: "9" })).toEqual(["There is no note 9.", "failed"]);
    expect(await call(client, "delete_note", { id: "1" })).toEqual(["This client cannot ask its user.", "failed"]);
    expect(await rejection(client.callTool({ name: "toString" }))).toMatchObject({ code: -32602 });
    expect(await rejection(client.readResource({ uri: "note:///9" }))).toMatchObject({ code: -32002 });
    await client.close();
  });

  it("asks the user of the SDK's client before it deletes a note", async () => {
    const asked: string[] = [];
    const client = await connectClient(url, { elicitation: {} }, WebSocket, (sdk) =>
      sdk.setRequestHandler(ElicitRequestSchema, ({ params: { message } }) => ({
        action: asked.push(message) === 1 ? "decline" : "accept",
      })),
    );
    expect(await call(client, "delete_note", { id: "2" })).toEqual(["The user wants to keep the note."]);
    expect(await call(client, "delete_note", { id: "2" })).toEqual(["The note is deleted."]);
    expect(asked).toEqual(['Delete "Buy milk"?', 'Delete "Buy milk"?']);
    expect(await call(client, "find_notes", { text: "milk" })).toEqual(["No note contains this text."]);
    await client.close();
  });

  it.each([
    [["add_note", "Buy milk"], "", /^The note has the id 3\.$/],
    [["find_notes", "milk"], "", /^3: Buy milk$/],
    [["delete_note", "3"], "n", /^Delete "Buy milk"\? .*The user wants to keep the note\.$/],
    [["delete_note", "3"], "y", /^Delete "Buy milk"\? .*The note is deleted\.$/],
  ])("has a client that works as its README shows: %j, answered with %j", async (args, answer, printed) => {
    const client = new Running(join(EXAMPLE, "client.js"), [...args, url]);
    if (answer !== "") client.say(answer);
    await client.exited;
    expect(client.errors).toBe("");
    expect(client.lines.join()).toMatch(printed);
  });
});
