/** Proves that language servers over stdio, behind `reciproc bridge`, serve a reciproc editor as they serve VS Code. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { clean, examplesOf, extract, Running } from "../../readme/examples.js";
import { gate, rejection } from "../../support/turns.js";
import type { AnyOptions } from "../../support/pair.js";
import { openEditor, ourBridge, theirBridge, type Editor } from "./editor.js";

const MAIN = join(import.meta.dirname, "../../../dist/cli/main.js");
const PACKAGES = join(import.meta.dirname, "../node_modules");

type Methods = NonNullable<AnyOptions["methods"]>;

const SCHEMA = "made-up://schema";
const PORT_SCHEMA = JSON.stringify({
  properties: { port: { type: "number", description: "the port, groß 🙂" }, host: { type: "string" } },
});

/** Makes the server validate by `PORT_SCHEMA`, which it must request from the editor. */
function configureJson({ peer }: Editor): void {
  const schemas = [{ fileMatch: ["*.json"], url: SCHEMA }];
  const json = { validate: { enable: true }, schemas };
  peer.notify("workspace/didChangeConfiguration", { settings: { json } });
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

  it("never checks a change that comes while it waits for its settings, and checks those after a hover", async () => {
    const published: [uri: string, problems: number][] = [];
    const next = async (uri: string): Promise<void> => {
      await expect.poll(() => published.at(-1)?.[0]).toBe(uri);
    };
    let onAsked = (): void => {};
    await using editor = await openEditor("css", {
      methods: {
        "workspace/configuration": ({ items }) => {
          onAsked();
          return items.map(() => ({ lint: { emptyRules: "error" } }));
        },
        "textDocument/publishDiagnostics": ({ uri, diagnostics }) => published.push([uri, diagnostics.length]),
      },
    });
    const change = (uri: string, rules: number): boolean =>
      editor.peer.notify("textDocument/didChange", {
        textDocument: { uri, version: rules },
        contentChanges: [{ text: ".empty {}\n".repeat(rules) }],
      });
    await editor.initialize();

    onAsked = () => {
      onAsked = () => {};
      change("file:///a.css", 2);
      // The server checks each text by a timer of the same duration, so it would check the change before this text.
      editor.open("file:///later.css", "css", ".empty {}\n");
    };
    editor.open("file:///a.css", "css", ".empty {}\n");
    await next("file:///later.css");
    change("file:///a.css", 3);
    await next("file:///a.css");
    expect(published).toEqual([
      ["file:///later.css", 1],
      ["file:///a.css", 3],
    ]);

    const at = editor.open("file:///b.css", "css", ".empty {}\n");
    await editor.peer.request("textDocument/hover", at);
    change("file:///b.css", 2);
    await next("file:///b.css");
    expect(published.at(-1)).toEqual(["file:///b.css", 2]);
    await editor.leave();
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

it("the client of docs/CLI.md validates a text by a language server behind the page's command", async () => {
  const page = await readFile("docs/CLI.md", "utf8");
  const [, args, printed] = /^\$ reciproc (bridge .*) -- npx vscode-json-language-server --stdio\n(.*)$/m.exec(page)!;
  const server = join(PACKAGES, "vscode-langservers-extracted/bin/vscode-json-language-server");
  const bridge = new Running(MAIN, [...args!.split(" "), "--", process.execPath, server, "--stdio"]);
  expect(await bridge.line(/./)).toBe(printed);
  const example = (await examplesOf("docs/CLI.md")).find(({ name }) => name === "json-client.js")!;
  await extract("docs/CLI.md");
  const client = new Running(example.name);
  await client.exited;
  expect(client.lines).toEqual(example.output);
  await bridge.stop("SIGINT");
  await clean();
});
