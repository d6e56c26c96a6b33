import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { findJsonFault, placeOf } from "../../src/cli/json.js";

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
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

describe("findJsonFault", () => {
  it("agrees with JSON.parse on which mutations of JSON are valid", () => {
    fc.assert(
      fc.property(mutated, (text) => {
        expect(findJsonFault(text) === undefined).toBe(isJson(text));
      }),
      { numRuns: 5_000 },
    );
  });

  it("agrees with JSON.parse on random sequences of JSON's own characters", () => {
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = pieces.join("");
        expect(findJsonFault(text) === undefined).toBe(isJson(text));
      }),
      { numRuns: 5_000 },
    );
  });

  it("finds the fault of JSON that is cut off at its end", () => {
    fc.assert(
      fc.property(fc.json(), fc.nat(), (json, cut) => {
        const text = json.slice(0, cut % json.length);
        fc.pre(!isJson(text));
        expect(findJsonFault(text)?.index).toBe(text.length);
      }),
    );
  });

  it("finds the fault if a foreign character was inserted between two tokens", () => {
    fc.assert(
      fc.property(fc.array(fc.integer(), { minLength: 1 }), fc.nat(), (numbers, where) => {
        const parts = numbers.map(String);
        const before = `[${parts
          .slice(0, where % parts.length)
          .map((part) => `${part},`)
          .join("")}`;
        const text = `${before};${parts.slice(where % parts.length).join(",")}]`;
        expect(findJsonFault(text)?.index).toBe(before.length);
      }),
    );
  });

  it("accepts nesting as deep as JSON.parse does", () => {
    const depth = 100_000;
    const text = `${"[".repeat(depth)}${"]".repeat(depth)}`;
    expect(isJson(text)).toBe(true);
    expect(findJsonFault(text)).toBeUndefined();
    expect(findJsonFault(text.slice(0, -1))?.index).toBe(2 * depth - 1);
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
    ['["a\nb"]', 3, "got U+000A"],
    ["[1] [2]", 4, 'expected the end of the text, got "["'],
    ["\ufeff[]", 0, "got U+FEFF"],
    ["", 0, "got the end of the text"],
  ])("explains %j", (text, index, reason) => {
    const fault = findJsonFault(text);
    expect(fault?.index).toBe(index);
    expect(fault?.reason).toContain(reason);
  });
});

describe("placeOf", () => {
  it("counts lines and columns from 1", () => {
    const text = '{\n  "a": 1,\n  b\n}';
    expect(placeOf(text, text.indexOf("b"))).toEqual({ line: 3, column: 3, excerpt: "  b\n  ^" });
    expect(placeOf("x", 0)).toEqual({ line: 1, column: 1, excerpt: "x\n^" });
  });

  it("counts characters, not UTF-16 units", () => {
    expect(placeOf('["😀" 1]', 6)).toEqual({ line: 1, column: 6, excerpt: '["😀" 1]\n     ^' });
  });

  it("returns the position after a text that ends too early", () => {
    expect(placeOf("[1,", 3).excerpt).toBe("[1,\n   ^");
    expect(placeOf("[1,\n", 4)).toEqual({ line: 2, column: 1, excerpt: "\n^" });
  });

  it("cuts a long line around the place", () => {
    const text = `[${"1,".repeat(500)}x,${"2,".repeat(500)}3]`;
    const { column, excerpt } = placeOf(text, text.indexOf("x"));
    const [line, caret] = excerpt.split("\n") as [string, string];
    expect(column).toBe(1002);
    expect(line.length).toBeLessThan(85);
    expect(line[caret.indexOf("^")]).toBe("x");
    expect(line).toMatch(/^….*…$/);
  });

  it("shows a space for a character that would move the cursor", () => {
    expect(placeOf("[\t\u001b[31m x", 8).excerpt).toBe("[  [31m x\n        ^");
  });
});
