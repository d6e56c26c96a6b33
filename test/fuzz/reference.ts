/** The oracle of this folder: the specification and docs/PROTOCOL.md, implemented plainly and independently of the package. */
import { expect } from "vitest";

/** The outcomes of the methods that the peer under test must serve. */
export type Served = (method: string, params: unknown) => { result: unknown } | { error: object };

type Json = Record<string, unknown>;

const has = Object.hasOwn;

/** Section 4: a string, a number or null. A number only if it was parsed without loss. */
export function isUsableId(id: unknown): boolean {
  if (id === null || typeof id === "string") return true;
  if (typeof id !== "number" || !Number.isFinite(id)) return false;
  return id % 1 !== 0 || Number.isSafeInteger(id);
}

export function referenceKind(value: unknown): "request" | "notification" | "response" | "invalid" | "broken" {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return "invalid";
  const message = value as Json;
  if (!has(message, "method")) {
    const carriesOutcome = has(message, "result") || has(message, "error");
    // An id without a method: a response that lacks its outcome.
    const isBareId = has(message, "id") && !has(message, "params");
    if (!carriesOutcome && !isBareId) return "invalid";
    return isWellFormedResponse(message) ? "response" : "broken";
  }
  if (!isVersion2(message) || typeof message["method"] !== "string") return "invalid";
  const { params } = message;
  if (has(message, "params") && (typeof params !== "object" || params === null)) return "invalid";
  if (!has(message, "id")) return "notification";
  return isUsableId(message["id"]) ? "request" : "invalid";
}

function isVersion2(message: Json): boolean {
  return has(message, "jsonrpc") && message["jsonrpc"] === "2.0";
}

/** Section 5, with `error: null` beside a result treated as absent. */
function isWellFormedResponse(message: Json): boolean {
  if (!isVersion2(message)) return false;
  if (!has(message, "id") || !isUsableId(message["id"])) return false;
  const hasResult = has(message, "result");
  const hasError = has(message, "error") && message["error"] !== null;
  if (hasResult || !hasError) return hasResult !== hasError;
  const { error } = message;
  if (typeof error !== "object" || error === null || Array.isArray(error)) return false;
  const { code, message: text } = error as Json;
  return Number.isInteger(code) && typeof text === "string";
}

const PARSE_ERROR = { code: -32700, message: "Parse error" };
const INVALID_REQUEST = { code: -32600, message: "Invalid Request" };
export const METHOD_NOT_FOUND = { code: -32601, message: "Method not found" };
export const INTERNAL_ERROR = { code: -32603, message: "Internal error" };

export function asList(text: string): (Json | null)[] {
  try {
    return [JSON.parse(text) as Json].flat();
  } catch {
    return [];
  }
}

/** Returns true if a value has an id, not null, without method, params and outcome. */
function isLoneId(value: unknown): boolean {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return false;
  const names = Object.keys(value);
  const isBare = !["method", "params", "result", "error"].some((name) => names.includes(name));
  return isBare && names.includes("id") && (value as Json)["id"] !== null;
}

/** Returns true if a value is a response and needs no answer. A lone id is one if its call is pending. */
export function isAnswer(value: unknown, waiting: readonly unknown[]): boolean {
  if (isLoneId(value)) return waiting.includes((value as Json)["id"]);
  return ["response", "broken"].includes(referenceKind(value));
}

/** Returns the possible lists of pending calls. They differ if the text contains a lone id of a call for which `made` returns true. */
export function waysToWait(text: string, made: (id: number) => boolean): unknown[][] {
  const ids = new Set(
    asList(text)
      .filter(isLoneId)
      .map((member) => member!["id"]),
  );
  const doubtful = [...ids].filter((id) => typeof id === "number" && made(id));
  return doubtful.reduce<unknown[][]>((ways, id) => [...ways, ...ways.map((way) => [...way, id])], [[]]);
}

/** Returns the expected reply to a text, parsed, while calls of the ids `waiting` are pending, or `undefined`. */
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

/** Returns the same text for messages that differ only in the order of their members. */
export function canonical(message: unknown): string {
  if (Array.isArray(message)) return `[${message.map(canonical).join()}]`;
  const { jsonrpc, id, result, error, ...rest } = message as Json;
  return JSON.stringify({ jsonrpc, id, result, error, rest });
}

/** Asserts that the expected replies were received, and no others. One that is expected only in some ways of `repliesTo` may be missing. */
export function expectReplies(
  texts: string[],
  got: string[],
  repliesTo: (text: string) => string[][],
  mayBeMissing = new Set<string>(),
): void {
  const least = new Map<string, number>();
  const most = new Map<string, number>();
  let total = 0;
  for (const text of texts) {
    const ways = repliesTo(text);
    total += Math.min(...ways.map((replies) => replies.filter((one) => !mayBeMissing.has(one)).length));
    for (const reply of new Set(ways.flat())) {
      const counts = ways.map((replies) => replies.filter((one) => one === reply).length);
      least.set(reply, (least.get(reply) ?? 0) + Math.min(...counts));
      most.set(reply, (most.get(reply) ?? 0) + Math.max(...counts));
    }
  }
  const received = new Map<string, number>();
  for (const reply of got) received.set(reply, (received.get(reply) ?? 0) + 1);
  const unexpected = [...received].filter(([reply, count]) => count > (most.get(reply) ?? 0));
  const missing = [...least].filter(([reply, count]) => count > (received.get(reply) ?? 0) && !mayBeMissing.has(reply));
  expect({ unexpected, missing }).toEqual({ unexpected: [], missing: [] });
  expect(got.length).toBeGreaterThanOrEqual(total);
}
