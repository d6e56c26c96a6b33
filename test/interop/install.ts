/** Packages that only some tests need, as the `package-lock.json` of a folder pins them, installed when they are not there yet. */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";

const output = join(import.meta.dirname, "..", "..", "test-output");

/** Resolves when what the folder's lock file says is installed. Several processes may ask at once: one of them installs. */
export async function ensurePackages(folder: string): Promise<void> {
  // Holds the lock file's hash; written last, so an installation that was cut off is begun anew.
  const stamp = join(folder, "node_modules", ".installed");
  const claim = join(output, `${basename(folder)}.installing`);
  const wanted = createHash("sha256")
    .update(await readFile(join(folder, "package-lock.json")))
    .digest("hex");
  await mkdir(join(claim, ".."), { recursive: true });
  while ((await textOf(stamp)) !== wanted) {
    if (await claimed(claim)) {
      try {
        await install(folder);
        await writeFile(stamp, wanted);
      } finally {
        await rm(claim, { force: true });
      }
    } else await delay(200);
  }
}

/** Whether it is this process's turn: the file can be made by one of them only. One left by a process that died is removed. */
async function claimed(claim: string): Promise<boolean> {
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

async function install(folder: string): Promise<void> {
  try {
    // Without a shell on Windows, `npm` is not found.
    await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: folder,
      shell: process.platform === "win32",
    });
  } catch (cause) {
    throw new Error(`the packages of ${folder} could not be installed; try \`npm ci\` there`, { cause });
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
