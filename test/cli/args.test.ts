import { describe, expect, it } from "vitest";
import { hostAndPort, readArgs, readUrl, UsageError, type Grammar } from "../../src/cli/args.js";
import { parseParams, readParams } from "../../src/cli/params.js";

const GRAMMAR: Grammar = {
  arguments: ["URL", "METHOD", "[PARAMS]"],
  options: [
    "json",
    "timeout",
    "header",
    "port",
    "path",
    "host",
    "plain",
    "allow-host",
    "allow-origin",
    "drain-timeout",
    "once",
  ],
};
const read = (...argv: string[]) => readArgs(GRAMMAR, ["url", "method", ...argv]);

describe("readArgs", () => {
  it("reads every option, in any position", () => {
    expect(
      readArgs(GRAMMAR, ["--json", "url", "--timeout", "250", "method", "--port=0", "--path", "/rpc", "[]"]),
    ).toMatchObject({
      arguments: ["url", "method", "[]"],
      json: true,
      timeoutMs: 250,
      port: 0,
      path: "/rpc",
      host: undefined,
      help: false,
      plain: false,
      allowedHosts: undefined,
      allowedOrigins: undefined,
    });
    expect(read("--plain").plain).toBe(true);
    expect([read("--once").once, read().once]).toEqual([true, false]);
    expect([read("--drain-timeout", "5").drainTimeoutMs, read().drainTimeoutMs]).toEqual([5, undefined]);
  });

  it("collects the allowed hosts and origins", () => {
    expect(read("--allow-host", "example.org", "--allow-host", "[fe80::1]:3000").allowedHosts).toEqual([
      "example.org",
      "[fe80::1]:3000",
    ]);
    const origins = ["https://example.org:8443", "null", "chrome-extension://abc"];
    expect(read(...origins.map((origin) => `--allow-origin=${origin}`)).allowedOrigins).toEqual(origins);
    expect(read("--allow-origin", "https://example.org", "--allow-origin", "*").allowedOrigins).toBe("*");
  });

  it("treats a lone hyphen, and everything after --, as arguments", () => {
    expect(read("-").arguments[2]).toBe("-");
    expect(read("--", "--json")).toMatchObject({ arguments: ["url", "method", "--json"], json: false });
  });

  it("collects headers of one name, in any case", () => {
    const { headers } = read("--header", "Cookie: a=1", "--header", "cookie:b=2", "--header", "X-Empty:");
    expect({ ...headers }).toEqual({ cookie: ["a=1", "b=2"], "x-empty": [""] });
  });

  it("treats __proto__ as an ordinary header", () => {
    const { headers } = read("--header", "__proto__: x");
    expect(Object.entries(headers)).toEqual([["__proto__", ["x"]]]);
  });

  it.each([
    [["--timeout", "0"], /--timeout takes milliseconds.*got "0"/],
    [["--drain-timeout", "0"], /--drain-timeout takes milliseconds.*got "0"/],
    [["--timeout", "1.5"], /--timeout takes milliseconds/],
    [["--timeout", "2147483648"], /from 1 to 2147483647/],
    [["--timeout", "soon"], /got "soon"/],
    [["--timeout"], /^--timeout needs a value$/],
    [["--timeout", "-5"], /^--timeout needs a value$/],
    [["--port", "65536"], /--port takes a whole number from 0 to 65535/],
    [["--port", ""], /--port takes/],
    [["--path", "rpc"], /--path takes a path such as \/rpc, got "rpc"/],
    [["--path", "/a?b"], /--path takes/],
    [["--host", ""], /--host takes/],
    [["--allow-host", ""], /^--allow-host takes a name such as example.org, got ""$/],
    [["--allow-host", "https://example.org"], /--allow-host takes/],
    [["--allow-host", "*.example.org"], /--allow-host takes/],
    [["--allow-host", "1.2.3"], /^--allow-host takes a name such as example.org, got "1.2.3"$/],
    [["--allow-host", "münchen.example"], /--allow-host takes/],
    [["--allow-origin", "example.org"], /^--allow-origin takes an origin such as https:\/\/example.org, or "\*", got/],
    [["--allow-origin", "localhost:5173"], /--allow-origin takes/],
    [["--allow-origin", "https://example.org/"], /--allow-origin takes/],
    [["--allow-origin", "https://*.example.org"], /--allow-origin takes/],
    [["--allow-origin", "app://example?a"], /--allow-origin takes/],
    [["--allow-origin", "*", "--allow-origin", "https://EXAMPLE.org"], /got "https:\/\/EXAMPLE.org"/],
    [["--header", "nothing"], /--header takes "Name: value"/],
    [["--header", ": value"], /--header takes/],
    [["--header", "Bad Name: value"], /--header takes/],
    [["--header", "Name: a\r\nEvil: b"], /--header takes/],
    [["--json=yes"], /^option "--json" does not take an argument$/],
    [["--nope"], /^unknown option "--nope"$/],
    [["-x"], /^unknown option "-x"$/],
    [["[1,", "2]"], /one argument too many: "2\]"; PARAMS is one argument/],
  ])("refuses %j", (argv, message) => {
    expect(() => read(...argv)).toThrow(UsageError);
    expect(() => read(...argv)).toThrow(message);
  });

  it("names the first argument that is missing, unless help is asked for", () => {
    expect(() => readArgs(GRAMMAR, [])).toThrow(/^URL is missing$/);
    expect(() => readArgs(GRAMMAR, ["url"])).toThrow(/^METHOD is missing$/);
    expect(readArgs(GRAMMAR, ["-h"]).help).toBe(true);
  });

  it("never repeats a header, which may be a secret", () => {
    expect(() => read("--header", "Authorization Bearer hunter2")).toThrow(
      expect.objectContaining({ message: expect.not.stringContaining("hunter2") as string }) as Error,
    );
  });

  it("refuses options of another command", () => {
    expect(() => readArgs({ arguments: [], options: ["port"] }, ["--json"])).toThrow(/unknown option "--json"/);
  });
});

