/** A reciproc editor, connected to a real language server behind the real `reciproc bridge`. */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { toSocket } from "vscode-ws-jsonrpc";
import { createServerProcess, createWebSocketConnection, forward } from "vscode-ws-jsonrpc/server";
import { WebSocketServer } from "ws";
import { connect, lsp, type AnyMethods, type CloseInfo, type Peer } from "../../../src/node.js";
import { start } from "../../cli/program.js";
import { expectEmpty, type AnyOptions } from "../../support/pair.js";

/** The capabilities of an editor that these servers use. */
const CAPABILITIES = {
  workspace: { configuration: true },
  textDocument: {
    publishDiagnostics: {},
    hover: { contentFormat: ["markdown", "plaintext"] },
    completion: { completionItem: { snippetSupport: true, documentationFormat: ["markdown", "plaintext"] } },
  },
};

/** A document and a position in it, as params of most requests. */
export interface At {
  textDocument: { uri: string };
  position: { line: number; character: number };
}

/** The requests to a language server in these tests. */
export interface LanguageServer {
  initialize(params: object): { capabilities: object };
  initialized(params: object): void;
  shutdown(): null;
  exit(): void;
  "textDocument/didOpen"(params: object): void;
  "textDocument/didChange"(params: object): void;
  "workspace/didChangeConfiguration"(params: { settings: object }): void;
  "textDocument/completion"(params: At): { items: { label: string }[] };
  "textDocument/hover"(params: At): { contents: unknown };
  "textDocument/documentSymbol"(params: Pick<At, "textDocument">): { name: string }[];
}

/** An editor and its server. Disposing ends both, and asserts that no state and no error is left. */
export interface Editor extends AsyncDisposable {
  readonly peer: Peer<AnyMethods, LanguageServer>;
  /** The server's requests to the editor, in order: method, id and params. */
  readonly asked: [method: string, id: unknown, params: any][];
  /** Initializes the server, and returns its capabilities. */
  initialize(initializationOptions?: object, capabilities?: object): Promise<object>;
  /** Opens a document. `mark` is the position of "|" in its text, which is removed. */
  open(uri: string, languageId: string, text: string): At;
  /** Resolves with the next diagnostics that the server publishes for a document. */
  diagnostics(uri: string): Promise<any[]>;
  /** Shuts the server down. Returns the result of `shutdown`, and the close of the connection. */
  leave(): Promise<{ answer: unknown; end: CloseInfo }>;
  /** Ends the bridge, and returns its standard error. */
  stopBridge(): Promise<string>;
}

/** A language server behind a WebSocket. */
export interface Bridge {
  readonly url: string;
  /** Ends the server, and returns its errors. */
  stop(): Promise<string>;
}

/** Starts the real `reciproc bridge` for a command. */
export async function ourBridge(command: readonly string[]): Promise<Bridge> {
  const { child, ended, until } = start(["bridge", "--port", "0", "--", ...command]);
  const url = (await until("stdout", "\n")).replace(/^listening on (\S+)\n$/, "$1");
  const stop = async (): Promise<string> => {
    child.kill("SIGTERM");
    const { code, stderr } = await ended;
    expect(code).toBe(0);
    return stderr;
  };
  return { url, stop };
}

/** The usual bridge to language servers: vscode-ws-jsonrpc. */
export async function theirBridge([program, ...args]: readonly string[]): Promise<Bridge> {
  const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  await once(server, "listening");
  server.on("connection", (webSocket) => {
    const client = createWebSocketConnection(toSocket(webSocket as never));
    forward(client, createServerProcess("language server", program!, args)!);
  });
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, stop: () => new Promise((resolve) => server.close(() => resolve(""))) };
}

/** Starts a server of vscode-langservers-extracted behind a bridge, and connects to it. */
export async function openEditor(
  language: "css" | "html" | "json",
  options: AnyOptions = {},
  bridge = ourBridge,
): Promise<Editor> {
  const path = `../node_modules/vscode-langservers-extracted/bin/vscode-${language}-language-server`;
  const server = [process.execPath, fileURLToPath(new URL(path, import.meta.url)), "--stdio"];
  const { url, stop: stopBridge } = await bridge(server);
  const asked: Editor["asked"] = [];
  const awaited = new Map<string, (diagnostics: any[]) => void>();
  const { methods, ...rest } = options;
  const peer: Editor["peer"] = await connect<LanguageServer, AnyMethods>(url, {
    // An offer of reciproc.v1 would start the server twice, because the bridge agrees to no protocol and `ws` then fails.
    link: "plain",
    dialect: lsp,
    around: ({ direction, method, id, params }, next) => {
      if (direction === "incoming" && id !== undefined) asked.push([method, id, params]);
      return next();
    },
    methods: {
      "textDocument/publishDiagnostics": ({ uri, diagnostics }) => awaited.get(uri)?.(diagnostics),
      ...methods,
    },
    ...rest,
  });
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  return {
    peer,
    asked,
    async initialize(initializationOptions = {}, capabilities = CAPABILITIES) {
      const params = { processId: null, rootUri: null, workspaceFolders: null, initializationOptions, capabilities };
      const result = await peer.request("initialize", params);
      peer.notify("initialized", {});
      return result.capabilities;
    },
    open(uri, languageId, marked) {
      const [before, ...after] = marked.split("|");
      const lines = before!.split("\n");
      const textDocument = { uri, languageId, version: 1, text: [before, ...after].join("") };
      peer.notify("textDocument/didOpen", { textDocument });
      return { textDocument: { uri }, position: { line: lines.length - 1, character: lines.at(-1)!.length } };
    },
    diagnostics: (uri) => new Promise((resolve) => awaited.set(uri, resolve)),
    async leave() {
      const answer = await peer.request("shutdown");
      peer.notify("exit");
      return { answer, end: await peer.closed };
    },
    stopBridge,
    async [Symbol.asyncDispose]() {
      await peer.close();
      expect(await stopBridge()).toBe("");
      expectEmpty(peer);
      expect(errors).toEqual([]);
    },
  };
}
