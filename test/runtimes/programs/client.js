/** Runs checks by the entry named on the command line: one for each line of standard input. Prints each result as a line of JSON. */
import { createInterface } from "node:readline";
import { run } from "./checks.js";

const [, , name] = process.argv;
const entry = await import(`../../../dist/${name}.js`);
for await (const line of createInterface({ input: process.stdin })) {
  const [number, check, options] = JSON.parse(line);
  const print = (result) => process.stdout.write(`${JSON.stringify([number, result])}\n`);
  run(entry, check, options).then(print, (error) => print({ failed: String(error?.stack ?? error) }));
}
