/** A process of the benchmark that obeys this one: a node, or some clients. */
import { fork } from "node:child_process";
import { once } from "node:events";
import { asker } from "../channel.js";

/** The length of the last output of a process that is kept for an error message. */
const LAST_OUTPUT = 2_000;

export class Process {
  #child;
  #ask;
  #output = "";
  #ended;
  #isEnding = false;

  constructor(file, ...args) {
    this.#child = fork(new URL(file, import.meta.url), args, { stdio: ["ignore", "ignore", "pipe", "ipc"] });
    this.#child.stderr.on("data", (data) => {
      this.#output = (this.#output + data).slice(-LAST_OUTPUT);
    });
    this.#ended = once(this.#child, "close");
    this.#ask = asker(this.#child);
  }

  /** Sends a command. Rejects if the process ends before it replies. */
  ask(command, ...args) {
    const died = this.#ended.then(() => {
      if (this.#isEnding) return new Promise(() => {});
      throw new Error(`the process ended: ${this.#output.trim().split("\n").at(-1)}`);
    });
    return Promise.race([this.#ask(command, ...args), died]);
  }

  /** Ends the process with SIGKILL. Resolves when it has ended. */
  async kill() {
    this.#isEnding = true;
    this.#child.kill("SIGKILL");
    await this.#ended;
  }
}
