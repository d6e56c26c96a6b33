/** Runs npm scripts of this package at the same time, and ends with 1 if any of them fails: `node scripts/check.js lint typecheck`. */
import { spawn } from "node:child_process";
import { once } from "node:events";

const exits = process.argv.slice(2).map(async (script) => {
  const child = spawn("npm", ["run", "--silent", script], { stdio: "inherit", shell: process.platform === "win32" });
  const [code] = await once(child, "exit");
  return code;
});
if ((await Promise.all(exits)).some((code) => code !== 0)) process.exitCode = 1;
