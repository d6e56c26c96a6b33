/**
 * What the specification and docs/PROTOCOL.md ask for, written slowly and plainly, without a look at how the package does
 * it: the oracle of the tests in this folder.
 */

/** The answers that methods give at once or later, by what they are: how the peer under test must serve. */
export type Served = (method: string, params: unknown) => { result: unknown } | { error: object };

type Json = Record<string, unknown>;

const has = (value: Json, name: string): boolean => Object.keys(value).includes(name);

/** Section 4: a string, a number or null; and a number only if it arrived as it was written. */
export function isUsableId(id: unknown): boolean {
  if (id === null || typeof id === "string") return true;
  if (typeof id !== "number") return false;
  if (id === Infinity || id === -Infinity || id !== id) return false;
  const isWhole = id % 1 === 0;
  return !isWhole || (id >= -9007199254740991 && id <= 9007199254740991);
}

/** The kind of a parsed message. */
export function referenceKind(value: unknown): "request" | "notification" | "response" | "invalid" | "broken" {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return "invalid";
  const message = value as Json;
  if (!has(message, "method")) {
    const carriesOutcome = has(message, "result") || has(message, "error");
    // An id and nothing to call: an answer that lost its outcome.
    const isBareId = has(message, "id") && !has(message, "params");
    if (!carriesOutcome && !isBareId) return "invalid";
    return isWellFormedResponse(message) ? "response" : "broken";
  }
  if (!isVersion2(message)) return "invalid";
  if (typeof message["method"] !== "string") return "invalid";
  if (has(message, "params")) {
    const { params } = message;
    const isStructured = Array.isArray(params) || (typeof params === "object" && params !== null);
    if (!isStructured) return "invalid";
  }
  if (!has(message, "id")) return "notification";
  return isUsableId(message["id"]) ? "request" : "invalid";
}

function isVersion2(message: Json): boolean {
  return has(message, "jsonrpc") && message["jsonrpc"] === "2.0";
}

/** Section 5, with `error: null` beside a result taken as absent. */
function isWellFormedResponse(message: Json): boolean {
  if (!isVersion2(message)) return false;
  if (!has(message, "id") || !isUsableId(message["id"])) return false;
  const hasResult = has(message, "result");
  const hasError = has(message, "error") && message["error"] !== null;
  if (hasResult && hasError) return false;
  if (!hasResult && !hasError) return false;
  if (hasResult) return true;
  const { error } = message;
  if (typeof error !== "object" || error === null || Array.isArray(error)) return false;
  const { code, message: text } = error as Json;
  return (
    typeof code === "number" && Math.floor(code) === code && Math.abs(code) !== Infinity && typeof text === "string"
  );
}

const PARSE_ERROR = { code: -32700, message: "Parse error" };
const INVALID_REQUEST = { code: -32600, message: "Invalid Request" };
export const METHOD_NOT_FOUND = { code: -32601, message: "Method not found" };
export const INTERNAL_ERROR = { code: -32603, message: "Internal error" };

/** Whether a value names an id and nothing else that counts: no method, no params, no outcome. Under null nobody waits. */
function isLoneId(value: unknown): boolean {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
  const message = value as Json;
  return (
    has(message, "id") &&
    message["id"] !== null &&
    ["method", "params", "result", "error"].every((name) => !has(message, name))
  );
}

/** Whether a value is owed nothing because it answers something; an id alone does so where a call waits under it. */
export function isAnswer(value: unknown, waiting: readonly unknown[]): boolean {
  if (isLoneId(value)) return waiting.includes((value as Json)["id"]);
  return ["response", "broken"].includes(referenceKind(value));
}

/**
 * The calls that may matter to what a text is owed, each of these lists being one way in which they may still wait: it holds
 * an id alone, of a call that `made` says was made at some time.
 */
export function waysToWait(text: string, made: (id: number) => boolean): unknown[][] {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return [[]];
  }
  const members = Array.isArray(value) ? value : [value];
  const ids = new Set(members.filter(isLoneId).map((member) => (member as Json)["id"]));
  const doubtful = [...ids].filter((id) => typeof id === "number" && made(id));
  return doubtful.reduce<unknown[][]>((ways, id) => [...ways, ...ways.map((way) => [...way, id])], [[]]);
}

/** The frame a text is owed, parsed, while calls of the ids `waiting` wait; `undefined` for none. */
export function owedTo(
  text: string,
  served: Served,
  maxBatchEntries: number,
  waiting: readonly unknown[] = [],
): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return answer(null, { error: PARSE_ERROR });
  }
  if (!Array.isArray(value)) return owedToMessage(value, served, waiting);
  if (value.length === 0) return answer(null, { error: INVALID_REQUEST });
  if (value.filter((member) => !isAnswer(member, waiting)).length > maxBatchEntries) {
    return answer(null, { error: { code: -32010, message: "Batch is too large", data: { maxBatchEntries } } });
  }
  const owed = value.map((member) => owedToMessage(member, served, waiting)).filter((reply) => reply !== undefined);
  return owed.length === 0 ? undefined : owed;
}

function owedToMessage(value: unknown, served: Served, waiting: readonly unknown[]): unknown {
  if (isAnswer(value, waiting)) return undefined;
  if (isLoneId(value)) return answer(null, { error: INVALID_REQUEST });
  const kind = referenceKind(value);
  if (kind === "request") {
    const { id, method, params } = value as Json;
    return answer(id, served(method as string, params));
  }
  if (kind !== "invalid") return undefined;
  const id = typeof value === "object" && value !== null ? (value as Json)["id"] : undefined;
  return answer(id !== undefined && isUsableId(id) ? id : null, { error: INVALID_REQUEST });
}

function answer(id: unknown, outcome: object): object {
  return { jsonrpc: "2.0", id, ...outcome };
}

/** One text for equal messages: what a peer sent and what it owed, whatever the order of their own members. */
export function canonical(message: unknown): string {
  if (Array.isArray(message)) return `[${message.map(canonical).join()}]`;
  const { jsonrpc, id, result, error, ...rest } = message as Json;
  return JSON.stringify({ jsonrpc, id, result, error, rest });
}
