/** Runs examples/mcp-server with the client of MCP's SDK, and with its own client. */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import { ElicitRequestSchema, ResourceListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { join } from "node:path";
import { Running } from "../../readme/examples.js";
import { gate, rejection } from "../../support/turns.js";

const EXAMPLE = join(import.meta.dirname, "../../../examples/mcp-server");
let server: Running;
let url: string;

beforeAll(async () => {
  server = new Running(join(EXAMPLE, "server.js"), [], { PORT: "0" });
  url = (await server.line(/^notes: /)).replace("notes: ", "");
});
afterAll(() => server.stop());

/** Connects the SDK's client. With `answer`, it can ask its user, who answers so. */
async function connectSdk(answer?: (message: string) => "accept" | "decline"): Promise<Client> {
  globalThis.WebSocket = WebSocket as never;
  const capabilities = answer === undefined ? {} : { elicitation: {} };
  const client = new Client({ name: "sdk", version: "1" }, { capabilities });
  if (answer !== undefined)
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({ action: answer(params.message) }));
  await client.connect(new WebSocketClientTransport(new URL(url)));
  return client;
}

async function call(client: Client, name: string, args: Record<string, unknown>): Promise<unknown[]> {
  const { content, isError } = await client.callTool({ name, arguments: args });
  return [(content as { text: string }[])[0]!.text, ...(isError === true ? ["failed"] : [])];
}

describe("the example mcp-server", () => {
  it("serves tools and resources to the SDK's client, and reports changes of the list", async () => {
    const client = await connectSdk();
    const changed = gate();
    client.setNotificationHandler(ResourceListChangedNotificationSchema, () => changed.resolve());
    expect((await client.listTools()).tools.map(({ name }) => name)).toEqual(["add_note", "find_notes", "delete_note"]);
    expect(await call(client, "add_note", { text: "Buy milk" })).toEqual(["The note has the id 2."]);
    await changed.promise;
    expect(await call(client, "find_notes", { text: "milk" })).toEqual(["2: Buy milk"]);
    const { resources } = await client.listResources();
    expect(resources.map(({ uri }) => uri)).toEqual(["note:///1", "note:///2"]);
    const { contents } = await client.readResource({ uri: "note:///2" });
    expect(contents).toEqual([{ uri: "note:///2", mimeType: "text/plain", text: "Buy milk" }]);
    await client.close();
  });

  it("says to the model what is wrong with a call, and to the client what is wrong with a method", async () => {
    const client = await connectSdk();
    expect(await call(client, "find_notes", {})).toEqual(['"text" must be a string.', "failed"]);
    expect(await call(client, "delete_note", { id: "9" })).toEqual(["There is no note 9.", "failed"]);
    expect(await call(client, "delete_note", { id: "1" })).toEqual(["This client cannot ask its user.", "failed"]);
    expect(await rejection(client.callTool({ name: "toString" }))).toMatchObject({ code: -32602 });
    expect(await rejection(client.readResource({ uri: "note:///9" }))).toMatchObject({ code: -32002 });
    await client.close();
  });

  it("asks the user of the SDK's client before it deletes a note", async () => {
    const asked: string[] = [];
    const client = await connectSdk((message) => (asked.push(message), asked.length === 1 ? "decline" : "accept"));
    expect(await call(client, "delete_note", { id: "2" })).toEqual(["The user wants to keep the note."]);
    expect(await call(client, "delete_note", { id: "2" })).toEqual(["The note is deleted."]);
    expect(asked).toEqual(['Delete "Buy milk"?', 'Delete "Buy milk"?']);
    expect(await call(client, "find_notes", { text: "milk" })).toEqual(["No note contains this text."]);
    await client.close();
  });

  it("works with its own client, as its README shows", async () => {
    const run = async (args: string[], answer?: string): Promise<string[]> => {
      const client = new Running(join(EXAMPLE, "client.js"), [...args, url]);
      if (answer !== undefined) client.say(answer);
      await client.exited;
      expect(client.errors).toBe("");
      return client.lines;
    };
    expect(await run(["add_note", "Buy milk"])).toEqual(["The note has the id 3."]);
    expect(await run(["find_notes", "milk"])).toEqual(["3: Buy milk"]);
    expect((await run(["delete_note", "3"], "n")).join()).toMatch(
      /^Delete "Buy milk"\? .*The user wants to keep the note\.$/,
    );
    expect((await run(["delete_note", "3"], "y")).join()).toMatch(/^Delete "Buy milk"\? .*The note is deleted\.$/);
  });

  it("reports no error", () => expect(server.errors).toBe(""));
});
