/** Reads JSON: PARAMS, from the command line or from standard input, and answers. */
import { UsageError } from "./args.js";

/** Reads PARAMS, from standard input for `-`. Returns `undefined` if absent. Rejects with a `UsageError` that points at the fault. */
export async function readParams(
  argument: string | undefined,
  stdin: AsyncIterable<Uint8Array>,
): Promise<object | undefined> {
  if (argument === undefined) return undefined;
  if (argument === "-") return parseParams(await readAll(stdin), "standard input");
  return parseParams(argument, "PARAMS");
}

/** Parses JSON. `source` names it in messages. Throws a `UsageError`. */
export function parseJson(text: string, source: string): unknown {
  if (text.trim() === "") throw new UsageError(`${source} is empty`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw pointedAt(text, source, error as Error);
  }
  if (!isWritable(value)) throw new UsageError(`${source} is nested too deeply to be written`);
  return value;
}

/** Parses PARAMS. `source` names them in messages. Throws a `UsageError`. */
export function parseParams(text: string, source: string): object {
  const value = parseJson(text, source);
  if (typeof value === "object" && value !== null) return value;
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

/** How much of a long line is shown before and after a fault. */
const MOST_BEFORE = 60;
const MOST_AFTER = 18;

/** Returns the error for a text that `JSON.parse` refuses with `error`. */
function pointedAt(text: string, source: string, error: Error): UsageError {
  // V8 names no position where a token begins no value, and quotes the text instead.
  const [, reason = "", position] = /^(.*?)(?:(?: in JSON)? at position (\d+).*|, .* is not valid JSON)?$/s.exec(
    error.message,
  )!;
  const message = `${source} is not JSON: ${charactersOf(reason).join("")}`;
  if (position === undefined) return new UsageError(message);
  const index = Number(position);
  const start = text.lastIndexOf("\n", index - 1) + 1;
  const before = charactersOf(text.slice(start, index));
  const after = charactersOf(text.slice(index).split("\n")[0]!);
  const place = `line ${text.slice(0, start).split("\n").length}, column ${before.length + 1}`;
  const shown = before.length > MOST_BEFORE ? ["…", ...before.slice(-MOST_BEFORE)] : before;
  const rest = after.length > MOST_AFTER ? [...after.slice(0, MOST_AFTER), "…"] : after;
  return new UsageError(`${message} (${place})`, `${[...shown, ...rest].join("")}\n${" ".repeat(shown.length)}^`);
}

/** Returns the characters of a text, one column each: a character that would move the cursor becomes a space. */
function charactersOf(text: string): string[] {
  return Array.from(text, (character) => (/\p{C}/u.test(character) ? " " : character));
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
