import { stripVTControlCharacters } from "node:util";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { colorJson, describe as describeError, Output, type Stream } from "../../src/cli/output.js";

class Screen implements Stream {
  text = "";
  readonly isTTY: boolean;
  #fail: ((error: Error) => void) | undefined;

  constructor(isTTY: boolean) {
    this.isTTY = isTTY;
  }

  write(text: string, done?: () => void): void {
    this.text += text;
    done?.();
  }

  on(_event: "error", listener: (error: Error) => void): void {
    this.#fail = listener;
  }

  fail(code: string): void {
    this.#fail!(Object.assign(new Error(`${code}: it failed`), { code }));
  }
}

/** Returns what an output writes. */
function written(isTTY: boolean, write: (output: Output) => void, allowColor = true): string {
  const screen = new Screen(isTTY);
  write(new Output(screen, allowColor, {}));
  return screen.text;
}

const terminal = (allowColor = true, env: NodeJS.ProcessEnv = {}): Output =>
  new Output(new Screen(true), allowColor, env);

describe("Output", () => {
  it("prints compact JSON to a pipe and indented, coloured JSON to a terminal", () => {
    const value = { a: ["x", 1] };
    expect(written(false, (output) => output.json(value))).toBe('{"a":["x",1]}\n');
    const shown = written(true, (output) => output.json(value));
    expect(stripVTControlCharacters(shown)).toBe(`${JSON.stringify(value, null, 2)}\n`);
    expect(shown).toContain("\u001b[32m");
  });

  it("shows no colour with --no-color, NO_COLOR, a dumb terminal or a pipe", () => {
    expect(terminal().color).toBe(true);
    expect(terminal(false).color).toBe(false);
    expect(terminal(true, { NO_COLOR: "1" }).color).toBe(false);
    expect(terminal(true, { TERM: "dumb" }).color).toBe(false);
    expect(new Output(new Screen(false), true, { FORCE_COLOR: "1" }).color).toBe(false);
    expect(terminal(true, { NO_COLOR: "" }).color).toBe(true);
  });

  it("drops output after its reader closed the pipe, without an error", async () => {
    const screen = new Screen(false);
    const output = new Output(screen, true, {});
    output.line("one");
    screen.fail("EPIPE");
    output.line("two");
    await output.broken;
    expect(screen.text).toBe("one\n");
    await expect(output.flushed()).resolves.toBeUndefined();
  });

  it("reports at the end that the disk was full", async () => {
    const screen = new Screen(false);
    const output = new Output(screen, true, {});
    screen.fail("ENOSPC");
    await expect(output.flushed()).resolves.toMatchObject({ code: "ENOSPC" });
  });
});

/** Values without raw escape characters. JSON escapes them, and C1 controls would be stripped. */
const json = fc
  .json()
  .filter((text) => !/\p{Cc}/u.test(text))
  .map((text): unknown => JSON.parse(text));

describe("JSON output", () => {
  it("is the same JSON without its colours", () => {
    fc.assert(
      fc.property(json, fc.constantFrom(0, 2), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        const colored = colorJson(text);
        expect(stripVTControlCharacters(colored)).toBe(text);
        expect(colored.includes("\u001b[")).toBe(/["\dtfn]/.test(text));
      }),
    );
  });

  it("has no raw control character and the same value", () => {
    const value = "\u0000\u001b[31m\u007f\u009b31mé";
    const text = written(false, (output) => output.json(value));
    expect(text).not.toMatch(/(?!\n)\p{Cc}/u);
    expect(JSON.parse(text)).toBe(value);
  });
});

/** Each kind of character that a terminal may execute, or not show as it is. */
const INVISIBLE: Record<string, string> = {
  "a control": "\u001b\u0007\r\t",
  DEL: "\u007f",
  "a C1 control": "\u0085\u009b\u009f",
  "a mark that changes the direction": "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
  "a line separator": "\u2028\u2029",
  "a character of no width": "\u00ad\u200b\u200c\u200d\u2060\ufeff",
  "a tag": "\u{e0001}\u{e0041}",
};
const ANY_INVISIBLE = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;

describe.each(Object.entries(INVISIBLE))("%s", (_kind, characters) => {
  it.each([true, false])("is escaped in every text (a terminal: %s), and JSON stays the same value", (isTTY) => {
    const text = `a${[...characters].join("b")}c`;
    const whole = written(isTTY, (output) => output.json({ [text]: text }), false);
    const line = written(isTTY, (output) => output.jsonText(JSON.stringify(text)), false);
    expect([JSON.parse(whole), JSON.parse(line)]).toEqual([{ [text]: text }, text]);
    const plain = [
      written(isTTY, (output) => output.line(text)),
      written(isTTY, (output) => output.alarm(text), false),
      written(isTTY, (output) => output.alarm(describeError(new Error(text))), false),
    ];
    for (const shown of [whole, line, ...plain]) expect(shown).not.toMatch(ANY_INVISIBLE);
    expect(JSON.parse(`"${plain[0]!.trimEnd()}"`)).toBe(text);
  });
});

it("escapes any text: what is left of it is one line that a terminal only shows", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), fc.boolean(), (text, isTTY) => {
      expect(written(isTTY, (output) => output.alarm(text), false)).toMatch(/^[^\n]*\n$/);
      expect(written(isTTY, (output) => output.alarm(text), false)).not.toMatch(ANY_INVISIBLE);
      const coloured = written(isTTY, (output) => output.json(text));
      expect(stripVTControlCharacters(coloured)).not.toMatch(ANY_INVISIBLE);
    }),
  );
});

describe("one line about an error", () => {
  it("ends with the place in a file", () => {
    const error = new TypeError("two\n  lines");
    expect(describeError(error)).toMatch(/^TypeError: two\n  lines \(\/.*output\.test\.ts:\d+:\d+\)$/);
  });

  it("can be made for any thrown value", () => {
    const hostile = new Proxy(new Error("x"), {
      get() {
        throw new Error("no");
      },
      getPrototypeOf() {
        throw new Error("no");
      },
    });
    expect(describeError(null)).toBe("null");
    expect(describeError({ a: 1 })).toBe("{ a: 1 }");
    expect(describeError(hostile)).toBe("a value that cannot be shown");
  });

  it("is made in linear time, whatever blanks the error has", () => {
    const begin = performance.now();
    const text = `a${" ".repeat(60_000)}b \n\t\n c`;
    expect(written(false, (output) => output.alarm(text))).toBe(`a${" ".repeat(60_000)}b c\n`);
    expect(performance.now() - begin).toBeLessThan(500);
  });

  it("has no terminal control characters", () => {
    const text = written(false, (output) => output.alarm("a\u001b[2Jb\u009bc\r\n d"));
    expect(text).toBe("a\\u001b[2Jb\\u009bc d\n");
  });
});
