/** The tested TypeScript versions: the one that builds the project, and two older ones, installed in this folder. */
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

export const COMPILERS = ["typescript", "typescript-6", "typescript-5.9"] as const;
export type Compiler = (typeof COMPILERS)[number];

/** Returns the path of the compiler's command. */
export function tscOf(compiler: Compiler): string {
  return join(compiler === "typescript" ? ROOT : import.meta.dirname, "node_modules", compiler, "bin/tsc");
}
