/** Compiles the program of a node, so that a node is plain Node and nothing else. */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";

/** Compiles to a folder of the caller. Resolves with the path of the program. */
export async function compileNode(folder: string): Promise<string> {
  const tsc = join(import.meta.dirname, "../../../node_modules/typescript/bin/tsc");
  const outDir = join(import.meta.dirname, ".build", folder);
  await promisify(execFile)(process.execPath, [tsc, "-p", import.meta.dirname, "--outDir", outDir]);
  return join(outDir, "test/long/fleet/node.js");
}
