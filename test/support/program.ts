/** A server of another project as a process: started, killed, paused and continued. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";

/** How often a server starts on another port if its port was taken meanwhile. */
const STARTS = 5;

export interface Command {
  readonly path: string;
  readonly args: readonly string[];
  /** Where it prints the line that says that it accepts connections. */
  readonly output: "stdout" | "stderr";
  readonly ready: RegExp;
}

/** One process of a server. It keeps its ports and its folder when it is killed and started again. */
export abstract class Program implements AsyncDisposable {
  folder = "";
  port = 0;
  #child: ChildProcess | undefined;
  #gone: Promise<unknown> = Promise.resolve();

  /** Writes the files of the configuration, and returns how the server is started. */
  protected abstract prepare(): Promise<Command>;
  protected abstract takePorts(): Promise<void>;

  /** Starts a server in a folder of its own, on free ports. */
  static async launch<T extends Program>(program: T): Promise<T> {
    program.folder = await mkdtemp(join(tmpdir(), "reciproc-broker-"));
    for (let i = 1; ; i++) {
      await program.takePorts();
      try {
        await program.start();
        return program;
      } catch (error) {
        if (i === STARTS) throw error;
      }
    }
  }

  /** Starts the process. Resolves when it accepts connections. */
  async start(): Promise<void> {
    const { path, args, output, ready } = await this.prepare();
    const child = spawn(path, args, { stdio: ["ignore", "pipe", "pipe"] });
    this.#child = child;
    const kill = (): boolean => child.kill("SIGKILL");
    process.once("exit", kill);
    this.#gone = once(child, "exit").finally(() => process.off("exit", kill));
    child[output === "stdout" ? "stderr" : "stdout"].resume();
    const lines: string[] = [];
    for await (const line of createInterface(child[output])) {
      lines.push(line);
      if (ready.test(line)) {
        child[output].resume();
        return;
      }
    }
    await this.#gone;
    throw new Error(`${path} ended with ${child.exitCode}:\n${lines.join("\n")}`);
  }

  get isRunning(): boolean {
    return this.#child?.exitCode === null && this.#child.signalCode === null;
  }

  /** Ends the process at once, or as an administrator does with SIGTERM. Resolves when it has ended. */
  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    this.#child?.kill(signal);
    await this.#gone;
  }

  /** Stops the process, which keeps its connections. Resolves when it is stopped: a signal takes effect a little later. */
  async pause(): Promise<void> {
    this.signal("SIGSTOP");
    const pid = this.#child!.pid!;
    while (!(await statesOf(pid)).every((state) => state === "T"))
      await new Promise((resolve) => setImmediate(resolve));
  }

  resume(): void {
    this.signal("SIGCONT");
  }

  signal(name: "SIGSTOP" | "SIGCONT" | "SIGHUP"): void {
    this.#child?.kill(name);
  }

  /** Writes a file of the folder. Returns its path. */
  protected async write(name: string, text: string): Promise<string> {
    const path = join(this.folder, name);
    await writeFile(path, text);
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await rm(this.folder, { recursive: true, force: true });
  }
}

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
