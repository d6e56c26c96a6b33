/** PARAMS: JSON from the command line or from standard input. */
import { UsageError } from "./args.js";
import { findJsonFault, placeOf } from "./json.js";

/** Reads PARAMS: `undefined` when left out, standard input for `-`. Throws a `UsageError` that points at the place. */
export async function readParams(
  argument: string | undefined,
  stdin: AsyncIterable<Uint8Array>,
): Promise<object | undefined> {
  if (argument === undefined) return undefined;
  if (argument === "-") return parseParams(await readAll(stdin), "standard input");
  return parseParams(argument, "PARAMS");
}

/** Parses PARAMS; `source` names them in messages. Throws a `UsageError`. */
export function parseParams(text: string, source: string): object {
  if (text.trim() === "") throw new UsageError(`${source} is empty`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw pointedAt(text, source, error as Error);
  }
  if (typeof value === "object" && value !== null) {
    if (!canBeWritten(value)) throw new UsageError(`${source} nests too deep to be written`);
    return value;
  }
  const kind = value === null ? "null" : `a ${typeof value}`;
  throw new UsageError(`${source} must be a JSON array or object, got ${kind}`);
}

/** `JSON.parse` takes any depth, `JSON.stringify` does not. */
export function canBeWritten(value: unknown): boolean {
  try {
    JSON.stringify(value);
    return true;
  } catch {
    return false;
  }
}

function pointedAt(given: string, source: string, error: Error): UsageError {
  // A text that ends too early ends with its last character, not on the empty line behind the newline that closes a file.
  const text = given.slice(0, endOfText(given));
  const fault = findJsonFault(text) ?? { index: 0, reason: error.message };
  const { line, column, excerpt } = placeOf(text, fault.index);
  return new UsageError(`${source} is not JSON: ${fault.reason} (line ${line}, column ${column})`, excerpt);
}

/** Where the blanks at the end begin: those that JSON allows, since any other is a fault to point at. */
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
