/** Commands to another process, one at a time, over Node's own channel. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";

/** The commands of a process, by name. Results are passed as JSON. */
export type Commands = Record<string, (...args: any[]) => unknown>;

/** The time in which a process must end by itself after its parent has disconnected. */
const PATIENCE_MS = 20_000;
/** The exit code of a process that was kept alive. */
const KEPT_ALIVE = 9;

/** Serves `commands` to the parent until it disconnects. If anything keeps the process alive after that, it fails. */
export function answer(commands: Commands): void {
  process.once("disconnect", () => setTimeout(() => process.exit(KEPT_ALIVE), PATIENCE_MS).unref());
  // A command that fails ends the process.
  process.on("message", async ([command, ...args]: [string, ...unknown[]]) => {
    process.send!({ value: await commands[command]!(...args) });
  });
}

/** A process that serves commands. Disposing of it kills it if it has not ended. */
export class Child<C extends Commands> {
  readonly #name: string;
  readonly #process: ChildProcess;
  readonly #ended: Promise<(number | string | null)[]>;

  constructor(file: string, name: string, args: readonly string[]) {
    this.#name = name;
    this.#process = fork(file, args, { execArgv: ["--expose-gc", "--disable-warning=ExperimentalWarning"] });
    this.#ended = once(this.#process, "exit");
  }

  async ask<K extends string & keyof C>(command: K, ...args: Parameters<C[K]>): Promise<Awaited<ReturnType<C[K]>>> {
    this.#process.send([command, ...args]);
    const ended = this.#ended.then(([how]) => Promise.reject(new Error(`${this.#name} ended with ${how}`)));
    const [reply] = await Promise.race([once(this.#process, "message"), ended]);
    return reply.value;
  }

  /** Disconnects from the process. Rejects unless it then ends by itself: otherwise a resource has leaked. */
  async end(): Promise<void> {
    this.#process.disconnect();
    const [how] = await this.#ended;
    if (how === KEPT_ALIVE) throw new Error(`${this.#name}: something keeps it alive`);
    if (how !== 0) throw new Error(`${this.#name} ended with ${how}`);
  }

  [Symbol.dispose](): void {
    this.#process.kill("SIGKILL");
  }
}
