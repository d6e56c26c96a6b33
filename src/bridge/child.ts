/** One command that runs: its pipes, how it ends, and that nothing of it is left then. */
import { spawn, type ChildProcess } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";

/** What to run, and how to end it. */
export interface ChildOptions {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string | undefined;
  readonly env: NodeJS.ProcessEnv | undefined;
  /** How long it may take to end by itself before it gets SIGTERM, and then again before SIGKILL. */
  readonly graceMs: number;
  /** Where its standard error goes. */
  readonly stderr: "inherit" | "ignore" | ((chunk: Buffer) => void);
  /** What it writes to its standard output. */
  readonly output: (chunk: Buffer) => void;
  /** It has closed its standard input and goes on without. Told at most once. */
  readonly deaf: () => void;
}

/** How a command ended. */
export interface ChildEnd {
  /** Its exit code; null when a signal ended it, or when it did not start. */
  readonly exitCode: number | null;
  /** The signal that ended it. */
  readonly signal: NodeJS.Signals | null;
  /** Why it could not be started. */
  readonly error?: NodeJS.ErrnoException;
}

/**
 * Whether a command gets a process group of its own. With one, its helpers end with it (`npx` and `sh -c` run the real program
 * as a helper), and a Ctrl-C at the terminal is for us alone. Windows has no such groups.
 */
const OWN_GROUP = process.platform !== "win32";

/** How often it is looked whether helpers are gone: the system tells of a child's end, and not of theirs. */
const POLL_MS = 20;

/** Those that run. When this process exits, however early, so do they. */
const running = new Set<Child>();

function killAll(): void {
  for (const child of running) child.kill();
}

/** A command from its start on. What fails, fails as its end: making one never throws. */
export class Child {
  /** Resolves when the command has ended, however it did, and everything it wrote was handed over. Never rejects. */
  readonly ended: Promise<ChildEnd>;
  /** Resolves when nothing of it is left, helpers included. Never rejects. */
  readonly gone: Promise<unknown>;
  readonly #graceMs: number;
  readonly #process: ChildProcess | undefined;
  #onDrain: (() => void) | undefined;
  #isEnding = false;
  #hasExited = false;
  /** Whether its pipes are at their end, too. */
  #hasClosed = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: ChildOptions) {
    this.#graceMs = options.graceMs;
    try {
      this.#process = start(options);
    } catch (error) {
      // Node reports most failures as an event, but not all: a NUL byte, arguments too long.
      this.ended = this.gone = Promise.resolve({ exitCode: null, signal: null, error: error as Error });
      return;
    }
    this.ended = this.#watch(this.#process, options);
    this.gone = this.#untilGone(this.#process);
  }

  /** Writes to its standard input. False when that is full; then `onceDrained` tells when to go on. What a command that reads no more is given, is dropped. */
  write(bytes: Buffer): boolean {
    const { stdin } = this.#process ?? {};
    return !stdin?.writable || stdin.write(bytes);
  }

  /** Calls back, once, when its standard input has room again. */
  onceDrained(listener: () => void): void {
    this.#onDrain = listener;
  }

  /** Stops reading its output: a command that has filled the pipe waits. */
  pause(): void {
    if (this.#hasExited) clearTimeout(this.#timer);
    this.#process?.stdout?.pause();
  }

  /** Reads its output again. */
  resume(): void {
    this.#process?.stdout?.resume();
    if (this.#hasExited && !this.#hasClosed) this.#linger();
  }

  /** Whether its output is not read at the moment. */
  get isPaused(): boolean {
    return this.#process?.stdout?.isPaused() === true;
  }

  /** Ends its standard input, behind what was written to it; it may go on for as long as it likes. */
  endInput(): void {
    this.#process?.stdin?.end();
  }

  /** Has it end: its standard input ends; when it goes on, SIGTERM; when it goes on, SIGKILL. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    // Whoever waits until its output is taken must not wait for ever.
    this.resume();
    if (this.#hasExited || this.#process?.pid === undefined) return;
    this.endInput();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#signal("SIGTERM");
      this.#timer = setTimeout(() => this.kill(), this.#graceMs);
    }, this.#graceMs);
  }

  /** Ends it at once. */
  kill(): void {
    this.#signal("SIGKILL");
  }

  #watch(child: ChildProcess, { output, stderr, deaf }: ChildOptions): Promise<ChildEnd> {
    const { pid, stdin, stdout } = child;
    // Without a number it did not start, and may have no pipes either.
    if (pid === undefined) {
      return new Promise((resolve) => {
        child.once("error", (error) => resolve({ exitCode: null, signal: null, error }));
      });
    }
    child.on("error", ignore);
    stdin!.on("drain", () => this.#drained());
    // What was written to a command that has closed its end: mostly it has ended, and that is told in a moment.
    stdin!.on("error", ignore).once("close", () => {
      if (!this.#hasExited && !stdin!.writableEnded) this.#timer = setTimeout(deaf, this.#graceMs);
    });
    stdout!.on("error", ignore).on("data", output);
    if (typeof stderr === "function") child.stderr!.on("error", ignore).on("data", stderr);
    child.once("exit", () => this.#exited());
    return new Promise((resolve) => {
      child.once("close", (exitCode, signal) => {
        this.#hasClosed = true;
        clearTimeout(this.#timer);
        resolve({ exitCode, signal });
      });
    });
  }

  /** Ends what its helpers still do, when it has exited. */
  async #untilGone(child: ChildProcess): Promise<void> {
    if (child.pid === undefined) return;
    add(this);
    await new Promise((resolve) => child.once("exit", resolve));
    let isLeft = this.#signal("SIGTERM");
    // Twice: what is killed is gone a moment later, and what nobody waits for (a container without an init) stays a zombie.
    for (let waited = 0; isLeft && waited < 2 * this.#graceMs; waited += POLL_MS) {
      await delay(POLL_MS);
      isLeft = this.#signal(waited < this.#graceMs ? 0 : "SIGKILL");
    }
    remove(this);
  }

  #drained(): void {
    const listener = this.#onDrain;
    this.#onDrain = undefined;
    listener?.();
  }

  /** The command is over; what it has started may not be, and may hold its pipes open. */
  #exited(): void {
    this.#hasExited = true;
    clearTimeout(this.#timer);
    if (!this.isPaused) this.#linger();
  }

  /** The pipes end with the last who can write to them. When that is somebody out of reach, it is not waited for; time that they are paused does not count. */
  #linger(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#process?.stdout?.destroy();
      this.#process?.stderr?.destroy();
    }, this.#graceMs);
  }

  /** Signals the whole group, 0 being none; whether there is anybody in it. */
  #signal(signal: NodeJS.Signals | 0): boolean {
    const pid = this.#process?.pid;
    // Without a group, its number may be somebody else's by then.
    if (pid === undefined || (this.#hasExited && !OWN_GROUP)) return false;
    try {
      return process.kill(OWN_GROUP ? -pid : pid, signal);
    } catch {
      // Nobody, or a process that has changed its user, and then nothing can be done about it.
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
