import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { FRAMINGS, type Decoder, type FramingName } from "../../src/bridge/framing.js";
import { seed } from "../fuzz/run.js";

const MAX = 1000;

function cut(bytes: Buffer, places: readonly number[]): Buffer[] {
  const at = [0, ...places.map((place) => place % (bytes.length + 1)), bytes.length];
  at.sort((one, other) => one - other);
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end));
}

/** Returns the messages that a decoder reads from these chunks, as text, and the `error` that it threw. */
function read(decoder: Decoder, chunks: readonly (Buffer | string)[]): { texts: string[]; error?: string } {
  const texts: string[] = [];
  try {
    for (const chunk of chunks) for (const text of decoder.push(Buffer.from(chunk))) texts.push(String(text));
    for (const text of decoder.end()) texts.push(String(text));
    return { texts };
  } catch (error) {
    return { texts, error: (error as Error).message };
  }
}

const lsp = (...chunks: (Buffer | string)[]) => read(FRAMINGS.lsp.decoder(MAX), chunks);
const lines = (...chunks: (Buffer | string)[]) => read(FRAMINGS.lines.decoder(MAX), chunks);
const encode = (name: FramingName, text: string): Buffer => FRAMINGS[name].encode(Buffer.from(text));

const message = fc.json({ stringUnit: "binary" });
const chunking = fc.array(fc.nat(), { maxLength: 40 });

describe.each<[FramingName, fc.Arbitrary<string>]>([
  // A header counts the bytes, so a message may contain any bytes.
  ["lsp", fc.oneof(message, fc.string({ unit: "binary" }))],
  ["lines", message],
])("%s framing", (name, text) => {
  it("decodes every sequence of messages, split anywhere", () => {
    fc.assert(
      fc.property(fc.array(text, { maxLength: 8 }), chunking, (texts, places) => {
        const stream = Buffer.concat(texts.map((one) => encode(name, one)));
        expect(read(FRAMINGS[name].decoder(2 ** 20), cut(stream, places))).toEqual({ texts });
      }),
      { seed },
    );
  });

  it("throws only a TypeError that names rule and value, for any input", () => {
    const garbage = fc.oneof(
      fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom("\r\n", "\n", "\r", "Content-Length: 2\r\n", "Content-Length:", "{}", "\r\n\r\n")
        .map(Buffer.from),
    );
    fc.assert(
      fc.property(fc.array(garbage, { maxLength: 12 }), (chunks) => {
        const decoder = FRAMINGS[name].decoder(16);
        try {
          for (const chunk of chunks) for (const one of decoder.push(chunk)) expect(one.length).toBeLessThanOrEqual(16);
          for (const one of decoder.end()) expect(one.length).toBeLessThanOrEqual(16);
        } catch (error) {
          expect(error).toBeInstanceOf(TypeError);
          expect((error as Error).message).toMatch(/^Expected `[\w -]+` to be .*, got /s);
        }
      }),
      { seed },
    );
  });

  it("refuses a message that is not UTF-8, which no text frame may carry", () => {
    const bytes = Buffer.concat([Buffer.from('"'), Buffer.of(0xff, 0xfe), Buffer.from('"')]);
    const { error } = read(FRAMINGS[name].decoder(MAX), [FRAMINGS[name].encode(bytes)]);
    expect(error).toContain("`message` to be UTF-8");
  });

  it("accepts a message of exactly the limit, and none that is longer", () => {
    const fits = "1".repeat(MAX);
    const stream = Buffer.concat([encode(name, fits), encode(name, `${fits}1`)]);
    expect(read(FRAMINGS[name].decoder(MAX), [stream])).toEqual({
      texts: [fits],
      error: expect.stringContaining(String(MAX)) as string,
    });
  });
});

