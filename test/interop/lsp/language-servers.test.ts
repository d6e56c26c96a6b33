/** Proves that language servers over stdio, behind `reciproc bridge`, serve a reciproc editor as they serve VS Code. */
import { describe, expect, it, vi } from "vitest";
import { inspect } from "../../../src/peer/peer.js";
import { gate, rejection } from "../../support/turns.js";
import type { AnyOptions } from "../../support/pair.js";
import { openEditor, ourBridge, theirBridge, type At, type Editor } from "./editor.js";

type Methods = NonNullable<AnyOptions["methods"]>;

// Each test starts two processes, which is slow on some machines.
vi.setConfig({ testTimeout: 60_000 });

const SCHEMA = "made-up://schema";
const PORT_SCHEMA = JSON.stringify({
  properties: { port: { type: "number", description: "the port, groß 🙂" }, host: { type: "string" } },
});

/** Makes the server validate by `PORT_SCHEMA`, which it must request from the editor. */
function configureJson({ peer }: Editor, isFormatting = false): void {
  const schemas = [{ fileMatch: ["*.json"], url: SCHEMA }];
  const json = { validate: { enable: true }, format: { enable: isFormatting }, schemas };
  peer.notify("workspace/didChangeConfiguration", { settings: { json } });
}

/** Returns an editor whose server has a pending completion that awaits its schema. */
async function inCompletion(options: { signal?: AbortSignal } = {}): Promise<{
  editor: Editor;
  at: At;
  answer: Promise<any>;
  id: number;
  /** Sends the schema to the server. */
  goOn: () => void;
  /** Resolves when the server has logged a cancelled request. */
  cancelled: Promise<void>;
}> {
  const [asked, open, cancelled] = [gate(), gate(), gate()];
  let id = 0;
  const editor = await openEditor("json", {
    around: (call, next) => {
      if (call.method === "textDocument/completion") id = call.id as number;
      return next();
    },
    methods: {
      "vscode/content": () => (asked.resolve(), open.promise.then(() => PORT_SCHEMA)),
      "window/logMessage": ({ message }) => void (message === "cancelled" && cancelled.resolve()),
    },
  });
  await editor.initialize({ handledSchemaProtocols: [] });
  configureJson(editor);
  const at = editor.open("file:///a.json", "json", '{ "|": 1 }');
  const answer = rejection(editor.peer.request("textDocument/completion", at, options));
  await asked.promise;
  return { editor, at, answer, id, goOn: open.resolve, cancelled: cancelled.promise };
}

