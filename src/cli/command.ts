/** What a command is. */
import { constants } from "node:os";
import type { Args, Grammar } from "./args.js";
import type { Output } from "./output.js";

/** Where a command reads and writes. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
}

/** What the shell is told. */
export const ExitCode = {
  Ok: 0,
  /** The call was answered with an error, wrongly, or not in time. */
  CallFailed: 1,
  /** There is no connection: it was not made, or it was lost. For `serve`: nothing to listen on. */
  NoConnection: 2,
  /** Wrong use; nothing was sent. The number is that of `sysexits.h`. */
  Usage: 64,
  /** A bug of ours. As in `sysexits.h`. */
  Internal: 70,
} as const;

/** One command. */
export interface Command extends Grammar {
  readonly name: string;
  /** One line for the list of commands. */
  readonly summary: string;
  /** What `--help` says below the first line. */
  readonly help: string;
  /** Answers the exit code. Throws a `UsageError` for wrong use. */
  run(args: Args, io: Io): Promise<number>;
}

/** What asks a process to end; SIGHUP when its terminal is closed. */
const ENDING = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

/** Resolves at the first SIGHUP, SIGINT or SIGTERM, with its name; from then on, the next one ends the process at once. */
export function untilSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const first = (signal: NodeJS.Signals): void => {
      resolve(signal);
      for (const name of ENDING) {
        process.off(name, first);
        // As a shell reports a process that a signal ended.
        process.on(name, () => process.exit(128 + constants.signals[name]));
      }
    };
    for (const name of ENDING) process.on(name, first);
  });
}
