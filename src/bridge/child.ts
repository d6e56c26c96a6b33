/** Runs one command: its pipes, its end, and the end of all its child processes. */
import { spawn, type ChildProcess } from "node:child_process";
import { runReporting, warnOnce } from "../base/tell.js";

/** The command to run, and how to end it. */
export interface ChildOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: NodeJS.ProcessEnv | undefined;
  /** How long the command may take to exit before it gets SIGTERM, and then again before SIGKILL. */
  readonly graceMs: number;
  /** The destination of its standard error. */
  readonly stderr: "inherit" | "ignore" | ((chunk: Buffer) => void);
  /** Called with each chunk of its standard output. */
  readonly output: (chunk: Buffer) => void;
  /** Called at most once, if the command has closed its standard input and still runs. */
  readonly inputClosed: () => void;
}

/** How a command ended. */
export interface ChildEnd {
  /** Its exit code; null if a signal ended it, or if it did not start. */
  readonly exitCode: number | null;
  /** The signal that ended it. */
  readonly signal: NodeJS.Signals | null;
  /** Why the command could not be started. */
  readonly error?: NodeJS.ErrnoException;
}

/**
 * Whether a command gets its own process group. Then its child processes end with it (`npx` and `sh -c` run the real program
 * as a child process), and a Ctrl-C at the terminal signals this process only. Windows has no such groups.
 */
const OWN_GROUP = process.platform !== "win32";

/** The interval between checks of the process group: the system reports the end of a child, but not of its children. */
const POLL_MS = 20;

/** The running commands. They are killed when this process exits, however early. */
const running = new Set<Child>();

function killAll(): void {
  for (const child of running) child.kill();
}

