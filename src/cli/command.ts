/** What a command is. */
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

/** Resolves at the first SIGINT or SIGTERM, with its name; from then on, the next one ends the process at once. */
export function untilSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const first = (signal: NodeJS.Signals): void => {
      resolve(signal);
      process.off("SIGINT", first).off("SIGTERM", first);
      // As a shell reports a process that a signal ended.
      process.on("SIGINT", () => process.exit(130)).on("SIGTERM", () => process.exit(143));
    };
    process.on("SIGINT", first).on("SIGTERM", first);
  });
}
