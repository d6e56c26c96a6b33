/** Reads PARAMS: JSON from the command line or from standard input. */
import { UsageError } from "./args.js";
import { findJsonFault, placeOf } from "./json.js";

/** Reads PARAMS, from standard input for `-`. Returns `undefined` if absent. Rejects with a `UsageError` that points at the fault. */
export async function readParams(
  argument: string | undefined,
  stdin: AsyncIterable<Uint8Array>,
): Promise<object | undefined> {
  if (argument === undefined) return undefined;
  if (argument === "-") return parseParams(await readAll(stdin), "standard input");
  return parseParams(argument, "PARAMS");
}

/** Parses PARAMS. `source` names them in messages. Throws a `UsageError`. */
export function parseParams(text: string, source: string): object {
  if (text.trim() === "") throw new UsageError(`${source} is empty`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw pointedAt(text, source, error as Error);
  }
  if (typeof value === "object" && value !== null) {
    if (!isWritable(value)) throw new UsageError(`${source} is nested too deeply to be written`);
    return value;
  }
  const kind = value === null ? "null" : `a ${typeof value}`;
  throw new UsageError(`${source} must be a JSON array or object, got ${kind}`);
}

/** Whether `JSON.stringify` can write a value. `JSON.parse` accepts any depth, `JSON.stringify` does not. */
export function isWritable(value: unknown): boolean {
  try {
    JSON.stringify(value);
    return true;
  } catch {
    return false;
  }
}

function pointedAt(given: string, source: string, error: Error): UsageError {
  // Trailing blanks are cut, so that a text that ends too early is marked after its last character, not on an empty line.
  const text = given.slice(0, endOfText(given));
  const fault = findJsonFault(text) ?? { index: 0, reason: error.message };
  const { line, column, excerpt } = placeOf(text, fault.index);
  return new UsageError(`${source} is not JSON: ${fault.reason} (line ${line}, column ${column})`, excerpt);
}

/** Returns where the trailing blanks begin. Only blanks that JSON allows count: any other is a fault. */
function endOfText(text: string): number {
  let end = text.length;
  while (end > 0 && " \n\r\t".includes(text[end - 1]!)) end--;
  return end;
}

async function readAll(stdin: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stdin) chunks.push(chunk);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(Buffer.concat(chunks));
  } catch {
    throw new UsageError("standard input is not UTF-8");
  }
}
