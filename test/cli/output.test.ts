import { stripVTControlCharacters } from "node:util";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  colorJson,
  describe as describeError,
  jsonLine,
  Output,
  printable,
  type Stream,
} from "../../src/cli/output.js";

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

const terminal = (allowColor = true, env: NodeJS.ProcessEnv = {}): Output =>
  new Output(new Screen(true), allowColor, env);

describe("Output", () => {
  it("prints compact JSON to a pipe and indented, coloured JSON to a terminal", () => {
    const value = { a: ["x", 1] };
    expect(new Output(new Screen(false), true, {}).json(value)).toBe('{"a":["x",1]}');
    expect(stripVTControlCharacters(terminal().json(value))).toBe(JSON.stringify(value, null, 2));
    expect(terminal().json(value)).toContain("\u001b[32m");
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
    expect(jsonLine(value)).not.toMatch(/\p{Cc}/u);
    expect(JSON.parse(jsonLine(value))).toBe(value);
  });
});

describe("one line about an error", () => {
  it("ends with the place in a file", () => {
    const error = new TypeError("two\n  lines");
    expect(describeError(error)).toMatch(/^TypeError: two lines \(\/.*output\.test\.ts:\d+:\d+\)$/);
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
    expect(printable(`a${" ".repeat(60_000)}b \n\t\n c`)).toBe(`a${" ".repeat(60_000)}b c`);
    expect(performance.now() - begin).toBeLessThan(500);
  });

  it("has no terminal control characters", () => {
    expect(printable("a\u001b[2Jb\u009bc\r\n d")).toBe("a\\x1b[2Jb\\x9bc d");
  });
});