/** A started command. The constructor never throws: `ended` reports a command that could not be started. */
export class Child {
  /** Resolves when the command has ended, and `output` got everything that it wrote. Never rejects. */
  readonly ended: Promise<ChildEnd>;
  /** Resolves when the command and its child processes are gone. Never rejects. */
  readonly gone: Promise<unknown>;
  readonly #graceMs: number;
  readonly #process: ChildProcess | undefined;
  #onDrain: (() => void) | undefined;
  #isEnding = false;
  #hasExited = false;
  /** Whether its pipes have ended too. */
  #hasClosed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ChildOptions) {
    this.#graceMs = options.graceMs;
    try {
      this.#process = start(options);
    } catch (error) {
      // Node emits most failures as an event, but throws for a NUL byte and for arguments that are too long.
      this.ended = this.gone = Promise.resolve({ exitCode: null, signal: null, error: error as Error });
      return;
    }
    this.ended = this.#watch(this.#process, options);
    this.gone = this.#untilGone(this.#process);
  }

  /**
   * Writes to its standard input. Drops the bytes if the command no longer reads. Returns false at the high-water mark: then
   * wait for `onceDrained`.
   */
  write(bytes: Buffer): boolean {
    const { stdin } = this.#process ?? {};
    return !stdin?.writable || stdin.write(bytes);
  }

  /** Calls `listener` once, when its standard input has drained. */
  onceDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  /** Stops reading its output. The command blocks once the pipe is full. */
  pause(): void {
    if (this.#hasExited) clearTimeout(this.#timer);
    this.#process?.stdout?.pause();
  }

  /** Reads its output again. */
  resume(): void {
    this.#process?.stdout?.resume();
    if (this.#hasExited && !this.#hasClosed) this.#linger();
  }

  /** Whether reading its output is paused. */
  get isPaused(): boolean {
    return this.#process?.stdout?.isPaused() === true;
  }

  /** Ends its standard input, after everything written before. The command may run as long as it likes. */
  endInput(): void {
    this.#process?.stdin?.end();
  }

  /** Ends the command: ends its standard input, sends SIGTERM after `graceMs`, and SIGKILL after `graceMs` more. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    // A command that blocks on a full output pipe could not exit.
    this.resume();
    if (this.#hasExited || this.#process?.pid === undefined) return;
    this.endInput();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#signal("SIGTERM");
      this.#timer = setTimeout(() => this.kill(), this.#graceMs);
    }, this.#graceMs);
  }

  /** Kills the command at once. */
  kill(): void {
    this.#signal("SIGKILL");
  }

  #watch(child: ChildProcess, { output, stderr, inputClosed }: ChildOptions): Promise<ChildEnd> {
    const { pid, stdin, stdout } = child;
    // A command without a pid did not start, and may have no pipes.
    if (pid === undefined) {
      return new Promise((resolve) => {
        child.once("error", (error) => resolve({ exitCode: null, signal: null, error }));
      });
    }
    child.on("error", ignore);
    stdin!.on("drain", () => this.#drained());
    // A closed standard input usually means that the command is exiting, so `exit` may follow within `graceMs`.
    stdin!.on("error", ignore).once("close", () => {
      if (!this.#hasExited && !stdin!.writableEnded) this.#timer = setTimeout(inputClosed, this.#graceMs);
    });
    stdout!.on("error", ignore).on("data", output);
    if (typeof stderr === "function") {
      const take = (chunk: Buffer): void =>
        runReporting(
          () => stderr(chunk),
          (error) => warnOnce(child, "stderr", error),
        );
      child.stderr!.on("error", ignore).on("data", take);
    }
    child.once("exit", () => this.#exited());
    return new Promise((resolve) => {
      child.once("close", (exitCode, signal) => {
        this.#hasClosed = true;
        clearTimeout(this.#timer);
        resolve({ exitCode, signal });
      });
    });
  }

  /** Ends the remaining processes of the group after the command has exited. */
  async #untilGone(child: ChildProcess): Promise<void> {
    if (child.pid === undefined) return;
    add(this);
    await new Promise((resolve) => child.once("exit", resolve));
    let isLeft = this.#signal("SIGTERM");
    // Bounded by twice `graceMs`: a killed process takes a moment to go, and stays a zombie in a container without an init.
    for (let waited = 0; isLeft && waited < 2 * this.#graceMs; waited += POLL_MS) {
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      isLeft = this.#signal(waited < this.#graceMs ? 0 : "SIGKILL");
    }
    remove(this);
  }

  #drained(): void {
    const listener = this.#onDrain;
    this.#onDrain = undefined;
    listener?.();
  }

  /** Notes that the command has exited. Its child processes may still run and hold its pipes open. */
  #exited(): void {
    this.#hasExited = true;
    clearTimeout(this.#timer);
    if (!this.isPaused) this.#linger();
  }

  /**
   * Closes the pipes after `graceMs`, not counting the time that they are paused. A process outside the group may hold them
   * open for ever.
   */
  #linger(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#process?.stdout?.destroy();
      this.#process?.stderr?.destroy();
    }, this.#graceMs);
  }

  /** Signals the whole group; 0 only checks it. Returns true if it has a process. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    const pid = this.#process?.pid;
    // Without a group, another process may have the pid by then.
    if (pid === undefined || (this.#hasExited && !OWN_GROUP)) return false;
    try {
      return process.kill(OWN_GROUP ? -pid : pid, signal);
    } catch {
      // The group is empty, or its process has changed its user and cannot be signalled.
      return false;
    }
  }
}

function start({ command, args, cwd, env, stderr }: ChildOptions): ChildProcess {
  return spawn(command, args, {
    cwd,
    env,
    stdio: ["pipe", "pipe", typeof stderr === "string" ? stderr : "pipe"],
    detached: OWN_GROUP,
    windowsHide: true,
  });
}

function add(child: Child): void {
  if (running.size === 0) process.on("exit", killAll);
  running.add(child);
}

function remove(child: Child): void {
  running.delete(child);
  if (running.size === 0) process.off("exit", killAll);
}

function ignore(): void {}
