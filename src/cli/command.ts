/** The interface of a command, and its exit codes. */
import { constants } from "node:os";
import type { Args, Grammar } from "./args.js";
import type { Output } from "./output.js";

/** The standard streams of a command. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
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

/** The signals that ask a process to end. A closing terminal sends SIGHUP. */
const ENDING = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

/** Waits for the first SIGHUP, SIGINT or SIGTERM. Returns its name. After that, the next one ends the process at once. */
export function untilSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const first = (signal: NodeJS.Signals): void => {
      resolve(signal);
      for (const name of ENDING) {
        process.off(name, first);
        // The exit code by which a shell reports a process that a signal ended.
        process.on(name, () => process.exit(128 + constants.signals[name]));
      }
    };
    for (const name of ENDING) process.on(name, first);
  });
}
