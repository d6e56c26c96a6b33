/** One experiment in a process of its own, which prints the cell: `node experiment.js CONTENDER COLUMN`. */
import { facts } from "./facts.js";

const [contender, column] = process.argv.slice(2);
process.stdout.write(await facts[column].run(contender));
// What the contender left open, a call that nobody answers for one, must not keep the process.
process.exit();