describe("a CSS server", () => {
  it.each([
    ["reciproc bridge", ourBridge],
    ["vscode-ws-jsonrpc", theirBridge],
  ])(
    "behind %s is initialized, requests its settings, publishes, completes, explains, and is shut down",
    async (_, bridge) => {
      const settings = { lint: { emptyRules: "error" } };
      const methods: Methods = { "workspace/configuration": ({ items }) => items.map(() => settings) };
      await using editor = await openEditor("css", { methods }, bridge);
      expect(await editor.initialize()).toMatchObject({ hoverProvider: true, completionProvider: {} });
      const published = editor.diagnostics("file:///a.css");
      const at = editor.open("file:///a.css", "css", "/* 🙂 */ b { color: |red }\n.empty {}\n");
      expect(await published).toMatchObject([{ code: "emptyRules", severity: 1, range: { start: { line: 1 } } }]);
      expect(editor.asked).toEqual([
        ["workspace/configuration", 0, { items: [{ scopeUri: "file:///a.css", section: "css" }] }],
      ]);
      const { items } = await editor.peer.request("textDocument/completion", at);
      expect(items.map(({ label }) => label)).toContain("rebeccapurple");
      const { contents } = await editor.peer.request("textDocument/hover", at);
      expect(contents).toMatchObject({ value: expect.stringContaining("color") });
      const { answer, end } = await editor.leave();
      expect(answer).toBe(null);
      // vscode-ws-jsonrpc closes without a code.
      expect(end).toEqual(
        bridge === ourBridge ? { code: 1000, reason: "the command exited with code 0" } : { code: 1005, reason: "" },
      );
    },
  );

  it("answers a request for diagnostics, and requests a refresh, without params", async () => {
    const refreshed = gate<unknown>();
    await using editor = await openEditor("css", {
      methods: { "workspace/diagnostic/refresh": (params) => refreshed.resolve(params) },
    });
    await editor.initialize(
      {},
      { textDocument: { diagnostic: {} }, workspace: { diagnostics: { refreshSupport: true } } },
    );
    const { textDocument } = editor.open("file:///a.css", "css", ".empty {}");
    expect(await editor.peer.request("textDocument/diagnostic", { textDocument })).toMatchObject({
      kind: "full",
      items: [{ code: "emptyRules", severity: 2 }],
    });
    editor.peer.notify("workspace/didChangeConfiguration", { settings: { css: { lint: { emptyRules: "ignore" } } } });
    expect(await refreshed.promise).toBeUndefined();
    expect(await editor.peer.request("textDocument/diagnostic", { textDocument })).toEqual({ kind: "full", items: [] });
    await editor.leave();
  });

  it("that gets null for its settings fails, and publishes nothing", async () => {
    const logged = gate<string>();
    await using editor = await openEditor("css", {
      methods: {
        "workspace/configuration": ({ items }) => items.map(() => null),
        "window/logMessage": ({ message }) => logged.resolve(message),
        "textDocument/publishDiagnostics": () => logged.resolve("diagnostics"),
      },
    });
    await editor.initialize();
    editor.open("file:///a.css", "css", ".empty {}");
    expect(await logged.promise).toContain("Error while validating file:///a.css");
    await editor.leave();
  });

  it("that exits without a shutdown closes the connection, and pending calls reject with the reason", async () => {
    const asked = gate();
    const editor = await openEditor("css", {
      methods: { "workspace/configuration": () => (asked.resolve(), new Promise(() => {})) },
    });
    await editor.initialize();
    const at = editor.open("file:///a.css", "css", "a { color: |red }");
    // The server awaits the settings that it requested.
    const answer = rejection(editor.peer.request("textDocument/completion", at));
    await asked.promise;
    editor.peer.notify("exit");
    expect(await answer).toMatchObject({
      code: "CONNECTION_LOST",
      outcome: "unknown",
      cause: { message: "closed with 1011 (the command exited with code 1)" },
    });
    expect(await editor.stopBridge()).toBe("the command exited with code 1\n");
  });
});

