/** Programs that the tests need besides Node: found where they are, or installed by apt-get. */
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";

/** The paths of those of these programs that are on the PATH, in the order of `names`. */
export function onPath(...names: string[]): string[] {
  const folders = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => folder !== "");
  return names.flatMap((name) => folders.map((folder) => join(folder, name))).filter(canRun);
}

/** Whether there is a program at that path. */
export function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Runs a program, with what it says on the terminal or nowhere; whether it succeeded. */
export function run([command, ...args]: string[], stdio: "inherit" | "ignore" = "inherit"): Promise<boolean> {
  return new Promise((resolve) => {
    const child = spawn(command!, args, { stdio });
    // It has said what was wrong; the caller tries another way, or says what to do.
    child.on("error", () => resolve(false));
    child.on("exit", (code) => resolve(code === 0));
  });
}

/** Installs Debian packages, as root or by `sudo`; whether that worked. Several may be asked for at once, by any number of processes. */
export async function aptInstall(...packages: string[]): Promise<boolean> {
  if (!canRun("/usr/bin/apt-get")) return false;
  const root = process.getuid?.() === 0 ? [] : ["sudo", "-n"];
  // One after the other: apt-get fails at once where another one updates its lists, and waits for others to install only if told so.
  const oneByOne = canRun("/usr/bin/flock") ? ["flock", join(tmpdir(), "reciproc-apt-get.lock")] : [];
  const apt = [
    ...root,
    ...oneByOne,
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "apt-get",
    "-o",
    "DPkg::Lock::Timeout=300",
  ];
  return (await run([...apt, "update"])) && run([...apt, "install", "-y", ...packages]);
}
