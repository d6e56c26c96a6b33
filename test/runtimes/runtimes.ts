/** The runtimes that are installed in this folder, and the programs that run in them. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";

const here = import.meta.dirname;
const packages = join(here, "node_modules");
const bun = join(packages, "@oven/bun-linux-x64/bin/bun");
const deno = join(packages, "@deno/linux-x64-glibc/deno");

/** The command that runs a program, by the name of its runtime. */
export const COMMANDS = {
  "Node 22": [join(packages, "node22/bin/node")],
  Bun: [bun],
  Deno: [deno, "run", "--quiet", "--allow-all", "--no-config", "--node-modules-dir=manual"],
} as const;

export type RuntimeName = keyof typeof COMMANDS;
export const RUNTIMES = Object.keys(COMMANDS) as RuntimeName[];

/** A program that runs until it is disposed of. */
export interface Program extends AsyncDisposable {
  /** The first line that it printed. */
  readonly firstLine: string;
}

function start([file, ...first]: readonly string[], args: readonly string[]): ChildProcess {
  return spawn(file!, [...first, ...args], { cwd: here, stdio: ["pipe", "pipe", "inherit", "pipe"] });
}

/** Runs a check of `programs/checks.js` in a runtime, by an entry of the package. Resolves with its result. */
export async function check(runtime: RuntimeName, entry: string, name: string, options: object): Promise<any> {
  const child = start(COMMANDS[runtime], ["programs/client.js", entry, name, JSON.stringify(options)]);
  let text = "";
  child.stdout!.on("data", (data: Buffer) => (text += data.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw new Error(`${runtime} ended with ${code} in ${name}`);
  return JSON.parse(text);
}

/** Resolves when a program has printed its first line, on its standard output (1) or another descriptor. */
async function launch(child: ChildProcess, descriptor: number): Promise<Program> {
  const ended = once(child, "close");
  const [firstLine] = await once(createInterface(child.stdio[descriptor] as NodeJS.ReadableStream), "line");
  return {
    firstLine,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

/** Starts `programs/server.js`, which prints its address. */
export function serveIn(runtime: RuntimeName): Promise<Program> {
  return launch(start(COMMANDS[runtime], ["programs/server.js"]), 1);
}

/** Starts workerd with a configuration. Resolves when it listens. Its first line is what it reports then. */
export function startWorkerd(configuration: string): Promise<Program> {
  const child = start(
    [join(packages, "@cloudflare/workerd-linux-64/bin/workerd")],
    ["serve", configuration, "--control-fd=3"],
  );
  child.stdout!.resume();
  return launch(child, 3);
}
