/** Commands to another process, one at a time, over Node's own channel. */
import { fork } from "node:child_process";
import { once } from "node:events";

/** The time in which a process must end by itself after its parent has disconnected. */
const PATIENCE_MS = 240_000;
/** The exit code of a process that was kept alive. */
const KEPT_ALIVE = 9;

/** The commands of a process, by name. Results are passed as JSON. */
export type Commands = Record<string, (...args: any[]) => unknown>;

/** Serves `commands` to the parent until it disconnects. If anything keeps the process alive after that, it fails. */
export function answer(commands: Commands): void {
  process.once("disconnect", () => setTimeout(() => process.exit(KEPT_ALIVE), PATIENCE_MS).unref());
  // A command that fails ends the process.
  process.on("message", ([command, ...args]: [string, ...unknown[]]) => {
    void (async () => process.send!({ value: await commands[command]!(...args) }))();
  });
}

/** Starts a process that serves commands. Disposing of it kills it if it has not ended. */
export function startChild<C extends Commands>(file: string, ...args: string[]) {
  const child = fork(file, args, { execArgv: ["--expose-gc", "--disable-warning=ExperimentalWarning"] });
  const ended = once(child, "exit");
  return {
    async ask<K extends string & keyof C>(command: K, ...params: Parameters<C[K]>): Promise<Awaited<ReturnType<C[K]>>> {
      child.send([command, ...params]);
      const failed = ended.then(([how]) => Promise.reject(new Error(`${file} ended with ${how}`)));
      const [reply] = await Promise.race([once(child, "message"), failed]);
      return reply.value;
    },
    /** Disconnects from the process. Rejects unless it then ends by itself: otherwise a resource has leaked. */
    async end(): Promise<void> {
      child.disconnect();
      const [how] = await ended;
      if (how !== 0) throw new Error(`${file} ${how === KEPT_ALIVE ? "is kept alive" : `ended with ${how}`}`);
    },
    [Symbol.dispose]: () => void child.kill("SIGKILL"),
  };
}
