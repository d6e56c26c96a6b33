/** The client process of a contender, which has the server process as its child. */
import { fork } from "node:child_process";
import { asker } from "./channel.js";

/** How much of what a process said last is worth keeping. */
const LAST_WORDS = 2_000;

export class Pair {
  #child;
  #ask;
  #lastWords = "";
  #ended;

  constructor({ name }) {
    this.#child = fork(new URL("client.js", import.meta.url), [name], {
      execArgv: ["--expose-gc"],
      // Some contenders print what they refuse; of interest is only what comes before an end.
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
    this.#child.stderr.on("data", (data) => {
      this.#lastWords = (this.#lastWords + data).slice(-LAST_WORDS);
    });
    this.#ended = new Promise((resolve) => this.#child.once("close", resolve));
    this.#ask = asker(this.#child);
  }

  /** Runs a scenario; rejects when a process ends, something throws, or the time is over, and then the pair is of no more use. */
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
