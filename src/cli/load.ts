/** Imports a JavaScript file that the command line names. */
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { UsageError } from "./args.js";
import { describe } from "./output.js";

/**
 * Imports a file, and returns its default export. `example` is one that the file might have. In an object: a promise would call an export
 * named `then`. Rejects with a `UsageError` that names the fault.
 */
export async function loadDefault(file: string, example: string): Promise<{ value: unknown }> {
  const path = resolve(file);
  const isFile = await stat(path).then(
    (stats) => stats.isFile(),
    () => undefined,
  );
  if (isFile === undefined) throw new UsageError(`there is no file "${file}"`);
  if (!isFile) throw new UsageError(`"${file}" is not a file`);
  const { file: module } = await importFile(path, file);
  if (!("default" in module)) {
    throw new UsageError(`"${file}" has no default export; it needs \`export default ${example}\``);
  }
  return { value: module["default"] };
}

/** An imported file, as a member: awaiting its namespace would call an export named `then`. */
interface Imported {
  readonly file: Record<string, unknown>;
}

async function importFile(path: string, file: string): Promise<Imported> {
  let onIdle: (() => void) | undefined;
  const idle = new Promise<never>((_resolve, reject) => {
    onIdle = () => reject(new UsageError(`"${file}" never finishes loading: its top-level await cannot settle`));
    process.once("beforeExit", onIdle);
  });
  try {
    // `import()` calls an export named `then`, which CommonJS has for a method of that name. This module exports only the namespace.
    const text = `export * as file from ${JSON.stringify(pathToFileURL(path).href)};`;
    return await Promise.race([import(`data:text/javascript,${encodeURIComponent(text)}`) as Promise<Imported>, idle]);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new UsageError(`cannot load "${file}": ${describe(error)}${hintFor(error, file)}`);
  } finally {
    process.off("beforeExit", onIdle!);
  }
}

function hintFor(error: unknown, file: string): string {
  // Node does not report the place of a syntax error in an ES module.
  if (error instanceof SyntaxError) return `; \`node --check ${file}\` shows the place`;
  // This error also occurs if FILE imports a TypeScript file.
  if (error instanceof TypeError && /^Unknown file extension "\.[cm]?tsx?"/.test(error.message))
    return `; compile it first, or run with a loader such as \`NODE_OPTIONS="--import tsx"\``;
  return "";
}
