import { readFile } from "node:fs/promises";
import { describe, expect, it } from "vitest";
import { MAIN, run } from "./program.js";

const COMMANDS = ["serve", "call", "notify", "listen", "connect", "bridge"];
const NOWHERE = "127.0.0.1:1";

describe("reciproc", () => {
  it("begins with the shebang line, and prints the version of the package", async () => {
    expect(await readFile(MAIN, "utf8")).toMatch(/^#!\/usr\/bin\/env node\n/);
    const { version } = JSON.parse(await readFile("package.json", "utf8")) as { version: string };
    expect(await run(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
  });

  it("lists its commands for --help and -h, and as an error without arguments", async () => {
    const asked = await run(["--help"]);
    expect(asked).toMatchObject({ code: 0, stderr: "" });
    for (const name of COMMANDS) expect(asked.stdout).toContain(`reciproc ${name} `);
    expect(await run(["-h"])).toEqual(asked);
    expect(await run([])).toEqual({ code: 64, stdout: "", stderr: asked.stdout });
  });

  it.each(COMMANDS)("explains %s, whatever else is missing", async (name) => {
    const { code, stdout, stderr } = await run([name, "--help"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(new RegExp(`^Usage: reciproc ${name} `));
    expect(stdout).toContain("Exit codes: 0 ");
    for (const line of stdout.split("\n")) expect(line.length).toBeLessThanOrEqual(120);
    expect(await run([name, "-h"])).toMatchObject({ code: 0, stdout });
  });
});

const call = (...argv: string[]): string[] => ["call", NOWHERE, "method", ...argv];
const serve = (...argv: string[]): string[] => ["serve", "api.js", ...argv];

it.each<[argv: string[], message: RegExp]>([
  [["fly"], /^reciproc: unknown command "fly"; see `reciproc --help`\n$/],
  [["--fly"], /^reciproc: unknown option "--fly"; options must follow the command; see `reciproc --help`\n$/],
  [["call", "--fly"], /^reciproc call: unknown option "--fly"; see `reciproc call --help`\n$/],
  [call("-x"), /unknown option "-x";/],
  [call("--port", "1"), /unknown option "--port";/],
  [serve("--json"), /unknown option "--json";/],
  [call("--json=yes"), /option "--json" does not take an argument;/],
  [["call"], /^reciproc call: URL is missing;/],
  [["call", NOWHERE], /^reciproc call: METHOD is missing;/],
  [call("[1,", "2]"), /one argument too many: "2\]"; PARAMS is one argument/],
  [["listen", NOWHERE, "more"], /one argument too many: "more"; see/],
  [call("--timeout", "0"), /--timeout takes milliseconds.*got "0"/],
  [call("--timeout", "1.5"), /--timeout takes milliseconds/],
  [call("--timeout", "2147483648"), /from 1 to 2147483647/],
  [call("--timeout"), /: --timeout needs a value;/],
  [call("--header", "nothing"), /--header takes "Name: value"/],
  [call("--header", "Bad Name: value"), /--header takes/],
  [call("--header", "Name: a\r\nEvil: b"), /--header takes/],
  [call("--answer", "confirm"), /--answer takes METHOD=JSON or METHOD=@FILE, got "confirm"/],
  [call("--answer", "a="), /--answer a is empty;/],
  [call("--answer", "a=@no-such.mjs"), /there is no file "no-such.mjs";/],
  [call("3"), /: PARAMS must be a JSON array or object, got a number;/],
  [call("null"), /: PARAMS must be a JSON array or object, got null;/],
  [serve("--drain-timeout", "0"), /--drain-timeout takes milliseconds.*got "0"/],
  [serve("--port", "65536"), /--port takes a whole number from 0 to 65535/],
  [serve("--path", "rpc"), /--path takes a path such as \/rpc, got "rpc"/],
  [serve("--path", "/a?b"), /--path takes/],
  [serve("--host", ""), /--host takes/],
  [serve("--allow-host", ""), /--allow-host takes a name such as example.org, got ""/],
  [serve("--allow-host", "1.2.3"), /--allow-host takes a name such as example.org, got "1.2.3"/],
  [serve("--allow-origin", "example.org"), /--allow-origin takes an origin such as https:\/\/example.org, or "\*"/],
  [serve("--allow-origin", "*", "--allow-origin", "https://EXAMPLE.org"), /got "https:\/\/EXAMPLE.org"/],
  [["serve", "no-such-file.mjs"], /^reciproc serve: there is no file "no-such-file.mjs"; see `reciproc serve --help`/],
  [["serve", "."], /"\." is not a file/],
  [["bridge", "x", "--port", "1"], /"--" is missing; COMMAND and its arguments must follow it;/],
  [["bridge", "--"], /COMMAND is missing;/],
  [["bridge", "--", ""], /^reciproc bridge: COMMAND is empty; see `reciproc bridge --help`\n$/],
  [["bridge", "x", "--", "y"], /COMMAND must follow "--", got "x" before it/],
  [["bridge", "--port", "--", "y"], /--port needs a value/],
  [["bridge", "--framing", "LSP", "--", "y"], /--framing takes lsp or lines, got "LSP"/],
  [["bridge", "--max-connections", "0", "--", "y"], /--max-connections takes a whole number from 1 up, got "0"/],
  [["bridge", "--max-connections", "1e2", "--", "y"], /got "1e2"/],
  [["bridge", "--max-connections", "9".repeat(30), "--", "y"], /--max-connections takes/],
  [["bridge", "--max-message-bytes", "268435457", "--", "y"], /a whole number from 1 to 268435456, got "268435457"/],
  ...["", "3000", ":3000", "ftp://a", "ws://", "ws://a:99999", "file:///etc"].map((url): [string[], RegExp] => [
    ["call", url, "method"],
    /^reciproc call: URL is an address such as ws:/,
  ]),
])("a wrong command line is named in one line, with exit code 64: %j", async (argv, message) => {
  const { code, stdout, stderr } = await run(argv);
  expect({ code, stdout }).toEqual({ code: 64, stdout: "" });
  expect(stderr).toMatch(message);
  expect(stderr).toMatch(/^[^\n]+; see `reciproc[a-z ]* --help`\n$/);
});

it.each([
  ["--header", "Authorization Bearer hunter2"],
  ["--auth", "{hunter2}"],
])("a wrong command line is named without %s, which may be a secret", async (option, value) => {
  const { code, stderr } = await run(call(option, value));
  expect([code, stderr.includes(`${option} takes`), stderr.includes("hunter2")]).toEqual([64, true, false]);
});

describe("the address", () => {
  it.each([
    [`wss://${NOWHERE}/rpc`, NOWHERE],
    [`https://${NOWHERE}`, NOWHERE],
    ["ws://user:secret@127.0.0.1:1/rpc?token=secret", NOWHERE],
    ["[::1]:1/x", "[::1]:1"],
    ["ws://127.0.0.1", "127.0.0.1:80"],
    ["wss://127.0.0.1", "127.0.0.1:443"],
  ])("%s is reported as %s, and nothing of it that may be secret", async (url, shown) => {
    const { code, stdout, stderr } = await run(["call", url, "any"]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.startsWith(`cannot connect to ${shown}: `)).toBe(true);
    expect(stderr).not.toContain("secret");
  });

  it.each(["call", "notify", "listen"])("of no server makes %s exit 2 with host, port and reason", async (command) => {
    const stderr = `cannot connect to ${NOWHERE}: connection refused\n`;
    const args = command === "listen" ? [] : ["add"];
    expect(await run([command, NOWHERE, ...args])).toEqual({ code: 2, stdout: "", stderr });
  });

  it("of an unknown host makes call exit 2", async () => {
    const { code, stderr } = await run(["call", "ws://no-host.invalid", "any", "--timeout", "240000"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^cannot connect to no-host\.invalid:80: (host not found|.+looked up.+|getaddrinfo.+)\n$/);
  });
});