describe("lsp framing", () => {
  it("counts bytes and not characters", () => {
    expect(encode("lsp", '"ü€"').toString()).toBe('Content-Length: 7\r\n\r\n"ü€"');
  });

  it("reads header names in any case, beside a content type and headers it does not know", () => {
    const header = [
      "content-LENGTH:2",
      "Content-Type: application/vscode-jsonrpc; charset=utf-8",
      "X-Other: a: b",
      "X-Empty:",
    ];
    expect(lsp(`${header.join("\r\n")}\r\n\r\n{}`)).toEqual({ texts: ["{}"] });
    expect(lsp('Content-Type: a/b;charset="UTF8"\r\nContent-Length: 0002 \r\n\r\n[]')).toEqual({ texts: ["[]"] });
    expect(lsp("Content-Type: a/b\r\nContent-Length: 2\r\n\r\n[]")).toEqual({ texts: ["[]"] });
  });

  it("reads a header with blanks, and no other white space", () => {
    const blanks = " \t".repeat(1_900);
    expect(lsp(`X:${blanks}\n`).error).toContain('"Name: value" and CR LF');
    expect(lsp(`Content-Length:${blanks}2${blanks.slice(0, 90)}\r\n\r\n{}`)).toEqual({ texts: ["{}"] });
    expect(lsp("Content-Length:\u00a02\r\n\r\n{}").error).toContain("to be a whole number");
  });

  it("delivers an empty message as soon as its header has arrived", () => {
    const decoder = FRAMINGS.lsp.decoder(MAX);
    expect([...decoder.push(Buffer.from("Content-Length: 0\r\n\r\n"))].map(String)).toEqual([""]);
  });

  it.each([
    ["hello\n", "header", '"Name: value" and CR LF, got `hello` (string)'],
    ["Content-Length: 2\n\n{}", "header", "CR LF, got `Content-Length: 2` (string)"],
    ["Content-Length : 2\r\n", "header", '"Name: value"'],
    ['"}Content-Length: 2\r\n', "header", 'CR LF, got `"}Content-Length: 2` (string)'],
    ["\u001b[31mred\r\n", "header", "got `\ufffd[31mred` (string)"],
    ["Content-Length: \r\n", "Content-Length", "a whole number from 0 to 1000, got `` (string)"],
    ["Content-Length: 1e2\r\n", "Content-Length", "got `1e2`"],
    [`Content-Length: ${"9".repeat(400)}\r\n`, "Content-Length", `got \`${"9".repeat(60)}...`],
    ["Content-Length: 2\r\nContent-Length: 2\r\n", "Content-Length", "given once, 2 so far, got `2` (string)"],
    ["\r\n", "Content-Length", "in the header, got `undefined`"],
    ["Content-Type: a/b; charset=latin1\r\n", "charset of Content-Type", "utf-8, got `latin1` (string)"],
    ["x".repeat(4097), "header", `at most 4096 bytes long, got \`${"x".repeat(60)}...\``],
    ["X: y\r\n".repeat(683), "header", "at most 4096 bytes long, got `X: y"],
  ])("refuses %j, because of %s", (stream, name, why) => {
    const { texts, error } = lsp(stream);
    expect([texts, error]).toEqual([[], expect.stringContaining(`Expected \`${name}\` to be `)]);
    expect(error).toContain(why);
    // The error is the same byte by byte.
    expect(lsp(...[...stream].map((byte) => Buffer.from(byte, "latin1")))).toEqual({ texts, error });
  });

  it.each([
    ["Content-Le", "`header` to be complete, got `the end after 10 bytes`"],
    ["Content-Length: 5\r\n\r\n{}", "`message` to be 5 bytes long, got `the end after 2`"],
  ])("reports an end inside a header or a message: %j", (stream, error) => {
    expect(lsp(stream).error).toContain(error);
  });
});

describe("lines framing", () => {
  it("accepts CR LF as a line end, skips empty lines, and needs no end after the last line", () => {
    expect(lines('\n{"a":1}\r\n\r\n\n[2]\n3')).toEqual({ texts: ['{"a":1}', "[2]", "3"] });
    expect(lines("1\r", "\n2\r", "3\n")).toEqual({ texts: ["1", "2\r3"] });
  });

  it("accepts a line of exactly the limit before CR LF, and none that is longer, with or without its end", () => {
    const fits = "1".repeat(MAX);
    expect(lines(`${fits}\r`, "\n")).toEqual({ texts: [fits] });
    expect(lines(fits)).toEqual({ texts: [fits] });
    const error = expect.stringMatching(/^Expected `line` to be at most 1000 bytes long, got `100\d bytes/) as string;
    for (const long of [`${fits}1\n`, `${fits}1`, `${fits}11`]) expect(lines(long)).toEqual({ texts: [], error });
  });

  it("refuses a line that is too long before its end arrives", () => {
    const decoder = FRAMINGS.lines.decoder(MAX);
    const push = (): void => void [...decoder.push(Buffer.alloc(400, "1"))];
    push();
    push();
    expect(push).toThrow(/`line` to be at most 1000 bytes/);
  });

  it("joins a text of several lines into one with the same meaning", () => {
    const text = '{\r\n\t"a": [1,\n 12345678901234567890, "\\n"]\r\n}\r\n';
    const line = encode("lines", text).toString();
    expect(line).toBe('{  \t"a": [1,  12345678901234567890, "\\n"]  }  \n');
    expect(JSON.parse(line)).toEqual(JSON.parse(text));
  });

  it.each([['"a\nb"'], ["a\rb"]])("does not turn %j into JSON or into two lines", (text) => {
    const line = encode("lines", text).toString();
    expect(line).toMatch(/^[^\n\r]*\n$/);
    expect(line).toHaveLength(text.length + 1);
    expect(() => JSON.parse(line) as unknown).toThrow(SyntaxError);
  });
});
