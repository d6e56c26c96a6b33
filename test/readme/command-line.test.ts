/** Runs the commands of docs/CLI.md, at a free port in place of 3000. */
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { virtualClock } from "../../src/testing/index.js";
import { MAIN, run, type Ended } from "../cli/program.js";
import { connect } from "../support/connect.js";
import { clean, extract, folder, Running } from "./examples.js";

const PAGE = await readFile("docs/CLI.md", "utf8");

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

let server: Running;
let port: string;

const withPort = (text: string): string => text.replaceAll(/\b(localhost|127\.0\.0\.1):3000/g, `$1:${port}`);

/** Returns what commands print: the program in a shell if there is a pipe, else in this process, whose time stands still. */
async function printedBy({ commands }: Block): Promise<string> {
  if (commands.some((one) => one.includes(" | "))) {
    const program = `"${process.execPath}" "${MAIN}" $1 --timeout 240000`;
    const script = withPort(commands.join("\n")).replaceAll(/reciproc (.*)/g, program);
    return (await promisify(execFile)("sh", ["-c", script])).stdout.trimEnd();
  }
  const clock = virtualClock();
  try {
    return await printedHere(commands);
  } finally {
    clock.restore();
  }
}

/** Returns what commands print in this process. */
async function printedHere(commands: readonly string[]): Promise<string> {
  let [printed, last]: [string, Ended] = ["", { code: 0, stdout: "", stderr: "" }];
  for (const command of commands) {
    const [, ...words] = withPort(command).match(/'[^']*'|\S+/g)!;
    const args = words.map((word) => word.replaceAll("'", ""));
    last = command === "echo $?" ? { ...last, stdout: `${last.code}\n`, stderr: "" } : await run(args);
    printed += last.stdout + last.stderr;
  }
  return printed.trimEnd();
}

beforeAll(async () => {
  await extract("docs/CLI.md");
  const [, ...args] = SERVING.commands[0]!.split(" ");
  server = new Running(MAIN, [...args, "--port", "0"], {}, folder);
  port = new URL((await server.line(/./)).replace("listening on ", "")).port;
});
afterAll(async () => {
  await server.stop();
  await clean();
});

describe("the page on the command line, docs/CLI.md", () => {
  it("has commands that print what it shows", async () => {
    expect(server.lines[0]).toBe(withPort(SERVING.printed));
    expect(ENDING.length).toBeGreaterThan(4);
    for (const block of ENDING.slice(0, -1)) expect(await printedBy(block)).toBe(withPort(block.printed));
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
    expect(await printedBy(UNREACHABLE)).toBe(withPort(UNREACHABLE.printed));
  });
});