describe("readArgs for a command that takes another", () => {
  const grammar: Grammar = {
    arguments: ["COMMAND", "[ARGS...]"],
    options: ["framing", "port", "max-connections", "max-message-bytes"],
    takesCommand: true,
  };

  it("passes everything after -- to that command", () => {
    expect(
      readArgs(grammar, ["--port", "1", "--framing=lines", "--", "x", "--port", "2", "--", "--help"]),
    ).toMatchObject({
      arguments: ["x", "--port", "2", "--", "--help"],
      framing: "lines",
      port: 1,
      help: false,
    });
  });

  it("reads the limits", () => {
    const limits = ["--max-connections", "1", "--max-message-bytes", "268435456"];
    expect(readArgs(grammar, [...limits, "--", "x"])).toMatchObject({ maxConnections: 1, maxMessageBytes: 268435456 });
    expect(readArgs(grammar, ["--", "x"])).toMatchObject({
      framing: undefined,
      maxConnections: undefined,
      maxMessageBytes: undefined,
    });
  });

  it("prints its usage without a command", () => {
    expect(readArgs(grammar, ["-h"]).help).toBe(true);
    expect(readArgs(grammar, ["--port", "1", "--help"]).help).toBe(true);
  });

  it.each([
    [["x", "--port", "1"], /^"--" is missing; COMMAND and its arguments must follow it$/],
    [[], /^"--" is missing/],
    [["--"], /^COMMAND is missing$/],
    [["x", "--", "y"], /^COMMAND must follow "--", got "x" before it$/],
    [["--fly", "--", "y"], /^unknown option "--fly"$/],
    [["--port", "--", "y"], /^--port needs a value$/],
    [["--framing", "LSP", "--", "y"], /^--framing takes lsp or lines, got "LSP"$/],
    [["--max-connections", "0", "--", "y"], /^--max-connections takes a whole number from 1 up, got "0"$/],
    [["--max-connections", "1e2", "--", "y"], /got "1e2"$/],
    [["--max-connections", "9".repeat(30), "--", "y"], /--max-connections takes/],
    [["--max-message-bytes", "268435457", "--", "y"], /takes a whole number from 1 to 268435456, got "268435457"$/],
  ])("refuses %j", (argv, message) => {
    expect(() => readArgs(grammar, argv)).toThrow(UsageError);
    expect(() => readArgs(grammar, argv)).toThrow(message);
  });
});

