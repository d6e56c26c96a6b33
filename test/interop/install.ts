/** Other people's packages, as `package-lock.json` beside this file pins them, installed when they are not there yet. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const here = import.meta.dirname;
/** Holds the lock file's hash; written last, so an installation that was cut off is begun anew. */
const stamp = join(here, "node_modules", ".installed");
const claim = join(here, "..", "..", "test-output", "interop.installing");

/** Resolves when what the lock file says is installed. Several processes may ask at once: one of them installs. */
export async function ensurePackages(): Promise<void> {
  const wanted = createHash("sha256")
    .update(await readFile(join(here, "package-lock.json")))
    .digest("hex");
  await mkdir(join(claim, ".."), { recursive: true });
  while ((await textOf(stamp)) !== wanted) {
    if (await claimed()) {
      try {
        await install();
        await writeFile(stamp, wanted);
      } finally {
        await rm(claim, { force: true });
      }
    } else await delay(200);
  }
}

/** Whether it is this process's turn: the file can be made by one of them only. One left by a process that died is removed. */
async function claimed(): Promise<boolean> {
  try {
    await writeFile(claim, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    const owner = Number(await textOf(claim));
    if (owner > 0 && !isRunning(owner)) await rm(claim, { force: true });
    return false;
  }
}

async function install(): Promise<void> {
  try {
    // Without a shell on Windows, `npm` is not found.
    await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: here,
      shell: process.platform === "win32",
    });
  } catch (cause) {
    throw new Error(`the packages of test/interop could not be installed; try \`npm ci\` in ${here}`, { cause });
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

/** Empty when there is no such file. */
async function textOf(path: string): Promise<string> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
