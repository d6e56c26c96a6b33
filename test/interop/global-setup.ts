/** Installs the pinned packages beside this file, once for each change of their lock file. */
import { execFile } from "node:child_process";
import { copyFile, readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const folder = fileURLToPath(new URL(".", import.meta.url));
const lock = `${folder}package-lock.json`;
/** The lock file that was installed last; it goes away with what was. */
const installed = `${folder}node_modules/.installed.json`;

export default async function setup(): Promise<void> {
  const [wanted, present] = await Promise.all([readFile(lock, "utf8"), readFile(installed, "utf8").catch(() => "")]);
  if (wanted === present) return;
  await promisify(execFile)("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder });
  await copyFile(lock, installed);
}
