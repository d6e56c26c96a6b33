/** Finds out whether a process is stopped. */
import { execFile } from "node:child_process";
import { readdir, readFile } from "node:fs/promises";
import { promisify } from "node:util";
import { eventually } from "./redis.js";

/** Returns the states of the threads of a process, one letter each; where there is no `/proc`, that of the process. */
async function statesOf(pid: number): Promise<string[]> {
  if (process.platform !== "linux") {
    const { stdout } = await promisify(execFile)("ps", ["-o", "state=", "-p", String(pid)]);
    return [stdout.trim().charAt(0)];
  }
  const threads = await readdir(`/proc/${pid}/task`);
  const lines = await Promise.all(threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/stat`, "latin1")));
  // The name of the program comes before the state, in brackets, and may have any characters.
  return lines.map((line) => line.charAt(line.lastIndexOf(")") + 2));
}

/** Resolves when a process that was sent SIGSTOP is stopped: a signal takes effect a little later. */
export async function untilStopped(pid: number): Promise<void> {
  await eventually(
    () => statesOf(pid),
    (states) => states.every((state) => state === "T"),
  );
}
