/** Runs the command line: as a function in this process, and as the built program (build it first). */
import { spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { run as runProgram } from "../../src/cli/program.js";
import { gate } from "../support/turns.js";
import { bareHttp } from "../support/network.js";

export const MAIN = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

export interface Ended {
  /** The exit code; null when a signal ended it. */
  code: number | null;
  stdout: string;
  stderr: string;
}

/** The standard output or the standard error of a run in this process. If it is broken, each write fails. */
class Screen extends EventEmitter {
  readonly isTTY: boolean;
  /** Few, so that what a person types is wrapped. */
  readonly columns = 20;
  readonly #error: Error | undefined;

  constructor(isTTY: boolean, broken?: string) {
    super();
    this.isTTY = isTTY;
    if (broken !== undefined) this.#error = Object.assign(new Error(`${broken}: it failed`), { code: broken });
  }

  write(text: string, done?: (error?: Error) => void): void {
    if (this.#error === undefined) this.emit("data", text);
    else this.emit("error", this.#error);
    queueMicrotask(() => done?.(this.#error));
  }
}

export interface Given {
  stdin?: AsyncIterable<Uint8Array> | readonly Uint8Array[];
  /** Whether the standard output and the standard error are terminals. Default: neither. */
  isTTY?: boolean | { stdout: boolean; stderr: boolean };
  env?: NodeJS.ProcessEnv;
  /** The code with which every write to the standard output fails. */
  broken?: string;
}

/** Returns what is known of a run, by its exit code and by the `data` events of its outputs. */
function observe(code: Promise<number | null>, outputs: Record<"stdout" | "stderr", EventEmitter>) {
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    outputs[name].on("data", (text: string) => void (printed[name] += text));
  const ended = code.then((exitCode): Ended => ({ code: exitCode, ...printed }));
  /** Resolves with all output of that stream when it contains `wanted`. Rejects if the run ends before. */
  const until = (output: "stdout" | "stderr", wanted: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const look = (): void => void (printed[output].includes(wanted) && resolve(printed[output]));
      look();
      outputs[output].on("data", look);
      void ended.then((end) => reject(new Error(`ended without ${wanted}: ${JSON.stringify(end)}`)));
    });
  return { ended, until };
}

/** Begins a run in this process, and ends it by SIGINT at the end of the test. */
export function begin(args: readonly string[], given: Given = {}) {
  const { stdin = [], isTTY = false, env = {}, broken } = given;
  const isTerminal = typeof isTTY === "boolean" ? { stdout: isTTY, stderr: isTTY } : isTTY;
  const screens = { stdout: new Screen(isTerminal.stdout, broken), stderr: new Screen(isTerminal.stderr) };
  const signalled = gate<NodeJS.Signals>();
  const input = Symbol.asyncIterator in stdin ? stdin : Readable.from(stdin);
  const surroundings = { ...screens, stdin: input, env, untilSignal: () => signalled.promise };
  const begun = observe(
    Promise.resolve().then(() => runProgram(args, surroundings)),
    screens,
  );
  onTestFinished(async () => {
    signalled.resolve("SIGINT");
    await begun.ended;
  });
  return { ...begun, signal: signalled.resolve };
}

export function run(args: readonly string[], given?: Given): Promise<Ended> {
  return begin(args, given).ended;
}

/** Starts the built program, and kills it at the end of the test. */
export function start(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, ...env } });
  onTestFinished(() => void child.kill("SIGKILL"));
  for (const output of [child.stdout, child.stderr]) output.setEncoding("utf8");
  const code = new Promise<number | null>((resolve) => child.on("close", resolve));
  return { child, ...observe(code, child) };
}

/** Begins `reciproc serve` or `bridge` on a free port. Resolves with its address when it has printed that. */
export async function beginListening(args: readonly string[]) {
  const [name, ...rest] = args as [string, ...string[]];
  const running = begin([name, "--port", "0", ...rest]);
  return { ...running, url: addressIn(await running.until("stdout", "\n")) };
}

export function addressIn(printed: string): string {
  return printed.replace(/^listening on (\S+)\n$/, "$1");
}

/** Writes a file into a temporary directory that is removed after the test. Returns its path. */
export async function file(name: string, text: string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "reciproc-cli-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const path = join(directory, name);
  await writeFile(path, text);
  return path;
}

/** Starts a plain server that passes each connection to `onSocket`. Returns its URL. */
export async function plainServer(onSocket: (socket: WebSocket, request: IncomingMessage) => void): Promise<string> {
  const { server, url, ...http } = await bareHttp();
  new WebSocketServer({ server }).on("connection", onSocket);
  onTestFinished(() => http[Symbol.asyncDispose]());
  return url;
}
