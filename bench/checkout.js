/** Builds this package at another commit. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const ROOT = fileURLToPath(new URL("../", import.meta.url));

/** Builds the package at a commit, in a temporary folder, with the packages of this one. Returns the folder, which the caller removes. */
export function checkout(ref) {
  const folder = mkdtempSync(join(tmpdir(), "reciproc-before-"));
  try {
    const archive = execFileSync("git", ["-C", ROOT, "archive", ref], { maxBuffer: 2 ** 28 });
    execFileSync("tar", ["-x", "-C", folder], { input: archive });
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
    execFileSync("npm", ["run", "--silent", "build"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
    return folder;
  } catch (error) {
    rmSync(folder, { recursive: true });
    throw error;
  }
}
