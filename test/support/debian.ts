/** Programs that the tests need besides Node: found on the PATH, or installed by apt-get. */
import { spawn } from "node:child_process";
import { accessSync, constants, mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

/** Returns the paths of the programs found on the PATH, in the order of `names`. */
export function onPath(...names: string[]): string[] {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).filter(canRun);
}

export function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Runs a program, with its output on the terminal or discarded. Returns true if it succeeded. */
export function run([command, ...args]: string[], stdio: "inherit" | "ignore" = "inherit"): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(command!, args, { stdio });
    // The program printed its error. The caller tries another way, or reports the remedy.
    child.on("error", () => resolve(false));
    child.on("exit", (code) => resolve(code === 0));
  });
}

/** Installs Debian packages, as root or by `sudo`. Returns true on success. Several processes may call it at once. */
export async function aptInstall(...packages: string[]): Promise<boolean> {
  return (await aptGet("update")) && aptGet("install", "-y", ...packages);
}

/**
 * Resolves with the path of a server: the one that an environment variable names, or the first of these programs that is found. Installs
 * the first one if necessary. If that fails, rejects with the remedy. `oldest`: the oldest version that the tests run with.
 */
export async function ensureServer(variable: string, oldest: string, ...names: [string, ...string[]]): Promise<string> {
  const given = process.env[variable] ?? "";
  if (given !== "") {
    if (canRun(given)) return given;
    throw new Error(`${variable} is ${given}, which cannot be run`);
  }
  const find = (): string | undefined => [...onPath(...names), `/usr/sbin/${names[0]}`].find(canRun);
  const found = find() ?? ((await aptInstall(names[0])) ? find() : undefined);
  if (found === undefined)
    throw new Error(`${names[0]} cannot be found or installed; install ${oldest} or later, or set ${variable}`);
  return found;
}

async function aptGet(...args: string[]): Promise<boolean> {
  if (!canRun("/usr/bin/apt-get")) return false;
  const root = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  // Serialized, because apt-get fails at once if another one updates the lists, and waits for installations only with an option.
  const oneByOne = canRun("/usr/bin/flock") ? ["flock", join(tmpdir(), "reciproc-apt-get.lock")] : [];
  const apt = "env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300".split(" ");
  return run([...root, ...oneByOne, ...apt, ...args]);
}

/** Unpacks Debian packages below test-output, so that no service starts. Returns a program and its libraries, or rejects with the remedy. */
export async function aptUnpack(name: string, ...packages: string[]): Promise<{ program: string; libraries: string }> {
  const folder = join(import.meta.dirname, "../../test-output/debian");
  const places = ["usr/sbin", "usr/bin"].map((place) => join(folder, place, name));
  const libraries = join(folder, "usr/lib/x86_64-linux-gnu");
  if (!places.some(canRun)) {
    const download = join(folder, `${name}-packages`);
    mkdirSync(download, { recursive: true });
    const fetch = `cd '${download}' && apt-get download ${packages.join(" ")} && for file in *.deb; do dpkg -x "$file" ..; done`;
    const shell = ["sh", "-c", fetch];
    if (!(await run(shell, "ignore"))) {
      await aptGet("update");
      await run(shell);
    }
  }
  const program = places.find(canRun);
  if (program === undefined)
    throw new Error(`${name} could not be downloaded; install ${name} with your system's packages`);
  return { program, libraries };
}
