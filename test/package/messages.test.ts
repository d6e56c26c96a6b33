/** What the compiler and an editor show: the place and the length of an error, and the doc comments of a contract. */
import { createRequire } from "node:module";
import { join } from "node:path";
import type ts59 from "./node_modules/typescript-5.9/lib/typescript.js";
import { describe, expect, it } from "vitest";

const TYPES = join(import.meta.dirname, "../types");
const file = join(TYPES, "shown.ts");

/** The last version that has a language service in JavaScript. */
const ts = createRequire(import.meta.url)("typescript-5.9") as typeof ts59;

const BEGIN = `import { connect, open, pair, serve } from "reciproc/node";
import { connect as connectPage } from "reciproc";
import { testServer } from "reciproc/testing";
interface Api {
  /** Adds two numbers. */
  add(params: [a: number, b: number]): number;
}
interface ClientApi {
  /** Asks the user. */
  confirm(params: { question: string }): boolean;
}
`;

/** Returns a language service for one file with that text. */
function serviceOf(text: string): ts59.LanguageService {
  const { options } = ts.parseJsonConfigFileContent(
    ts.readConfigFile(join(TYPES, "tsconfig.json"), (name) => ts.sys.readFile(name)).config,
    ts.sys,
    TYPES,
  );
  return ts.createLanguageService({
    getCompilationSettings: () => options,
    getScriptFileNames: () => [file],
    getScriptVersion: () => "1",
    getScriptSnapshot(name) {
      const content = name === file ? text : ts.sys.readFile(name);
      return content === undefined ? undefined : ts.ScriptSnapshot.fromString(content);
    },
    getCurrentDirectory: () => TYPES,
    getDefaultLibFileName: (of) => ts.getDefaultLibFilePath(of),
    fileExists: (name) => name === file || ts.sys.fileExists(name),
    readFile: (name) => ts.sys.readFile(name),
  });
}

/** The mistakes, each with a mark before the place where its error must be. */
const MISTAKES = [
  'await connect<Api, ClientApi>("ws://x", { ^timeoutMs: "5", methods: { confirm: () => true } });',
  'await connect<Api, ClientApi>("ws://x", { ^openTimeout: 5, methods: { confirm: () => true } });',
  'await connect<Api, ClientApi>("ws://x", { methods: { confirm: () => ^"yes" } });',
  'await connectPage<Api>("ws://x", { ^reconnect: "yes" });',
  'open("ws://x", { reconnect: { ^intial: true } });',
  'open("ws://x", { headers: { ^a: 1 } });',
  'await ^connect<Api, ClientApi>("ws://x");',
  'await serve<Api>({ port: 1, ^timeoutMs: "5", methods: { add: () => 1 } });',
  "await serve<Api>({ port: 1, methods: { add: () => ^true } });",
  'testServer<Api>({ ^timeoutMs: "5" });',
  'pair<Api, Api>({ ^timeoutMs: "5", methods: { add: () => 1 } }, { methods: { add: () => 1 } });',
];

describe("a mistake in the options", () => {
  it("is an error of one line, at the property", () => {
    const service = serviceOf(BEGIN + MISTAKES.map((line) => line.replace("^", "")).join("\n"));
    const found = service.getSemanticDiagnostics(file).map(({ start, messageText }) => {
      const at = ts.getLineAndCharacterOfPosition(service.getProgram()!.getSourceFile(file)!, start!);
      const lines = ts.flattenDiagnosticMessageText(messageText, "\n").split("\n").length;
      return { ...at, lines };
    });
    const begin = BEGIN.split("\n").length - 1;
    const expected = MISTAKES.map((line, i) => ({ line: begin + i, character: line.indexOf("^"), lines: 1 }));
    expect(found).toEqual(expected);
  });
});

describe("the doc comment of a method in a contract", () => {
  it.each([
    ["at a call", 'const peer = await connect<Api>("ws://x"); peer.remote.^add([1, 2]);', "Adds two numbers."],
    ["at a handler of a server", "await serve<Api>({ port: 1, methods: { ^add: () => 1 } });", "Adds two numbers."],
    [
      "at a handler of a client",
      'await connect<Api, ClientApi>("ws://x", { methods: { ^confirm: () => true } });',
      "Asks the user.",
    ],
    ["at a handler of a test", "testServer<Api>({ methods: { ^add: () => 1 } });", "Adds two numbers."],
  ])(
    "is shown %s",
    (_where, line, comment) => {
      const text = BEGIN + line;
      const service = serviceOf(text.replace("^", ""));
      const info = service.getQuickInfoAtPosition(file, text.indexOf("^") + 1);
      expect(ts.displayPartsToString(info?.documentation)).toBe(comment);
    },
    90_000,
  );
});
