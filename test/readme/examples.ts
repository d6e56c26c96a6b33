/** The examples of the documents, extracted unchanged. */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join, resolve as resolvePath } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { promisify } from "node:util";
import { Worker } from "node:worker_threads";
import { blocksOf } from "../../scripts/guide.js";

const root = join(import.meta.dirname, "../..");
const TSC = join(root, "node_modules/typescript/bin/tsc");

/** A folder for each test file, inside the package, so that `import "reciproc"` resolves as in a user's project. */
export const folder = join(root, "test-output", `examples-${randomUUID()}`);

/** A code block that begins with its file's name. */
export interface Example {
  readonly name: string;
  readonly code: string;
  /** The lines that it prints, if the document shows them in a text block after the code. */
  readonly output: readonly string[] | undefined;
}

/** The files that a document has whole. A guide with blocks of `diff` is written by `scripts/guide.js`. */
export async function examplesOf(document: string): Promise<Example[]> {
  const blocks = blocksOf(await readFile(join(root, document), "utf8"));
  return blocks.filter(({ language }) => !["diff", "jsonc"].includes(language));
}

export async function extract(document: string, into = folder): Promise<string[]> {
  const examples = await examplesOf(document);
  await mkdir(into, { recursive: true });
  for (const { name, code } of examples) await writeFile(join(into, name), code);
  return examples.map(({ name }) => name);
}

/** Lets the examples import the packages that are installed in the folder of a test. */
export async function linkPackages(from: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  await symlink(join(from, "node_modules"), join(folder, "node_modules"), "junction");
}

export async function clean(): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}

/** Runs the compiler as a user would. Returns its output, which contains the errors. */
export async function tsc(args: readonly string[], compiler = TSC): Promise<string> {
  const compiling = promisify(execFile)(process.execPath, [compiler, ...args], { cwd: root, maxBuffer: 2 ** 26 });
  const { stdout } = await compiling.catch((error: unknown) => error as { stdout: string });
  return stdout;
}

export function compile(name: string, ...further: string[]): Promise<string> {
  const flags = "--strict --target es2022 --module nodenext --types node --exactOptionalPropertyTypes".split(" ");
  return tsc(["--ignoreConfig", join(folder, name), ...flags, ...further]);
}

const HANG_MS = 240_000;

/** A thread in which programs run, one after the other. They share the package, which a process of each would load again. */
export class Thread implements AsyncDisposable {
  readonly #worker = new Worker(join(import.meta.dirname, "runner.js"));
  #last: Promise<unknown> = Promise.resolve();

  /** Runs a program after those of before. Resolves with what it has printed, when nothing keeps it running. One that hangs fails all. */
  run(path: string): Promise<{ printed: string; errors: string }> {
    const ended = this.#last.then(async () => {
      this.#worker.postMessage(path);
      const reply = once(this.#worker, "message", { signal: AbortSignal.timeout(HANG_MS) });
      const [result] = (await reply) as [{ printed: string; errors: string }];
      return result;
    });
    this.#last = ended;
    // A test awaits it later.
    ended.catch(() => {});
    return ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}

export class Running {
  readonly lines: string[] = [];
  readonly exited: Promise<unknown[]>;
  readonly #child: ChildProcess;
  readonly #output: Interface;
  #errors = "";

  /** Starts an extracted example by its name, or any program by its path, in `cwd`. `env` is added to the environment. */
  constructor(name: string, args: string[] = [], env: NodeJS.ProcessEnv = {}, cwd = process.cwd()) {
    this.#child = spawn(process.execPath, [resolvePath(folder, name), ...args], {
      stdio: "pipe",
      env: { ...process.env, ...env },
      cwd,
    });
    // Not "exit", because output may still arrive after it.
    this.exited = once(this.#child, "close");
    this.#child.stderr!.on("data", (text: Buffer) => (this.#errors += text.toString()));
    this.#output = createInterface(this.#child.stdout!).on("line", (line) => this.lines.push(line));
  }

  /** Resolves when a line matches, of those from `from` on. Rejects if the program ends without one. */
  async line(pattern: RegExp, from = 0): Promise<string> {
    const find = (): string | undefined => this.lines.slice(from).find((line) => pattern.test(line));
    let isOver = false;
    while (find() === undefined && !isOver) {
      const more = once(this.#output, "line").then(() => false);
      isOver = await Promise.race([more, this.exited.then(() => true)]);
    }
    const found = find();
    if (found !== undefined) return found;
    throw new Error(`no line matches ${pattern}: ${this.lines.join("\n")}\n${this.#errors}`);
  }

  get pid(): number {
    return this.#child.pid!;
  }

  get errors(): string {
    return this.#errors;
  }

  say(line: string): void {
    this.#child.stdin!.write(`${line}\n`);
  }

  /** Sends a signal, and waits for the end. Returns the exit code, which is null if the signal ended the program. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
    this.#child.kill(signal);
    await this.exited;
    return this.#child.exitCode;
  }
}
