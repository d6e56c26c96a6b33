import { stripVTControlCharacters } from "node:util";
import * as fc from "fast-check";
import { expect, it } from "vitest";
import { RpcError } from "../../src/node.js";
import { seed } from "../fuzz/run.js";
import { servingOnPort } from "../server/by-hand.js";
import { run, type Given } from "./program.js";

/** What a terminal may execute or not show as it is: controls, marks of direction, line separators, no width, and tags. */
const INVISIBLE = [
  ..."\u001b\u0007\r\t\u007f\u0085\u009b\u009f",
  ..."\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
  ..."\u2028\u2029\u00ad\u200b\u200c\u200d\u2060\ufeff\u{e0001}\u{e0041}",
];
const ANY_INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

/** Values without raw escape characters. JSON escapes them, and C1 controls would be stripped. */
const json = fc
  .json()
  .filter((text) => !/\p{Cc}/u.test(text))
  .map((text): unknown => JSON.parse(text));

const RED = "\u001b[31m";

/** Prints a value as the result of a call. Returns the output without its line end. */
async function printed(value: unknown, given?: Given, ...options: string[]): Promise<string> {
  const { url } = await servingOnPort({ methods: { get: () => value } });
  const { code, stdout } = await run(["call", url, "get", ...options], given);
  expect(code).toBe(0);
  return stdout.slice(0, -1);
}

/** Prints a text of a user in an error message. Returns the standard error. */
const alarm = async (text: string, given?: Given): Promise<string> => (await run([text], given)).stderr;

it("a result is the same JSON without its colours", async () => {
  const values = fc.sample(json, 500);
  const shown = await printed(values, { isTTY: true });
  expect(stripVTControlCharacters(shown)).toBe(JSON.stringify(values, null, 2));
  for (const line of shown.split("\n"))
    expect(line.includes("\u001b[")).toBe(/["\dtfn]/.test(stripVTControlCharacters(line)));
});

it.each<[isColored: boolean, given: Given, options?: string[]]>([
  [true, { isTTY: true }],
  [true, { isTTY: true, env: { NO_COLOR: "" } }],
  [false, { isTTY: true }, ["--no-color"]],
  [false, { isTTY: true, env: { NO_COLOR: "1" } }],
  [false, { isTTY: true, env: { TERM: "dumb" } }],
  [false, { env: { FORCE_COLOR: "1" } }],
  [false, { isTTY: { stdout: false, stderr: true } }],
])("colours are printed: %s, in these surroundings: %j", async (isColored, given, options = []) => {
  expect((await printed({ a: 1 }, given, ...options)).includes("\u001b[")).toBe(isColored);
});

it("colours are red for an error on a terminal, and for nothing that quotes it", async () => {
  expect(await alarm("fly", { isTTY: true })).toBe(
    `${RED}reciproc: unknown command "fly"; see \`reciproc --help\`\u001b[39m\n`,
  );
  expect(await alarm("fly", { isTTY: { stdout: true, stderr: false } })).not.toContain(RED);
});

it("an invisible character is escaped in any text, which stays one line, and JSON stays the same value", async () => {
  const character = fc.oneof(fc.string({ unit: "binary", minLength: 1 }), fc.constantFrom(...INVISIBLE));
  const text = fc.array(character, { minLength: 1 }).map((parts) => parts.join(""));
  const texts = [INVISIBLE.join("b"), ...fc.sample(text, 500)];
  const value = texts.map((each) => ({ [each]: each }));
  const { url } = await servingOnPort({
    methods: {
      get: () => value,
      fail() {
        throw new RpcError(1, texts[0]!, texts);
      },
    },
  });
  for (const isTTY of [true, false]) {
    const given = { isTTY, env: { NO_COLOR: "1" } };
    const { stdout } = await run(["call", url, "get"], given);
    expect(JSON.parse(stdout)).toEqual(value);
    const { stderr } = await run(["call", url, "fail"], given);
    const message = stderr.split("\n")[0]!;
    expect(JSON.parse(stderr.slice(message.length))).toEqual(texts);
    expect(JSON.parse(`"${message}"`)).toBe(`error 1: ${texts[0]}`);
    for (const shown of [stdout, stderr]) expect(shown).not.toMatch(ANY_INVISIBLE);
    await fc.assert(
      fc.asyncProperty(text, async (each) => {
        const line = await alarm(each, given);
        expect(line).toMatch(/^[^\n]*\n$/);
        expect(line).not.toMatch(ANY_INVISIBLE);
      }),
      { seed },
    );
  }
  expect(stripVTControlCharacters(await printed(value, { isTTY: true }))).not.toMatch(ANY_INVISIBLE);
});

it("an error text keeps blanks within a line, of which a pattern with two loops would take quadratic time", async () => {
  const blanks = " ".repeat(1_000_000);
  expect(await alarm(`a${blanks}b \n\t\n c`)).toContain(`"a${blanks}b c"`);
});

it.each([
  ["by 0 if its reader has closed it", "get", "EPIPE", 0],
  ["by 1 if the command succeeded", "get", "ENOSPC", 1],
  ["by the exit code of the command if that failed", "listen", "ENOSPC", 2],
])("the standard output that cannot be written ends the command %s", async (_what, method, broken, code) => {
  const { url } = await servingOnPort({ methods: { get: () => 1 } });
  const argv = method === "listen" ? ["listen", "127.0.0.1:1", "--json"] : ["call", url, method];
  const stderr = code === 0 ? "" : "cannot write to standard output: ENOSPC: it failed\n";
  expect(await run(argv, { broken })).toEqual({ code, stdout: "", stderr });
});
