/** Proves that language servers over stdio, behind `reciproc bridge`, serve a reciproc editor as they serve VS Code. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { toSocket } from "vscode-ws-jsonrpc";
import { createServerProcess, createWebSocketConnection, forward } from "vscode-ws-jsonrpc/server";
import { WebSocketServer } from "ws";
import { lsp, type AnyPeer } from "../../../src/node.js";
import { connect } from "../../support/connect.js";
import { beginListening, MAIN } from "../../cli/program.js";
import { clean, examplesOf, extract, Running } from "../../readme/examples.js";
import { bareHttp } from "../../support/network.js";
import { expectEmpty } from "../../support/pair.js";
import { rejection } from "../../support/turns.js";
import { Inbox } from "../../support/inbox.js";
import type { Methods } from "../support/sdk.js";

function commandOf(language: string): string[] {
  const path = `node_modules/vscode-langservers-extracted/bin/vscode-${language}-language-server`;
  return [process.execPath, join(import.meta.dirname, "..", path), "--stdio"];
}

async function ourBridge(command: readonly string[]) {
  const { url, ended, signal } = await beginListening(["bridge", "--", ...command]);
  const stop = async (): Promise<string> => {
    signal("SIGTERM");
    const { code, stderr } = await ended;
    expect(code).toBe(0);
    return stderr;
  };
  return { url, stop };
}

/** The usual bridge to language servers: vscode-ws-jsonrpc. */
async function theirBridge([program, ...args]: readonly string[]): ReturnType<typeof ourBridge> {
  const http = await bareHttp();
  new WebSocketServer({ server: http.server }).on("connection", (webSocket) => {
    const client = createWebSocketConnection(toSocket(webSocket as never));
    forward(client, createServerProcess("language server", program!, args)!);
  });
  return { url: http.url, stop: async () => (await http[Symbol.asyncDispose](), "") };
}

/** Starts a server behind a bridge, and initializes it by a reciproc editor. Disposing ends both: no state and no error is left. */
async function openEditor(
  language: "css" | "json",
  methods: Methods = {},
  maxMessageBytes = 2 ** 20,
  bridge = ourBridge,
) {
  const { url, stop } = await bridge(commandOf(language));
  /** The server's requests to the editor, in order: method, id and params. */
  const asked: unknown[][] = [];
  const published = new Inbox();
  const peer: AnyPeer = await connect(url, {
    // An offer of reciproc.v1 would start the server twice, because the bridge agrees to no protocol and `ws` then fails.
    link: "plain",
    dialect: lsp,
    limits: { maxMessageBytes },
    around: ({ direction, method, id, params }, next) => {
      if (direction === "incoming" && id !== undefined) asked.push([method, id, params]);
      return next();
    },
    methods: { "textDocument/publishDiagnostics": published.push as Methods[string], ...methods },
  });
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  const textDocument = {
    publishDiagnostics: {},
    hover: { contentFormat: ["markdown", "plaintext"] },
    completion: { completionItem: { snippetSupport: true, documentationFormat: ["markdown", "plaintext"] } },
  };
  const { capabilities } = (await peer.request("initialize", {
    processId: null,
    rootUri: null,
    workspaceFolders: null,
    initializationOptions: { handledSchemaProtocols: [] },
    capabilities: { workspace: { configuration: true }, textDocument },
  })) as { capabilities: object };
  peer.notify("initialized", {});
  return {
    peer,
    capabilities,
    asked,
    published,
    /** Opens a document. Returns params for the position of "|" in its text, which is removed. */
    open(uri: string, marked: string) {
      const [before, ...after] = marked.split("|");
      const lines = before!.split("\n");
      const document = { uri, languageId: language, version: 1, text: [before, ...after].join("") };
      peer.notify("textDocument/didOpen", { textDocument: document });
      return { textDocument: { uri }, position: { line: lines.length - 1, character: lines.at(-1)!.length } };
    },
    stop,
    async [Symbol.asyncDispose]() {
      await peer.close();
      expect(await stop()).toBe("");
      expectEmpty(peer);
      expect(errors).toEqual([]);
    },
  };
}

async function labelsAt(peer: AnyPeer, at: object): Promise<string[]> {
  const { items } = (await peer.request("textDocument/completion", at)) as { items: { label: string }[] };
  return items.map(({ label }) => label);
}

