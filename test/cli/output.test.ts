/** What is printed: colours, escapes, and an output that cannot be written to. */
import { stripVTControlCharacters } from "node:util";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { RpcError } from "../../src/node.js";
import { file, beginListening, reciprocServer, run, type Given } from "./program.js";

/**
 * Each kind of character that a terminal may execute, or not show as it is: controls, DEL, C1 controls, marks that change the
 * direction, line separators, characters of no width, and tags.
 */
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
  const { url } = await reciprocServer({ methods: { get: () => value } });
  const { code, stdout } = await run(["call", url, "get", ...options], given);
  expect(code).toBe(0);
  return stdout.slice(0, -1);
}

/** Prints a text of a user in an error message. Returns the standard error. */
async function alarm(text: string, given?: Given): Promise<string> {
  return (await run([text], given)).stderr;
}

describe("a result", () => {
  it("is the same JSON without its colours", async () => {
    const values = fc.sample(json, 500);
    const shown = await printed(values, { isTTY: true });
    expect(stripVTControlCharacters(shown)).toBe(JSON.stringify(values, null, 2));
    for (const line of shown.split("\n"))
      expect(line.includes("\u001b[")).toBe(/["\dtfn]/.test(stripVTControlCharacters(line)));
  });
});

describe("colours", () => {
  it.each<[when: string, given: Given, options: string[], isColored: boolean]>([
    ["are on a terminal", { isTTY: true }, [], true],
    ["are on a terminal with an empty NO_COLOR", { isTTY: true, env: { NO_COLOR: "" } }, [], true],
    ["are not with --no-color", { isTTY: true }, ["--no-color"], false],
    ["are not with NO_COLOR", { isTTY: true, env: { NO_COLOR: "1" } }, [], false],
    ["are not on a dumb terminal", { isTTY: true, env: { TERM: "dumb" } }, [], false],
    ["are not in a pipe", { env: { FORCE_COLOR: "1" } }, [], false],
    [
      "are not in the standard output if only the standard error is a terminal",
      { isTTY: { stdout: false, stderr: true } },
      [],
      false,
    ],
  ])("%s", async (_when, given, options, isColored) => {
    expect((await printed({ a: 1 }, given, ...options)).includes("\u001b[")).toBe(isColored);
  });

  it("are red for an error on a terminal, and for nothing that quotes it", async () => {
    expect(await alarm("fly", { isTTY: true })).toBe(
      `${RED}reciproc: unknown command "fly"; see \`reciproc --help\`\u001b[39m\n`,
    );
    expect(await alarm("fly", { isTTY: { stdout: true, stderr: false } })).not.toContain(RED);
  });
});

describe("an invisible character", () => {
  it("is escaped in every text, and JSON stays the same value", async () => {
    const text = `a${INVISIBLE.join("b")}c`;
    const { url } = await reciprocServer({
      methods: {
        get: () => ({ [text]: text }),
        fail() {
          throw new RpcError(1, text, text);
        },
      },
    });
    for (const isTTY of [true, false]) {
      const given = { isTTY, env: { NO_COLOR: "1" } };
      const { stdout } = await run(["call", url, "get"], given);
      expect(JSON.parse(stdout)).toEqual({ [text]: text });
      const { stderr } = await run(["call", url, "fail"], given);
      const [message, data] = stderr.split("\n") as [string, string];
      expect(JSON.parse(data)).toBe(text);
      expect(JSON.parse(`"${message}"`)).toBe(`error 1: ${text}`);
      for (const shown of [stdout, stderr]) expect(shown).not.toMatch(ANY_INVISIBLE);
    }
  });

  it("is escaped in any text: what is left of it is one line that a terminal only shows", async () => {
    const unit = fc.string({ unit: "binary", minLength: 1 });
    await fc.assert(
      fc.asyncProperty(unit, fc.boolean(), async (text, isTTY) => {
        const shown = await alarm(text, { isTTY, env: { NO_COLOR: "1" } });
        expect(shown).toMatch(/^[^\n]*\n$/);
        expect(shown).not.toMatch(ANY_INVISIBLE);
      }),
    );
    const shown = await printed(fc.sample(unit, 500), { isTTY: true });
    expect(stripVTControlCharacters(shown)).not.toMatch(ANY_INVISIBLE);
  });
});

describe("an error of a handler", () => {
  it("is one line, however many the error has, and ends with the place in a file", async () => {
    const api = `export default {
      fail() { throw new TypeError("two\\n  lines\\t \\r\\n and \\u001b[2J a third"); },
      text() { throw "a text"; },
      thing() { throw { a: 1 }; },
      nothing() { throw null; },
      hostile() { throw Object.defineProperty(new Error("x"), "message", { get() { throw 1; } }); },
    };`;
    const { url, until } = await beginListening(["serve", await file("api.mjs", api)]);
    for (const method of ["fail", "text", "thing", "nothing", "hostile"])
      expect(await run(["call", url, method])).toMatchObject({ code: 1, stderr: "error -32603: Internal error\n" });
    const lines = (await until("stderr", "shown\n")).split("\n");
    expect(lines[0]).toMatch(/^fail: TypeError: two lines and \\u001b\[2J a third \(\/.*api\.mjs:2:22\)$/);
    expect(lines.slice(1)).toEqual([
      "error: 'a text'",
      "thing: { a: 1 }",
      "error: null",
      "hostile: a value that cannot be shown",
      "",
    ]);
  });

  it("keeps blanks within a line, of which a pattern with two loops would take quadratic time", async () => {
    const blanks = " ".repeat(1_000_000);
    expect(await alarm(`a${blanks}b \n\t\n c`)).toContain(`"a${blanks}b c"`);
  });
});

describe("the standard output", () => {
  it("may be closed by its reader, which is no error", async () => {
    const { url } = await reciprocServer({ methods: { get: () => 1 } });
    expect(await run(["call", url, "get"], { broken: "EPIPE" })).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  it.each([
    ["1 if the command succeeded", "get", 1],
    ["that of the command if it failed", "listen", 2],
  ])("that cannot be written makes the exit code %s", async (_what, method, code) => {
    const { url } = await reciprocServer({ methods: { get: () => 1 } });
    const argv = method === "listen" ? ["listen", "127.0.0.1:1", "--json"] : ["call", url, method];
    const stderr = "cannot write to standard output: ENOSPC: it failed\n";
    expect(await run(argv, { broken: "ENOSPC" })).toEqual({ code, stdout: "", stderr });
  });
});
