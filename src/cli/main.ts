#!/usr/bin/env node
/** The `reciproc` command: finds the command that was typed, runs it, and sets the exit code. */
import { readFileSync } from "node:fs";
import { readArgs, UsageError } from "./args.js";
import { bridge } from "./bridge.js";
import { call } from "./call.js";
import { ExitCode, type Command } from "./command.js";
import { listen } from "./listen.js";
import { notify } from "./notify.js";
import { describe, Output } from "./output.js";
import { serve } from "./serve.js";

const COMMANDS: readonly Command[] = [serve, call, notify, listen, bridge];
/** How long the process waits for a server to answer the close. */
const CLOSE_WAIT_MS = 1_000;

const argv = process.argv.slice(2);
// A process that ends early must not look successful.
process.exitCode = ExitCode.Internal;
const color = !argv.includes("--no-color");
const stdout = new Output(process.stdout, color);
const stderr = new Output(process.stderr, color);

process.exitCode = await run(argv);
const failed = await stdout.flushed();
if (failed !== undefined) {
  stderr.alarm(`cannot write to standard output: ${failed.message}`);
  process.exitCode ||= ExitCode.CallFailed;
}
// Unreferenced, so that an idle process exits at once.
setTimeout(() => process.exit(), CLOSE_WAIT_MS).unref();

async function run([name, ...rest]: string[]): Promise<number> {
  const command = COMMANDS.find((candidate) => candidate.name === name);
  try {
    if (command !== undefined) return await runCommand(command, rest);
    return runBare(name);
  } catch (error) {
    if (error instanceof UsageError) return printUsageError(error, command);
    stderr.alarm(`reciproc failed: ${describe(error)}`);
    return ExitCode.Internal;
  }
}

async function runCommand(command: Command, rest: string[]): Promise<number> {
  const args = readArgs(command, rest);
  if (!args.help) return command.run(args, { stdin: process.stdin, stdout, stderr });
  stdout.line(`Usage: ${synopsis(command)}\n\n${command.help}`);
  return ExitCode.Ok;
}

function runBare(name: string | undefined): number {
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

function printUsageError({ message, excerpt }: UsageError, command: Command | undefined): number {
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
