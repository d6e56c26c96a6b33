/**
 * Runs a command several times beside busy loops, and prints how often it has succeeded:
 * `node scripts/busy.js --loops 6 --times 20 -- npm test`. With `taskset -c 0` before it, all of them share one core.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { parseArgs } from "node:util";

const { values, positionals } = parseArgs({
  options: { loops: { type: "string", default: "6" }, times: { type: "string", default: "1" } },
  allowPositionals: true,
});
const [loops, times] = [Number(values.loops), Number(values.times)];
if (!(loops >= 0 && times >= 1) || positionals.length === 0) {
  console.error("Usage: node scripts/busy.js [--loops 6] [--times 1] -- COMMAND ...");
  process.exit(64);
}

/** A busy loop that ends with its standard input, and so with this process, however that ends. */
const LOOP = `
  process.stdin.on("end", () => process.exit()).resume();
  (function loop() {
    for (const end = Date.now() + 50; Date.now() < end; );
    setImmediate(loop);
  })();`;
for (let i = 0; i < loops; i++) spawn(process.execPath, ["-e", LOOP], { stdio: ["pipe", "ignore", "ignore"] });

let passed = 0;
for (let run = 1; run <= times; run++) {
  const startedAt = performance.now();
  const child = spawn(positionals[0], positionals.slice(1), { stdio: "inherit", shell: process.platform === "win32" });
  const [code] = await once(child, "exit");
  if (code === 0) passed++;
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  console.log(
    `Run ${run} of ${times} beside ${loops} busy loops: ${code === 0 ? "passed" : "failed"} after ${seconds} s`,
  );
}
console.log(`${passed} of ${times} runs passed`);
process.exit(passed === times ? 0 : 1);
