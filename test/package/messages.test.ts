/** What the compiler and an editor show: the place and the length of an error, and the doc comments of a contract. */
import { createRequire } from "node:module";
import { join } from "node:path";
import type ts59 from "./node_modules/typescript-5.9/lib/typescript.js";
import { expect, it } from "vitest";

const TYPES = join(import.meta.dirname, "../types");
const file = join(TYPES, "shown.ts");

/** The last version that has a language service in JavaScript. */
const ts = createRequire(import.meta.url)("typescript-5.9") as typeof ts59;

const BEGIN = `import { connect, contract, limits, open, pair, serve, type Call } from "reciproc/node";
import { connect as connectPage } from "reciproc";
import { testServer } from "reciproc/testing";
interface Api {
  /** Adds two numbers. */
  add(params: [a: number, b: number]): number;
}
declare module "reciproc" {
  interface AppTypes {
    meta: { role: "viewer" | "editor" };
    context: { user: string };
  }
}
declare const call: Call & { direction: "incoming" };
interface ClientApi {
  /** Asks the user. */
  confirm(params: { question: string }): boolean;
}
`;

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
  'contract({ add: { meta: { ^role: "admin" } } });',
  'contract({ add: { meta: { role: "editor", ^rol: "viewer" } } });',
  'contract({ add: { meta: { role: "editor", limits: { ^maxRunning: "1" } } } });',
  "^call.context.user = 5;",
  'call.context.^usr = "ada";',
  "limits<Api>({ ^ad: {} });",
  "limits({ add: { peerRate: { calls: 1, ^perMss: 1 } } });",
  'pair<Api, Api>({ ^timeoutMs: "5", methods: { add: () => 1 } }, { methods: { add: () => 1 } });',
];

it("a mistake in the options is an error of one line, at the property", () => {
  const service = serviceOf(BEGIN + MISTAKES.map((line) => line.replace("^", "")).join("\n"));
  const found = service.getSemanticDiagnostics(file).map(({ start, messageText }) => {
    const at = ts.getLineAndCharacterOfPosition(service.getProgram()!.getSourceFile(file)!, start!);
    return { ...at, lines: ts.flattenDiagnosticMessageText(messageText, "\n").split("\n").length };
  });
  const begin = BEGIN.split("\n").length - 1;
  const expected = MISTAKES.map((line, i) => ({ line: begin + i, character: line.indexOf("^"), lines: 1 }));
  expect(found).toEqual(expected);
});

/** Places where an editor shows the doc comment of a method, each with a mark before the name. */
const SHOWN = [
  ['(await connect<Api>("ws://x")).remote.^add([1, 2]);', "Adds two numbers."],
  ["await serve<Api>({ port: 1, methods: { ^add: () => 1 } });", "Adds two numbers."],
  ['await connect<Api, ClientApi>("ws://x", { methods: { ^confirm: () => true } });', "Asks the user."],
  ["testServer<Api>({ methods: { ^add: () => 1 } });", "Adds two numbers."],
];

it("the doc comment of a method in a contract is shown at a call and at each handler", () => {
  const text = BEGIN + SHOWN.map(([line]) => line!.replace("^", "")).join("\n");
  const service = serviceOf(text);
  let start = BEGIN.length;
  const found = SHOWN.map(([line]) => {
    const info = service.getQuickInfoAtPosition(file, start + line!.indexOf("^"));
    start += line!.length;
    return ts.displayPartsToString(info?.documentation);
  });
  expect(found).toEqual(SHOWN.map(([, comment]) => comment));
});
