/** Requests and responses between processes, over Node's own channel. */
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";

/** The commands of a process, by name. Results are passed as JSON. */
export type Commands = Record<string, (...args: any[]) => unknown>;

interface Question {
  id: number;
  command: string;
  args: unknown[];
}

interface Answer {
  id: number;
  value?: unknown;
  error?: string;
}

/** The time in which a process must end by itself, and in which one ends after its parent died. */
const PATIENCE_MS = 20_000;

/** Serves `commands` to the parent until it disconnects. If anything keeps the process alive after that, it fails. */
export function answer(commands: Commands): void {
  process.once("disconnect", () => setTimeout(() => process.exit(KEPT_ALIVE), PATIENCE_MS).unref());
  process.on("message", ({ id, command, args }: Question) => {
    const reply = (said: Omit<Answer, "id">): void => void process.send!({ id, ...said });
    void (async () => commands[command]!(...args))().then(
      (value) => reply({ value }),
      (error: unknown) => reply({ error: error instanceof Error ? error.message : String(error) }),
    );
  });
}

/** The exit code of a process that was kept alive. */
const KEPT_ALIVE = 9;

/** A process that serves commands. Disposing of it kills it if it has not ended. */
export class Child<C extends Commands> {
  readonly #name: string;
  readonly #process: ChildProcess;
  readonly #pending = new Map<number, { resolve: (value: any) => void; reject: (error: Error) => void }>();
  readonly #ended: Promise<unknown>;
  #nextId = 1;

  constructor(file: string, name: string, args: readonly string[]) {
    this.#name = name;
    this.#process = fork(file, args, { execArgv: ["--expose-gc", "--disable-warning=ExperimentalWarning"] });
    this.#process.on("message", ({ id, value, error }: Answer) => {
      const { resolve, reject } = this.#pending.get(id)!;
      this.#pending.delete(id);
      if (error === undefined) resolve(value);
      else reject(new Error(`${name}: ${error}`));
    });
    this.#ended = once(this.#process, "exit").then(() => {
      const { exitCode, signalCode } = this.#process;
      for (const { reject } of this.#pending.values())
        reject(new Error(`${name} ended with ${exitCode ?? signalCode}`));
    });
  }

  ask<K extends string & keyof C>(command: K, ...args: Parameters<C[K]>): Promise<Awaited<ReturnType<C[K]>>> {
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      this.#pending.set(id, { resolve, reject });
      this.#process.send({ id, command, args } satisfies Question, (error) => error && reject(error));
    });
  }

  /** Disconnects from the process. Rejects unless it then ends by itself: otherwise a resource has leaked. */
  async end(): Promise<void> {
    this.#process.disconnect();
    await this.#ended;
    const { exitCode, signalCode } = this.#process;
    if (exitCode === KEPT_ALIVE) throw new Error(`${this.#name}: something keeps it alive`);
    if (exitCode !== 0) throw new Error(`${this.#name} ended with ${exitCode ?? signalCode}`);
  }

  [Symbol.dispose](): void {
    this.#process.kill("SIGKILL");
  }
}