describe("a JSON server", () => {
  it("requests a schema by a single positional param, and completes, explains and validates by it", async () => {
    await using editor = await openEditor("json", { methods: { "vscode/content": ([_uri]) => PORT_SCHEMA } });
    await editor.initialize({ handledSchemaProtocols: [] });
    configureJson(editor);
    const published = editor.diagnostics("file:///a.json");
    const at = editor.open("file:///a.json", "json", '{\n  "größe 🙂": 1,\n  "po|rt": "eighty"\n}');
    expect(await published).toMatchObject([
      { message: 'Incorrect type. Expected "number".', range: { start: { line: 2, character: 10 } } },
    ]);
    expect(editor.asked).toEqual([["vscode/content", 0, [SCHEMA]]]);
    const { items } = await editor.peer.request("textDocument/completion", at);
    expect(items.map(({ label }) => label)).toEqual(["port", "host"]);
    expect(await editor.peer.request("textDocument/hover", at)).toMatchObject({ contents: ["the port, groß 🙂"] });
    await editor.leave();
  });

  it("may be called while it awaits that schema", async () => {
    await using editor = await openEditor("json", {
      methods: {
        "vscode/content": async (_params, { peer }) => {
          const textDocument = { uri: "file:///a.json" };
          const symbols = (await peer.request("textDocument/documentSymbol", { textDocument })) as { name: string }[];
          const properties = Object.fromEntries(symbols.map(({ name }) => [`${name}2`, {}]));
          return JSON.stringify({ properties });
        },
      },
    });
    await editor.initialize({ handledSchemaProtocols: [] });
    configureJson(editor);
    const at = editor.open("file:///a.json", "json", '{ "a": 1, "b": 2, "|": 3 }');
    const { items } = await editor.peer.request("textDocument/completion", at);
    expect(items.map(({ label }) => label)).toEqual(expect.arrayContaining(["a2", "b2"]));
    await editor.leave();
  });

  it("registers and unregisters its formatter in the editor, by requests", async () => {
    const [registered, unregistered] = [gate<void>(), gate<void>()];
    const methods = new Set<string>();
    await using editor = await openEditor("json", {
      methods: {
        "client/registerCapability": ({ registrations }) => {
          for (const { method } of registrations) methods.add(method);
          if (methods.size === 2) registered.resolve();
        },
        "client/unregisterCapability": ({ unregisterations }) => {
          for (const { method } of unregisterations) methods.delete(method);
          if (methods.size === 0) unregistered.resolve();
        },
      },
    });
    await editor.initialize({ handledSchemaProtocols: [] });
    configureJson(editor, true);
    await registered.promise;
    expect(methods).toEqual(new Set(["textDocument/formatting", "textDocument/rangeFormatting"]));
    const { textDocument } = editor.open("file:///b.jsonc", "jsonc", '{"a":1}');
    const options = { tabSize: 2, insertSpaces: true };
    const edits = await editor.peer.request("textDocument/formatting", { textDocument, options });
    expect(edits.map(({ newText }) => newText).join("")).toBe("\n   \n");
    configureJson(editor, false);
    await unregistered.promise;
    await editor.leave();
  });

  describe("whose call is cancelled", () => {
    it("answers that with -32800", async () => {
      const { editor, answer, id, goOn } = await inCompletion();
      await using _ = editor;
      editor.peer.notify("$/cancelRequest", { id });
      goOn();
      expect(await answer).toMatchObject({ code: -32800, message: "Request cancelled" });
      await editor.leave();
    });

    it("by its signal rejects at once, and its late answer is ignored", async () => {
      const controller = new AbortController();
      const { editor, at, answer, goOn, cancelled } = await inCompletion({ signal: controller.signal });
      await using _ = editor;
      controller.abort("the user typed on");
      expect(await answer).toBe("the user typed on");
      goOn();
      await cancelled;
      while (inspect(editor.peer).unmatched === 0) await editor.peer.request("textDocument/hover", at);
      expect(inspect(editor.peer)).toMatchObject({ pending: 0, unmatched: 1 });
      await editor.leave();
    });
  });

  it("may send more than 1 MiB if `maxMessageBytes` allows it, and is otherwise closed with 1009", async () => {
    const text = JSON.stringify(Object.fromEntries(Array.from({ length: 20_000 }, (_, i) => [`größe${i}`, i])));
    await using roomy = await openEditor("json", { limits: { maxMessageBytes: 16 * 2 ** 20 } });
    await roomy.initialize();
    const { textDocument } = roomy.open("file:///big.json", "json", text);
    const symbols = await roomy.peer.request("textDocument/documentSymbol", { textDocument });
    expect(JSON.stringify(symbols).length).toBeGreaterThan(2 ** 20);
    expect(symbols).toHaveLength(20_000);
    expect(symbols[19_999]).toMatchObject({ name: "größe19999" });
    await roomy.leave();

    const narrow = await openEditor("json");
    await narrow.initialize();
    narrow.open("file:///big.json", "json", text);
    const error = await rejection(narrow.peer.request("textDocument/documentSymbol", { textDocument }));
    expect(error).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
    expect(await narrow.peer.closed).toMatchObject({ code: 1009 });
    expect(await narrow.stopBridge()).toBe("the WebSocket was closed with 1009\n");
  });
});

describe("an HTML server", () => {
  it("resolves its completions, with several calls in flight", async () => {
    await using editor = await openEditor("html", {
      methods: { "workspace/configuration": ({ items }) => items.map(() => ({})) },
    });
    expect(await editor.initialize()).toMatchObject({ completionProvider: { resolveProvider: true } });
    const at = editor.open("file:///a.html", "html", "<p>one</p>\n<di|");
    const [{ items }, symbols, folds] = await Promise.all([
      editor.peer.request("textDocument/completion", at),
      editor.peer.request("textDocument/documentSymbol", { textDocument: at.textDocument }),
      editor.peer.request("textDocument/foldingRange", { textDocument: at.textDocument }),
    ]);
    expect(symbols).toMatchObject([{ name: "p" }, { name: "di" }]);
    expect(folds).toEqual([]);
    const div = items.find(({ label }) => label === "div")!;
    expect(await editor.peer.request("completionItem/resolve", div)).toEqual(div);
    await editor.leave();
  });
});
