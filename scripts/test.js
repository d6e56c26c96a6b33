/**
 * Runs the tests: `node scripts/test.js` those of `npm test`, with the style and the types, and `node scripts/test.js all` those of
 * `npm run test:all`. Prints what it does, and a last line that says what has passed or failed.
 */
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { relative } from "node:path";
import { startVitest } from "vitest/node";

const isAll = process.argv[2] === "all";
const startedAt = performance.now();
const failed = [];

console.log("Building ...");
if (await runs("build")) {
  console.log(isAll ? "Running the tests ..." : "Checking the style and the types, and running the tests ...");
  const checks = isAll ? [] : ["lint", "typecheck"];
  const [tests] = await Promise.all([runTests(isAll ? "all" : "test"), ...checks.map((name) => runs(name))]);
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  const time = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (failed.length === 0) console.log(`\nPassed: ${[...checks, tests].join(", ")}, in ${time}.`);
  else console.log(`\nFailed: ${failed.join(", ")}, in ${time}.`);
} else console.log("\nFailed: build.");
process.exit(failed.length === 0 ? 0 : 1);

/** Returns a number with separators. */
function count(number) {
  return number.toLocaleString("en");
}

/** Runs an npm script, and prints what it prints when it has ended. Returns whether it succeeded. */
function runs(name) {
  return new Promise((resolve) => {
    let output = "";
    const child = spawn("npm", ["run", "--silent", name], { shell: process.platform === "win32" });
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding("utf8").on("data", (text) => (output += text));
    child.on("close", (code) => {
      if (code !== 0) {
        failed.push(name);
        console.log(`\n${name} failed:\n${output}`);
      } else if (name !== "build") console.log(`${name} passed`);
      resolve(code === 0);
    });
  });
}

/** Runs the tests of a project of `vitest.config.ts`. Returns their count as a text. */
async function runTests(project) {
  // Most tests of `all` wait for a browser or a broker.
  const maxWorkers = isAll ? 3 : 2;
  const vitest = await startVitest("test", [], { project, run: true, maxWorkers }).catch(console.error);
  if (vitest === undefined) {
    failed.push("the start of the tests");
    return "no tests";
  }
  const files = vitest.state.getTestModules();
  const tests = files.flatMap((file) => [...file.children.allTests()]);
  const [passed, red] = ["passed", "failed"].map((state) => tests.filter((test) => test.result().state === state));
  if (red.length > 0) failed.push(`${count(red.length)} of ${count(tests.length)} tests`);
  // A file that cannot be imported has no test, and a hook that fails lets no test of its file run.
  const without = files.filter((file) => !file.ok() && !red.some((test) => test.module === file));
  if (without.length > 0)
    failed.push(`${count(without.length)} of ${count(files.length)} files with an error outside of their tests`);
  if (vitest.state.getUnhandledErrors().length > 0) failed.push("errors outside of all tests");
  const notRun = tests.length - passed.length - red.length;
  if (notRun > 0) failed.push(`${count(notRun)} tests that were skipped or did not run`);
  const lost = lostDetectors(files, passed);
  if (lost.length > 0) {
    failed.push(`${count(lost.length)} entries of test/detectors.json`);
    console.log(`\nNo test of that name has passed:\n${lost.join("\n")}`);
  }
  // As when the setup of all tests fails.
  if (passed.length === 0) failed.push("no test has passed");
  await vitest.close();
  return `${count(passed.length)} tests in ${count(files.length)} files`;
}

function pathOf({ moduleId }) {
  return relative(".", moduleId).replaceAll("\\", "/");
}

/** Returns the tests that `test/detectors.json` lists in these files, or in files that do not exist, and that have not passed. */
function lostDetectors(files, passed) {
  const ran = new Set(files.map(pathOf));
  const names = new Set(passed.map((test) => `${pathOf(test.module)} > ${test.fullName}`));
  const { gone: _gone, ...kinds } = JSON.parse(readFileSync("test/detectors.json", "utf8"));
  return Object.values(kinds)
    .flatMap((kind) => Object.entries(kind))
    .filter(([file]) => ran.has(file) || !existsSync(file))
    .flatMap(([file, tests]) => Object.keys(tests).map((name) => `${file} > ${name}`))
    .filter((name) => !names.has(name));
}