describe("a CSS server", () => {
  const [A, B, LATER] = ["file:///a.css", "file:///b.css", "file:///later.css"];
  const EMPTY = ".empty {}\n";
  const settings: Methods[string] = ({ items }) => items.map(() => ({ lint: { emptyRules: "error" } }));

  it.each([
    ["reciproc bridge", ourBridge, 1000],
    // It closes without a code.
    ["vscode-ws-jsonrpc", theirBridge, 1005],
  ])("behind %s requests its settings, publishes, completes, explains, and is shut down", async (_, bridge, code) => {
    await using editor = await openEditor("css", { "workspace/configuration": settings }, undefined, bridge);
    const { peer } = editor;
    expect(editor.capabilities).toMatchObject({ hoverProvider: true, completionProvider: {} });
    const at = editor.open(A, `/* 🙂 */ b { color: |red }\n${EMPTY}`);
    const problem = { code: "emptyRules", severity: 1, range: { start: { line: 1 } } };
    expect(await editor.published.next()).toMatchObject({ uri: A, diagnostics: [problem] });
    expect(editor.asked).toEqual([["workspace/configuration", 0, { items: [{ scopeUri: A, section: "css" }] }]]);
    expect(await labelsAt(peer, at)).toContain("rebeccapurple");
    const hover = { contents: { value: expect.stringContaining("color") } };
    expect(await peer.request("textDocument/hover", at)).toMatchObject(hover);
    expect(await peer.request("shutdown")).toBe(null);
    peer.notify("exit");
    expect(await peer.closed).toMatchObject({ code });
  });

  it("that gets null for its settings fails, and publishes nothing", async () => {
    const logged = new Inbox<{ message: string }>();
    await using editor = await openEditor("css", {
      "workspace/configuration": ({ items }) => items.map(() => null),
      "window/logMessage": logged.push as Methods[string],
    });
    editor.open(A, EMPTY);
    expect((await logged.next()).message).toContain(`Error while validating ${A}`);
    expect(editor.published.all).toEqual([]);
  });

  it("never checks a change that comes while it waits for its settings, and checks those after a hover", async () => {
    const change = (uri: string, rules: number): boolean =>
      editor.peer.notify("textDocument/didChange", {
        textDocument: { uri, version: rules },
        contentChanges: [{ text: EMPTY.repeat(rules) }],
      });
    let isFirst = true;
    const configure: Methods[string] = (params, context) => {
      if (isFirst) {
        isFirst = false;
        change(A, 2);
        // The server checks each text by a timer of the same duration, so it would check the change before this text.
        editor.open(LATER, EMPTY);
      }
      return settings(params, context);
    };
    await using editor = await openEditor("css", { "workspace/configuration": configure });
    editor.open(A, EMPTY);
    expect(await editor.published.next()).toMatchObject({ uri: LATER, diagnostics: [{}] });
    change(A, 3);
    expect(await editor.published.next()).toMatchObject({ uri: A, diagnostics: [{}, {}, {}] });
    await editor.peer.request("textDocument/hover", editor.open(B, EMPTY));
    change(B, 2);
    expect(await editor.published.next()).toMatchObject({ uri: B, diagnostics: [{}, {}] });
  });
});

describe("a JSON server", () => {
  it("requests a schema by a single positional param, and completes, explains and validates by it", async () => {
    const description = "the port, groß 🙂";
    const schema = { properties: { port: { type: "number", description }, host: { type: "string" } } };
    await using editor = await openEditor("json", { "vscode/content": ([_uri]) => JSON.stringify(schema) });
    const schemas = [{ fileMatch: ["*.json"], url: "made-up://schema" }];
    const json = { validate: { enable: true }, schemas };
    editor.peer.notify("workspace/didChangeConfiguration", { settings: { json } });
    const at = editor.open("file:///a.json", '{\n  "größe 🙂": 1,\n  "po|rt": "eighty"\n}');
    expect(await editor.published.next()).toMatchObject({
      diagnostics: [{ message: 'Incorrect type. Expected "number".', range: { start: { line: 2, character: 10 } } }],
    });
    expect(editor.asked).toEqual([["vscode/content", 0, ["made-up://schema"]]]);
    expect(await labelsAt(editor.peer, at)).toEqual(["port", "host"]);
    expect(await editor.peer.request("textDocument/hover", at)).toMatchObject({ contents: [description] });
  });

  it("may send more than 1 MiB if `maxMessageBytes` allows it, and is otherwise closed with 1009", async () => {
    const text = JSON.stringify(Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`größe${i}`, i])));
    await using roomy = await openEditor("json", {}, 16 * 2 ** 20);
    const { textDocument } = roomy.open("file:///big.json", text);
    const symbols = (await roomy.peer.request("textDocument/documentSymbol", { textDocument })) as object[];
    expect(JSON.stringify(symbols).length).toBeGreaterThan(2 ** 20);
    expect(symbols).toHaveLength(10_000);
    expect(symbols[9_999]).toMatchObject({ name: "größe9999" });

    const narrow = await openEditor("json");
    narrow.open("file:///big.json", text);
    const error = await rejection(narrow.peer.request("textDocument/documentSymbol", { textDocument }));
    expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await narrow.peer.closed).toMatchObject({ code: 1009 });
    expect(await narrow.stop()).toContain("1009");
  });
});

it("the client of docs/CLI.md validates a text by a language server behind the page's command", async () => {
  const page = await readFile("docs/CLI.md", "utf8");
  const [, args, printed] = /^\$ reciproc (bridge .*) -- npx vscode-json-language-server --stdio\n(.*)$/m.exec(page)!;
  const bridge = new Running(MAIN, [...args!.split(" "), "--", ...commandOf("json")]);
  expect(await bridge.line(/./)).toBe(printed);
  const example = (await examplesOf("docs/CLI.md")).find(({ name }) => name === "json-client.js")!;
  await extract("docs/CLI.md");
  const client = new Running(example.name);
  await client.exited;
  expect(client.lines).toEqual(example.output);
  await bridge.stop("SIGINT");
  await clean();
});
