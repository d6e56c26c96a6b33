/** Runs the commands of docs/CLI.md in a shell, at a free port in place of 3000. */
import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../support/connect.js";
import { examplesOf, Running } from "./examples.js";

const MAIN = join(import.meta.dirname, "../../dist/cli/main.js");
const PAGE = await readFile("docs/CLI.md", "utf8");
const [api] = await examplesOf("docs/CLI.md");

interface Block {
  readonly commands: string[];
  readonly printed: string;
}
const isCommand = (line: string): boolean => line.startsWith("$ ");
const blocks: Block[] = [...PAGE.matchAll(/^```console\n([\s\S]*?)^```$/gm)].map(([, text]) => {
  const lines = text!.trimEnd().split("\n");
  return {
    commands: lines.filter(isCommand).map((line) => line.slice(2)),
    printed: lines.filter((line) => !isCommand(line)).join("\n"),
  };
});
const blockOf = (command: string): Block => blocks.find(({ commands }) => commands.includes(command))!;
/** These end by themselves. The last one needs a port at which nothing listens. */
const ENDING = blocks.filter(({ commands }) =>
  commands.every((one) => /reciproc (call localhost|call ws|notify|connect)|^echo/.test(one)),
);
const UNREACHABLE = ENDING.at(-1)!;
const SERVING = blockOf("reciproc serve api.mjs");

let folder: string;
let env: NodeJS.ProcessEnv;
let server: Running;
let line: string;
let port: string;

const withPort = (text: string): string => text.replaceAll(/\b(localhost|127\.0\.0\.1):3000/g, `$1:${port}`);

/** Runs commands in one shell. Returns what they print, on both outputs. */
async function shell(...commands: string[]): Promise<string> {
  const script = withPort(`exec 2>&1\n${commands.join("\n")}`);
  // The exit code is that of the last command, which an example may show.
  const run = promisify(execFile)("sh", ["-c", script], { cwd: folder, env });
  const { stdout } = await run.catch((error: unknown) => error as { stdout: string });
  return stdout.trimEnd();
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "reciproc-cli-"));
  await writeFile(join(folder, api!.name), api!.code);
  await writeFile(join(folder, "reciproc"), `#!/bin/sh\nexec "${process.execPath}" "${MAIN}" "$@"\n`);
  await chmod(join(folder, "reciproc"), 0o755);
  env = { ...process.env, PATH: `${folder}${delimiter}${process.env["PATH"]}` };
  const [, ...args] = SERVING.commands[0]!.split(" ");
  server = new Running(MAIN, [...args, "--port", "0"], {}, folder);
  line = await server.line(/./);
  port = new URL(line.replace("listening on ", "")).port;
});
afterAll(async () => {
  await server.stop();
  await rm(folder, { recursive: true });
});

describe("the page on the command line, docs/CLI.md", () => {
  it("has a command that serves a file", () => expect(line).toBe(withPort(SERVING.printed)));

  it("has commands that print what it shows", async () => {
    expect(ENDING.length).toBeGreaterThan(4);
    // Again if the server was not scheduled for the 2 s in which a command waits for the names of its methods.
    for (const { commands, printed } of ENDING)
      if (printed !== UNREACHABLE.printed) await expect.poll(() => shell(...commands)).toBe(withPort(printed));
  });

  it("has a command that prints what a server sends", async () => {
    const { commands, printed } = blockOf("reciproc listen localhost:3000");
    const [, command, address] = withPort(commands[0]!).split(" ");
    const client = new Running(MAIN, [command!, address!, "--timeout", "600000"]);
    // Again until the client listens, which it does not report.
    await using peer = await connect(withPort("ws://localhost:3000"));
    await expect.poll(async () => (await peer.request("announce", { text: "hello" }), client.lines[0])).toBe(printed);
    expect(await client.stop("SIGINT")).toBe(0);
  });

  it("shows what a command prints if nothing listens", async () => {
    await server.stop("SIGINT");
    expect(await shell(...UNREACHABLE.commands)).toBe(withPort(UNREACHABLE.printed));
  });
});
