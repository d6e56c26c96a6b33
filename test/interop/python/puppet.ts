/** A Python program controlled by the test, by lines of JSON in both directions. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { aptInstall, onPath, run } from "../../support/debian.js";

const CURE = "no Python with `websockets` was found and none could be installed; install python3-websockets";

/** Returns a Python that has `websockets`. Debian's own has the packages of apt-get, even if another is first on the PATH. */
export async function ensurePython(): Promise<string> {
  const found = (await find()) ?? ((await aptInstall("python3-websockets")) ? await find() : undefined);
  if (found === undefined) throw new Error(CURE);
  return found;
}

async function find(): Promise<string | undefined> {
  for (const path of [...onPath("python3"), "/usr/bin/python3"]) {
    if (await run([path, "-c", "import websockets"], "ignore")) return path;
  }
  return undefined;
}

/** A running program. */
export class Puppet implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #said: (what: any) => void;

  /** Calls `said` for each printed line. Standard error goes to the terminal. */
  constructor(python: string, script: string, args: string[], said: (what: any) => void) {
    this.#said = said;
    const env = { ...process.env, NO_PROXY: "*", PYTHONUTF8: "1", PYTHONDONTWRITEBYTECODE: "1" };
    const path = join(import.meta.dirname, script);
    this.#child = spawn(python, [path, ...args], { env, stdio: ["pipe", "pipe", "inherit"] });
    this.#exited = once(this.#child, "exit");
    createInterface(this.#child.stdout!).on("line", (line) => this.#said(JSON.parse(line)));
  }

  /** Sends a command to the program. */
  send(what: object): void {
    this.#child.stdin!.write(`${JSON.stringify(what)}\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }
}
