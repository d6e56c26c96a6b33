/** Starts the client process of a contender. The server process is its child. */
import { fork } from "node:child_process";
import { asker } from "./channel.js";

/** The length of the last output of a process that is kept for an error message. */
const LAST_WORDS = 2_000;

export class Pair {
  #child;
  #ask;
  #lastWords = "";
  #ended;

  constructor({ name }) {
    this.#child = fork(new URL("client.js", import.meta.url), [name], {
      execArgv: ["--expose-gc"],
      // Some contenders print each refused message. Only the output before the end of a process is reported.
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child.stderr.on("data", (data) => {
      this.#lastWords = (this.#lastWords + data).slice(-LAST_WORDS);
    });
    this.#ended = new Promise((resolve) => this.#child.once("close", resolve));
    this.#ask = asker(this.#child);
  }

  /** Runs a scenario. Rejects if a process ends, the scenario throws, or the time is over. The pair cannot be used after that. */
  async run(scenario, budget) {
    let timer;
    const late = new Promise((_resolve, reject) => {
      const seconds = budget.timeoutMs / 1_000;
      timer = setTimeout(() => reject(new Error(`not done after ${seconds} s`)), budget.timeoutMs);
    });
    const died = this.#ended.then(() => {
      throw new Error(`the process ended: ${this.#cause()}`);
    });
    try {
      return await Promise.race([this.#ask("run", scenario.name, budget), died, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Ends both processes. */
  async stop() {
    this.#child.kill("SIGKILL");
    await this.#ended;
  }

  #cause() {
    const lines = this.#lastWords.split("\n").filter((line) => line.trim() !== "");
    return (lines.find((line) => /^\w*Error\b.*:/.test(line)) ?? lines.at(-1) ?? "it said nothing").trim();
  }
}
