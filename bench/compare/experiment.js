/** Runs one experiment in a process of its own, and prints the cell: `node experiment.js CONTENDER COLUMN`. */
import { facts } from "./facts.js";

const [contender, column] = process.argv.slice(2);
process.stdout.write(await facts[column].run(contender));
// Exit, although the contender may have left something open, such as a call without a response.
process.exit();
