/** The runtimes that are installed in this folder, and the programs that run in them. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";

const here = import.meta.dirname;
const packages = join(here, "node_modules");
const bun = join(packages, "@oven/bun-linux-x64/bin/bun");
const deno = join(packages, "@deno/linux-x64-glibc/deno");

export const COMMANDS = {
  "Node 22": [join(packages, "node22/bin/node")],
  Bun: [bun],
  Deno: [deno, "run", "--quiet", "--allow-all", "--no-config", "--node-modules-dir=manual"],
} as const;

export type RuntimeName = keyof typeof COMMANDS;
export const RUNTIMES = Object.keys(COMMANDS) as RuntimeName[];

interface Program extends AsyncDisposable {
  readonly child: ChildProcess;
  readonly ended: Promise<unknown>;
}

function start([file, ...first]: readonly string[], ...args: string[]): Program {
  const child = spawn(file!, [...first, ...args], { cwd: here, stdio: ["pipe", "pipe", "inherit", "pipe"] });
  const ended = once(child, "close");
  return {
    child,
    ended,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await ended;
    },
  };
}

export type Check = (name: string, options: object) => Promise<any>;

/** Starts `programs/client.js` in a runtime, with an entry of the package. */
export function clientIn(runtime: RuntimeName, entry: string): Program & { check: Check } {
  const program = start(COMMANDS[runtime], "programs/client.js", entry);
  const waiting: ((result: unknown) => void)[] = [];
  createInterface(program.child.stdout!).on("line", (line) => {
    const [number, result] = JSON.parse(line) as [number, unknown];
    waiting[number]!(result);
  });
  const check: Check = (name, options) =>
    new Promise((resolve, reject) => {
      const number = waiting.push(resolve) - 1;
      program.child.stdin!.write(`${JSON.stringify([number, name, options])}\n`);
      void program.ended.then(() => reject(new Error(`${runtime} ended in ${name}`)));
    });
  return { ...program, check };
}

/** A program that has printed its first line, which tells where it listens. */
export type Listening = Program & { firstLine: string };

async function listening(program: Program, output: unknown): Promise<Listening> {
  const [firstLine] = await once(createInterface(output as NodeJS.ReadableStream), "line");
  return { ...program, firstLine };
}

export function serveIn(runtime: RuntimeName): Promise<Listening> {
  const program = start(COMMANDS[runtime], "programs/server.js");
  return listening(program, program.child.stdout);
}

export function startWorkerd(configuration: string): Promise<Listening> {
  const workerd = join(packages, "@cloudflare/workerd-linux-64/bin/workerd");
  const program = start([workerd], "serve", configuration, "--control-fd=3");
  program.child.stdout!.resume();
  return listening(program, program.child.stdio[3]);
}
