#!/usr/bin/env node
/** The `reciproc` command: runs the command line in this process, and sets the exit code. */
import { constants } from "node:os";
import { ExitCode } from "./command.js";
import { run } from "./program.js";

/** How long the process waits for a server to answer the close. */
const CLOSE_WAIT_MS = 1_000;

/** The signals that ask a process to end. A closing terminal sends SIGHUP. */
const ENDING = ["SIGHUP", "SIGINT", "SIGTERM"] as const;

// A process that ends early must not look successful.
process.exitCode = ExitCode.Internal;
const { stdin, stdout, stderr, env } = process;
process.exitCode = await run(process.argv.slice(2), { stdin, stdout, stderr, env, untilSignal });
// Unreferenced, so that an idle process exits at once.
setTimeout(() => process.exit(), CLOSE_WAIT_MS).unref();

/** Waits for the first SIGHUP, SIGINT or SIGTERM. Returns its name. After that, the next one ends the process at once. */
function untilSignal(): Promise<NodeJS.Signals> {
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
