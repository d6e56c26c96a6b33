/** What an editor shows of a contract: the doc comments of its methods. */
import { createRequire } from "node:module";
import { join } from "node:path";
import type ts59 from "./node_modules/typescript-5.9/lib/typescript.js";
import { expect, it } from "vitest";

const TYPES = join(import.meta.dirname, "../types");
const file = join(TYPES, "shown.ts");

/** The last version that has a language service in JavaScript. */
const ts = createRequire(import.meta.url)("typescript-5.9") as typeof ts59;

const BEGIN = `import { connect, serve } from "reciproc/node";
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
