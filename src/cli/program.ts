/** The command line as a function: finds the command that was typed, and runs it. */
import { readFileSync } from "node:fs";
import type { Writable } from "node:stream";
import { readArgs, UsageError } from "./args.js";
import { bridge } from "./bridge.js";
import { call } from "./call.js";
import { connect } from "./connect.js";
import { ExitCode, type Command, type Io } from "./command.js";
import { listen } from "./listen.js";
import { notify } from "./notify.js";
import { describe, Output, type Stream } from "./output.js";
import { serve } from "./serve.js";

const COMMANDS: readonly Command[] = [serve, call, notify, listen, connect, bridge];

/** The process in which the command line runs, or a double of it. */
export interface Surroundings {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Stream;
  readonly stderr: Stream;
  /** `NO_COLOR` and `TERM` decide about colours. */
  readonly env: NodeJS.ProcessEnv;
  /** Waits for the first signal that asks to end. Called only by commands that do not end by themselves. Returns its name. */
  untilSignal(): Promise<NodeJS.Signals>;
}

/** Runs the command line `argv` to its end. Resolves with the exit code when all output is written. */
export async function run(argv: readonly string[], surroundings: Surroundings): Promise<number> {
  const { stdin, env } = surroundings;
  const allowColor = !argv.includes("--no-color");
  const stdout = new Output(surroundings.stdout, allowColor, env);
  const stderr = new Output(surroundings.stderr, allowColor, env);
  const isTyped = (stdin as { isTTY?: boolean }).isTTY === true && stdout.isTerminal;
  const terminal = isTyped ? (surroundings.stdout as Stream & Writable) : undefined;
  const untilSignal = (): Promise<NodeJS.Signals> => surroundings.untilSignal();
  const exitCode = await runNamed(argv, { stdin, stdout, stderr, terminal, untilSignal });
  const failed = await stdout.flushed();
  if (failed === undefined) return exitCode;
  stderr.alarm(`cannot write to standard output: ${failed.message}`);
  return exitCode || ExitCode.CallFailed;
}

async function runNamed([name, ...rest]: readonly string[], io: Io): Promise<number> {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  try {
    if (command !== undefined) return await runCommand(command, rest, io);
    return runBare(name, io);
  } catch (error) {
    if (error instanceof UsageError) return printUsageError(error, command, io);
    io.stderr.alarm(`reciproc failed: ${describe(error)}`);
    return ExitCode.Internal;
  }
}

async function runCommand(command: Command, rest: readonly string[], io: Io): Promise<number> {
  const args = readArgs(command, rest);
  if (!args.help) return command.run(args, io);
  io.stdout.line(`Usage: ${synopsis(command)}\n\n${command.help}`);
  return ExitCode.Ok;
}

function runBare(name: string | undefined, { stdout, stderr }: Io): number {
  if (name === undefined) {
    stderr.line(usage());
    return ExitCode.Usage;
  }
  if (name === "--help" || name === "-h") stdout.line(usage());
  else if (name === "--version") stdout.line(version());
  else if (name.startsWith("-")) throw new UsageError(`unknown option "${name}"; options must follow the command`);
  else throw new UsageError(`unknown command "${name}"`);
  return ExitCode.Ok;
}

function printUsageError({ message, excerpt }: UsageError, command: Command | undefined, { stderr }: Io): number {
  const name = command === undefined ? "reciproc" : `reciproc ${command.name}`;
  stderr.alarm(`${name}: ${message}${excerpt === undefined ? `; see \`${name} --help\`` : ""}`);
  if (excerpt !== undefined) stderr.line(excerpt);
  return ExitCode.Usage;
}

function synopsis({ name, arguments: names, options, takesCommand }: Command): string {
  if (takesCommand) return `reciproc ${name} [OPTIONS] -- ${names.join(" ")}`;
  return `reciproc ${name} ${names.join(" ")}${options.length > 0 ? " [OPTIONS]" : ""}`;
}

function usage(): string {
  const width = Math.max(...COMMANDS.map((command) => synopsis(command).length));
  const lines = COMMANDS.map((command) => `  ${synopsis(command).padEnd(width)}  ${command.summary}`);
  return `Usage: reciproc COMMAND, a JSON-RPC 2.0 peer over WebSocket for trying things and for scripts.

${lines.join("\n")}

  reciproc COMMAND --help  explains one command
  reciproc --version       prints the version
  --no-color               no colours, as with NO_COLOR or when piped`;
}

function version(): string {
  const text = readFileSync(new URL("../../package.json", import.meta.url), "utf8");
  return (JSON.parse(text) as { version: string }).version;
}
