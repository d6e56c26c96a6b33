/** PARAMS that are no JSON array or object: the place and the reason of the fault. Nothing is sent. */
import { describe, expect, it } from "vitest";
import { run } from "./program.js";

const callWith = (text: string) => run(["call", "127.0.0.1:1", "method", "--", text]);
const pipeIn = (...stdin: Uint8Array[]) => run(["call", "127.0.0.1:1", "method", "-"], { stdin });

describe("PARAMS that are not JSON", () => {
  it.each([
    ['{"a": 1,}', "(line 1, column 9)", '{"a": 1,}', 8],
    ['{\n  "a": 1,\n  b\n}', "(line 3, column 3)", "  b", 2],
    ['["a\nb"]', "(line 1, column 4)", '["a', 3],
    ["[1,\n2 3]", "(line 2, column 3)", "2 3]", 2],
    ['["😀" 1]', "(line 1, column 6)", '["😀" 1]', 5],
    ['["\u001b" 1]', "(line 1, column 3)", '[" " 1]', 2],
    [
      `["${"1".repeat(500)}" 2${" ".repeat(500)}]`,
      "(line 1, column 505)",
      `…${"1".repeat(58)}" 2${" ".repeat(17)}…`,
      61,
    ],
  ])("are marked where JSON.parse stops: %j", async (text, place, line, index) => {
    const { code, stdout, stderr } = await callWith(text);
    expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
    expect(stderr).toMatch(/^reciproc call: PARAMS is not JSON: \w/);
    expect(stderr.endsWith(`${place}\n${line}\n${" ".repeat(index)}^\n`)).toBe(true);
  });

  it.each(["x", "[1,]", "[1, 2", "{", "[NaN]", "\ufeff[]", "[\t\u001b[31m x", "[".repeat(100_000)])(
    "are refused, and nothing of them moves the cursor: %j",
    async (text) => {
      const { code, stderr } = await callWith(text);
      expect(code).toBe(64);
      expect(stderr).toMatch(/^reciproc call: PARAMS is not JSON: \w/);
      expect(stderr.replaceAll("\n", "")).not.toMatch(/\p{C}/u);
    },
  );
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
