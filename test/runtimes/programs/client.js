/** Runs one check by the entry named on the command line, and prints its result as JSON. */
import { CHECKS } from "./checks.js";

const [, , entry, check, options] = process.argv;
const result = await CHECKS[check](await import(`../../../dist/${entry}.js`), JSON.parse(options));
// A connection that is dead would keep the process.
process.stdout.write(JSON.stringify(result), () => process.exit(0));
