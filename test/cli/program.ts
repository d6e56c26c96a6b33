/** Runs the command line: as a function in this process, and as the built program (build it first). */
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import { run as runProgram } from "../../src/cli/program.js";
import { serve, type AnyMethods, type Server, type ServeOptions } from "../../src/node.js";
import { gate } from "../support/turns.js";
import { listening } from "../support/network.js";

export const MAIN = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

/** The outcome of a run. */
export interface Ended {
  /** The exit code; null when a signal ended it. */
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A standard stream that keeps what is written. */
class Screen {
  readonly isTTY: boolean;
  text = "";
  onText: (() => void) | undefined;
  #onError: ((error: Error) => void) | undefined;
  #error: Error | undefined;

  constructor(isTTY: boolean) {
    this.isTTY = isTTY;
  }

  write(text: string, done?: (error?: Error) => void): void {
    if (this.#error === undefined) this.text += text;
    else this.#onError!(this.#error);
    this.onText?.();
    queueMicrotask(() => done?.(this.#error));
  }

  on(_event: "error", listener: (error: Error) => void): void {
    this.#onError = listener;
  }

  /** Lets every later write fail. */
  break(code: string): void {
    this.#error = Object.assign(new Error(`${code}: it failed`), { code });
  }
}

/** What a run in this process is given. */
export interface Given {
  stdin?: string | AsyncIterable<Uint8Array> | readonly Uint8Array[];
  /** Whether the standard output and the standard error are terminals. Default: neither. */
  isTTY?: boolean | { stdout: boolean; stderr: boolean };
  env?: NodeJS.ProcessEnv;
  /** The code with which every write to the standard output fails. */
  broken?: string;
}

/** A run in progress. */
export interface Running {
  readonly ended: Promise<Ended>;
  /** Resolves with all output of that stream when it contains `wanted`. Rejects if the run ends before. */
  until(output: "stdout" | "stderr", wanted: string): Promise<string>;
}

/** A run in this process. */
export interface RunningHere extends Running {
  readonly stdout: Screen;
  /** Sends the first signal. */
  signal(name: NodeJS.Signals): void;
}

/** Begins a run in this process, and ends it by SIGINT at the end of the test. */
export function begin(
  args: readonly string[],
  { stdin = "", isTTY = false, env = {}, broken }: Given = {},
): RunningHere {
  const isTerminal = typeof isTTY === "boolean" ? { stdout: isTTY, stderr: isTTY } : isTTY;
  const screens = { stdout: new Screen(isTerminal.stdout), stderr: new Screen(isTerminal.stderr) };
  if (broken !== undefined) screens.stdout.break(broken);
  const signalled = gate<NodeJS.Signals>();
  const chunks = typeof stdin === "string" ? [new TextEncoder().encode(stdin)] : stdin;
  const input = (async function* () {
    yield* chunks;
  })();
  const surroundings = { ...screens, stdin: input, env, untilSignal: () => signalled.promise };
  const printed = () => ({ stdout: screens.stdout.text, stderr: screens.stderr.text });
  const ended = runProgram(args, surroundings).then((code) => ({ code, ...printed() }));
  onTestFinished(async () => {
    signalled.resolve("SIGINT");
    await ended;
  });
  const listeners = new Set<() => void>();
  for (const screen of Object.values(screens)) screen.onText = () => listeners.forEach((listener) => listener());
  return {
    ended,
    stdout: screens.stdout,
    signal: signalled.resolve,
    until: (output, wanted) =>
      untilPrinted(
        ended,
        () => printed()[output],
        wanted,
        (look) => listeners.add(look),
      ),
  };
}

/** Runs the command line in this process to its end. */
export function run(args: readonly string[], given?: Given | string): Promise<Ended> {
  return begin(args, typeof given === "string" ? { stdin: given } : given).ended;
}

/** A run of the built program. */
export interface Started extends Running {
  readonly child: ChildProcessWithoutNullStreams;
}

/** Starts the built program, and kills it at the end of the test. */
export function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): Started {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, ...env } });
  onTestFinished(() => void child.kill("SIGKILL"));
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const)
    child[name].setEncoding("utf8").on("data", (text: string) => (printed[name] += text));
  const ended = new Promise<Ended>((resolve) => child.on("close", (code) => resolve({ code, ...printed })));
  const until: Running["until"] = (output, wanted) =>
    untilPrinted(
      ended,
      () => printed[output],
      wanted,
      (look) => child[output].on("data", look),
    );
  return { child, ended, until };
}

function untilPrinted(
  ended: Promise<Ended>,
  printed: () => string,
  wanted: string,
  onText: (look: () => void) => unknown,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const look = (): void => {
      if (printed().includes(wanted)) resolve(printed());
    };
    look();
    onText(look);
    void ended.then((end) => reject(new Error(`ended without ${wanted}: ${JSON.stringify(end)}`)));
  });
}

/** Begins `reciproc serve` or `bridge` on a free port. Resolves with its address when it has printed that. */
export async function beginListening(args: readonly string[]): Promise<RunningHere & { url: string }> {
  const [name, ...rest] = args as [string, ...string[]];
  const running = begin([name, "--port", "0", ...rest]);
  return { ...running, url: addressIn(await running.until("stdout", "\n")) };
}

/** Returns the address that a first line names. */
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

type Options = Omit<Partial<ServeOptions<AnyMethods, AnyMethods, any>>, "methods" | "fallback"> & {
  methods?: Record<string, (params: any, context: any) => unknown>;
  fallback?: (params: any, context: any) => unknown;
};

/** Starts a reciproc server on a port. `cut` ends its connections without a close. */
export async function reciprocServer(options: Options = {}): Promise<{ server: Server; url: string; cut: () => void }> {
  const http = await listening(createServer());
  const server = await serve({ methods: {}, server: http.server, ...options });
  onTestFinished(async () => {
    http.cut();
    await server.close();
    await http[Symbol.asyncDispose]();
  });
  return { server, url: http.url, cut: http.cut };
}

/** Starts a plain server that passes each connection to `onSocket`. Returns its URL. */
export async function plainServer(onSocket: (socket: WebSocket, request: IncomingMessage) => void): Promise<string> {
  const { server, url, ...http } = await listening(createServer());
  new WebSocketServer({ server }).on("connection", onSocket);
  onTestFinished(() => http[Symbol.asyncDispose]());
  return url;
}
