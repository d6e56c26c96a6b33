/** Runs the built command as a shell does. Build it first: `tsc -p tsconfig.build.json`. */
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";

export const MAIN = fileURLToPath(new URL("../../dist/cli/main.js", import.meta.url));

/** The outcome of a run. */
export interface Ended {
  /** The exit code; null when a signal ended it. */
  code: number | null;
  stdout: string;
  stderr: string;
}

/** A run in progress. */
export interface Running {
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<Ended>;
  /** Resolves with all output of that stream when it contains `wanted`. Rejects if the run ends before. */
  until(output: "stdout" | "stderr", wanted: string): Promise<string>;
}

/** Starts the command, and kills it at the end of the test. */
export function start(args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
  const child = spawn(process.execPath, [MAIN, ...args], { env: { ...process.env, ...env } });
  onTestFinished(() => void child.kill("SIGKILL"));
  const printed = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => (printed[name] += text));
  }
  const ended = new Promise<Ended>((resolve) => child.on("close", (code) => resolve({ code, ...printed })));
  const until = (output: "stdout" | "stderr", wanted: string): Promise<string> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (printed[output].includes(wanted)) resolve(printed[output]);
      };
      look();
      child[output].on("data", look);
      void ended.then((end) => reject(new Error(`ended without ${wanted}: ${JSON.stringify(end)}`)));
    });
  return { child, ended, until };
}

/** Runs the command to its end, with `input` as its standard input. */
export function run(
  args: readonly string[],
  input: string | Uint8Array = "",
  env: NodeJS.ProcessEnv = {},
): Promise<Ended> {
  const { child, ended } = start(args, env);
  // A command that does not read its input may end before it is written.
  child.stdin.on("error", () => {}).end(input);
  return ended;
}

/** Writes a file into a temporary directory that is removed after the test. Returns its path. */
export async function file(name: string, text: string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "reciproc-cli-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const path = join(directory, name);
  await writeFile(path, text);
  return path;
}
