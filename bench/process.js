/** The processes of a measurement, and the requests and replies between them over the IPC channel of Node. */
import { fork } from "node:child_process";
import { once } from "node:events";

/** The length of the last output of a process that is kept for an error message. */
const LAST_OUTPUT = 2_000;

/** Serves the requests of the parent process with the functions of `commands`, and ends with the parent. */
export function answer(commands) {
  process.on("message", async ({ id, command, args }) => {
    try {
      process.send({ id, value: await commands[command](...args) });
    } catch (error) {
      process.send({ id, error: error instanceof Error ? error.message : String(error) });
    }
  });
  process.on("disconnect", () => process.exit());
}

/** A child process that calls `answer`. */
export class Process {
  #child;
  #ended;
  #output = "";
  #isEnding = false;
  #pending = new Map();
  #nextId = 1;

  /** `execArgv`: the options of Node. Default: those of this process. */
  constructor(file, args, execArgv = process.execArgv) {
    // Some contenders print each refused message. Only the output before the end of a process is reported.
    this.#child = fork(file, args, { execArgv, stdio: ["ignore", "ignore", "pipe", "ipc"] });
    this.#child.stderr.on("data", (data) => {
      this.#output = (this.#output + data).slice(-LAST_OUTPUT);
    });
    this.#child.on("message", ({ id, value, error }) => {
      const { resolve, reject } = this.#pending.get(id);
      this.#pending.delete(id);
      if (error === undefined) resolve(value);
      else reject(new Error(error));
    });
    this.#ended = once(this.#child, "close");
  }

  /** Sends a command. Rejects if it fails, or if the process ends before it replies. */
  ask(command, ...args) {
    const reply = new Promise((resolve, reject) => {
      const id = this.#nextId++;
      this.#pending.set(id, { resolve, reject });
      this.#child.send({ id, command, args });
    });
    return this.whileAlive(reply);
  }

  /** Returns the promise, which rejects if the process ends first, unless by `kill`. */
  whileAlive(promise) {
    const died = this.#ended.then(() => {
      if (this.#isEnding) return new Promise(() => {});
      throw new Error(`the process ended: ${this.#cause()}`);
    });
    return Promise.race([promise, died]);
  }

  /** Ends the process with SIGKILL. Resolves when it has ended. */
  async kill() {
    this.#isEnding = true;
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  #cause() {
    const lines = this.#output.split("\n").filter((line) => line.trim() !== "");
    return (lines.find((line) => /^\w*Error\b.*:/.test(line)) ?? lines.at(-1) ?? "without output").trim();
  }
}
