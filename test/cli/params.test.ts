/** PARAMS that are no JSON array or object: the place and the reason of the fault. Nothing is sent. */
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { run } from "./program.js";

/** Runs a call with these PARAMS, whose server does not exist. */
const callWith = (text: string) => run(["call", "127.0.0.1:1", "method", "--", text]);
const pipeIn = (...stdin: Uint8Array[]) => run(["call", "127.0.0.1:1", "method", "-"], { stdin });

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Asserts that a text is refused, and returns the reason with the position in the text. Only its own scan says what it expected. */
async function faultIn(text: string): Promise<{ reason: string; line: number; column: number; excerpt: string }> {
  const { code, stdout, stderr } = await callWith(text);
  expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
  const shape = /^reciproc call: PARAMS is not JSON: (expected .*, got .*) \(line (\d+), column (\d+)\)\n([^]*)\n$/;
  expect(stderr).toMatch(shape);
  const [, reason, line, column, excerpt] = shape.exec(stderr)!;
  return { reason: reason!, line: Number(line), column: Number(column), excerpt: excerpt! };
}

/** Characters with a meaning in JSON, so that mutations stay close to it. */
const piece = fc.oneof(
  fc.constantFrom(..."[]{}\",:\\0123456789.eE+-tfn u/b\t\n\r\f\u0000'"),
  fc.constantFrom("true", "null", "\\u00e9", "\ufeff", "\u2028", "\u00a0", "é", "😀", "[[", ',"a":', "-0", "1e5"),
);

/** JSON with up to four cuts, insertions and replacements. */
const mutated = fc
  .tuple(
    fc.json(),
    fc.constantFrom(undefined, 1),
    fc.array(fc.tuple(fc.nat(), fc.nat({ max: 3 }), fc.oneof(piece, fc.constant(""))), { maxLength: 4 }),
  )
  .map(([json, indent, edits]) => {
    let text = indent === undefined ? json : JSON.stringify(JSON.parse(json), null, indent);
    for (const [where, cut, inserted] of edits) {
      const at = where % (text.length + 1);
      text = text.slice(0, at) + inserted + text.slice(at + cut);
    }
    return text;
  });
const pieces = fc.array(piece, { maxLength: 8 }).map((parts) => parts.join(""));

describe("PARAMS that are not JSON", () => {
  it("have a fault that the command finds, wherever JSON.parse finds one", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(mutated, pieces), async (text) => {
        // A hyphen names the standard input.
        fc.pre(text.trim() !== "" && text !== "-" && !isJson(text));
        await faultIn(text);
      }),
      { numRuns: 1_500 },
    );
  });

  it("have their fault at the end, or after the last blank, if they are cut off", async () => {
    await fc.assert(
      fc.asyncProperty(fc.json(), fc.nat(), async (json, cut) => {
        const text = json.slice(0, cut % json.length);
        fc.pre(text.trim() !== "" && text !== "-" && !isJson(text));
        const rest = text.replace(/[ \t\r\n]+$/, "");
        expect((await faultIn(text)).column).toBe([...rest].length + 1);
      }),
    );
  });

  it.each([
    ['{"a": 1,}', 8, 'expected a name in double quotes after the comma, got "}"'],
    ["[1,]", 3, 'expected a value, got "]"'],
    ["[1 2]", 3, 'expected "," or "]", got "2"'],
    ['{"a" 1}', 5, 'expected ":" after the name, got "1"'],
    ['{"a": 1]', 7, 'expected "," or "}", got "]"'],
    ["{a: 1}", 1, "words need double quotes"],
    ["{'a': 1}", 1, "JSON's quotes are \""],
    ["[hello]", 1, "words need double quotes"],
    ["[“x”]", 1, "JSON's quotes are \""],
    ["[nul]", 4, 'expected `null`, got "]"'],
    ["[1.]", 3, 'expected a digit, got "]"'],
    ["[01]", 2, 'expected "," or "]", got "1"'],
    ['["a\\x"]', 4, 'after the backslash, got "x"'],
    ['["\\u12g4"]', 6, 'four hexadecimal digits after \\u, got "g"'],
    ["[1] [2]", 4, 'expected the end of the text, got "["'],
    ["\ufeff[]", 0, "got U+FEFF"],
    ["[1]\u00a0\n", 3, "got U+00A0"],
    ['["😀" 1]', 5, 'expected "," or "]", got "1"'],
  ])("are explained: %j", async (text, index, reason) => {
    const fault = await faultIn(text);
    expect(fault).toMatchObject({ line: 1, column: index + 1, reason: expect.stringContaining(reason) as string });
    expect(fault.excerpt.split("\n")[1]).toBe(`${" ".repeat(index)}^`);
  });

  it.each([
    ['{"a": 1,}', { line: 1, column: 9, excerpt: '{"a": 1,}\n        ^' }],
    ['{\n  "a": 1,\n  b\n}', { line: 3, column: 3, excerpt: "  b\n  ^" }],
    ['["a\nb"]', { line: 1, column: 4, excerpt: '["a\n   ^' }],
    ["[1,\n", { line: 1, column: 4, excerpt: "[1,\n   ^" }],
    ['{\n  "a": [1, 2\r\n \t\n', { line: 2, column: 13, excerpt: '  "a": [1, 2\n            ^' }],
    ['["abc\n', { line: 1, column: 6, excerpt: '["abc\n     ^' }],
    ["[\t\u001b[31m x", { line: 1, column: 3, excerpt: "[  [31m x\n  ^" }],
  ])("are marked at the character, and not on a blank line after it: %j", async (text, place) => {
    expect(await faultIn(text)).toMatchObject(place);
  });

  it("are cut around the fault in a long line", async () => {
    const { column, excerpt } = await faultIn(`[${"1,".repeat(500)}x,${"2,".repeat(500)}3]`);
    const [line, caret] = excerpt.split("\n") as [string, string];
    expect(column).toBe(1002);
    expect(line.length).toBeLessThan(85);
    expect(line[caret.indexOf("^")]).toBe("x");
    expect(line).toMatch(/^….*…$/);
  });

  it("may be nested as deep as JSON.parse accepts", async () => {
    const depth = 100_000;
    const opened = "[".repeat(depth);
    expect(isJson(opened + "]".repeat(depth))).toBe(true);
    expect((await faultIn(opened + "]".repeat(depth - 1))).column).toBe(2 * depth);
  });
});

it.each<[what: string, chunks: Uint8Array[], message: string]>([
  ["empty", [], "standard input is empty"],
  ["not UTF-8", [Uint8Array.of(0xff)], "standard input is not UTF-8"],
  ["no array or object", [Uint8Array.of(0x33)], "standard input must be a JSON array or object, got a number"],
  ["not JSON", [new TextEncoder().encode("[1,\n2 3]")], "(line 2, column 3)\n2 3]\n  ^\n"],
  [
    "nested too deeply",
    [new TextEncoder().encode("[".repeat(50_000) + "]".repeat(50_000))],
    "standard input is nested too deeply to be written",
  ],
])("a standard input that is %s is refused", async (_what, chunks, message) => {
  expect(await pipeIn(...chunks)).toMatchObject({
    code: 64,
    stdout: "",
    stderr: expect.stringContaining(message) as string,
  });
});

it("a standard input that cannot be read is reported as a failure of the command, with exit code 70", async () => {
  const stdin: AsyncIterable<Uint8Array> = {
    [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(new Error("EIO")) }),
  };
  const { code, stderr } = await run(["call", "127.0.0.1:1", "method", "-"], { stdin });
  expect(code).toBe(70);
  expect(stderr).toMatch(/^reciproc failed: Error: EIO/);
});
