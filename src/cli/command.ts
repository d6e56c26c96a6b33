/** The interface of a command, and its exit codes. */
import type { Writable } from "node:stream";
import type { Args, Grammar } from "./args.js";
import type { Output } from "./output.js";

/** The standard streams of a command, and the signals that end it. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  /** The terminal, if a person types the standard input and reads the standard output. */
  readonly terminal: Writable | undefined;
  /** Waits for the first signal that asks the process to end. Returns its name. */
  untilSignal(): Promise<NodeJS.Signals>;
}

/** The exit codes of the process. */
export const ExitCode = {
  Ok: 0,
  /** The response was an error or malformed, or did not come in time. */
  CallFailed: 1,
  /** The connection failed or was lost. For `serve` and `bridge`: the process cannot listen. */
  NoConnection: 2,
  /** The command line is wrong, and nothing was sent. The number is that of `sysexits.h`. */
  Usage: 64,
  /** A bug of reciproc. The number is that of `sysexits.h`. */
  Internal: 70,
} as const;

/** One command. */
export interface Command extends Grammar {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** The text of `--help` below the first line. */
  readonly help: string;
  /** Runs the command. Returns the exit code. Rejects with a `UsageError` if the command line is wrong. */
  run(args: Args, io: Io): Promise<number>;
}
