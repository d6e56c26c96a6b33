/**
 * Packages that only the demo or some tests need: each folder that has its own `package.json` pins them in its own
 * `package-lock.json`. As a program, installs those of the given folders: `node scripts/packages.js demo/language-servers`.
 */
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

const output = join(import.meta.dirname, "..", "test-output");

/**
 * Installs the packages that the lock file of the folder names, unless they are installed. Calls `onInstall` before it installs.
 * Several processes may call it at once.
 */
export async function ensurePackages(folder, onInstall) {
  // The stamp holds the hash of the lock file. It is written last, so an interrupted installation is repeated.
  const stamp = join(folder, "node_modules", ".installed");
  const claim = join(output, `${basename(folder)}.installing`);
  const wanted = createHash("sha256")
    .update(await readFile(join(folder, "package-lock.json")))
    .digest("hex");
  await mkdir(output, { recursive: true });
  while ((await readIfPresent(stamp)) !== wanted) {
    if (await createClaim(claim)) {
      try {
        onInstall?.();
        await install(folder);
        await writeFile(stamp, wanted);
      } finally {
        await rm(claim, { force: true });
      }
    } else await delay(200);
  }
}

/** Creates the file. Returns false if it exists, because then another process installs. Removes the file of a dead process. */
async function createClaim(claim) {
  try {
    await writeFile(claim, String(process.pid), { flag: "wx" });
    return true;
  } catch (error) {
    if (error.code !== "EEXIST") throw error;
    const owner = Number(await readIfPresent(claim));
    if (owner > 0 && !isRunning(owner)) await rm(claim, { force: true });
    return false;
  }
}

async function install(folder) {
  try {
    // Without a shell on Windows, `npm` is not found.
    await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: folder,
      shell: process.platform === "win32",
    });
  } catch (cause) {
    throw new Error(`The packages of ${folder} could not be installed; run \`npm ci\` there to see why`, { cause });
  }
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

/** Returns the empty string if there is no such file. */
async function readIfPresent(path) {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (error.code === "ENOENT") return "";
    throw error;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href)
  for (const folder of process.argv.slice(2)) await ensurePackages(folder);