describe("readUrl", () => {
  it.each([
    ["ws://a/b", "ws://a/b"],
    ["wss://a:1/b?c", "wss://a:1/b?c"],
    ["https://a/b", "https://a/b"],
    ["localhost:3000", "ws://localhost:3000/"],
    ["example.org/rpc", "ws://example.org/rpc"],
    ["[::1]:80/x", "ws://[::1]/x"],
  ])("reads %s", (text, href) => {
    expect(readUrl(text).href).toBe(href);
  });

  it.each(["", "3000", ":3000", "ftp://a", "ws://", "ws://a:99999", "file:///etc"])("refuses %j", (text) => {
    expect(() => readUrl(text)).toThrow(UsageError);
  });

  it("names host and port, and nothing secret", () => {
    expect(hostAndPort(readUrl("ws://user:secret@example.org/rpc?token=1"))).toBe("example.org:80");
    expect(hostAndPort(readUrl("wss://example.org"))).toBe("example.org:443");
    expect(hostAndPort(readUrl("localhost:3000"))).toBe("localhost:3000");
  });
});

async function* stdin(...chunks: Uint8Array[]): AsyncIterable<Uint8Array> {
  yield* chunks;
}

describe("params", () => {
  it("are an array or an object, as typed", () => {
    expect(parseParams(' {"a": [1]} ', "PARAMS")).toEqual({ a: [1] });
    expect(parseParams("[]", "PARAMS")).toEqual([]);
  });

  it.each([
    ["3", "a number"],
    ['"x"', "a string"],
    ["true", "a boolean"],
    ["null", "null"],
  ])("refuse %s", (text, kind) => {
    expect(() => parseParams(text, "PARAMS")).toThrow(`PARAMS must be a JSON array or object, got ${kind}`);
  });

  it("are read from standard input for a hyphen, even if a character is split between chunks", async () => {
    const bytes = new TextEncoder().encode('\ufeff["é"]');
    await expect(readParams("-", stdin(bytes.subarray(0, 6), bytes.subarray(6)))).resolves.toEqual(["é"]);
    await expect(readParams("-", stdin(Uint8Array.of(0xff)))).rejects.toThrow("standard input is not UTF-8");
    await expect(readParams("-", stdin())).rejects.toThrow("standard input is empty");
  });

  it("report the position of a fault", () => {
    expect(() => parseParams('{"a": 1,}', "PARAMS")).toThrow(
      expect.objectContaining({
        message: expect.stringMatching(/^PARAMS is not JSON: .*\(line 1, column 9\)$/) as string,
        excerpt: '{"a": 1,}\n        ^',
      }) as Error,
    );
  });

  it.each([
    ["[1,\n", "expected a value, got the end of the text (line 1, column 4)", "[1,\n   ^"],
    [
      '{\n  "a": [1, 2\r\n \t\n',
      '"," or "]", got the end of the text (line 2, column 13)',
      '  "a": [1, 2\n            ^',
    ],
    ['["abc\n', 'expected a closing ", got the end of the text (line 1, column 6)', '["abc\n     ^'],
    ["[1]\u00a0\n", "got U+00A0 (line 1, column 4)", "[1]\n   ^"],
  ])(
    "report the position of the last character of %j, not of the blank lines after it",
    async (text, message, excerpt) => {
      await expect(readParams("-", stdin(new TextEncoder().encode(text)))).rejects.toMatchObject({
        message: expect.stringContaining(message) as string,
        excerpt,
      });
    },
  );
});
