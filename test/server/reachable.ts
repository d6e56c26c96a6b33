/** Returns the values that an object holds. The debugger also sees private fields. */
import { Session } from "node:inspector";

interface Remote {
  readonly type: string;
  readonly subtype?: string;
  readonly value?: unknown;
  readonly objectId?: string;
  readonly className?: string;
}

/** Names of members that lead out of an object and into the whole process. */
const OUTWARD = new Set(["__proto__", "constructor"]);

/** Kinds of objects that keep none of their entries in memory. */
const WEAK = new Set<string | undefined>(["weakmap", "weakset"]);

/**
 * Returns every string that can be reached from `root` by members, private members, entries of maps and sets, and keys.
 */
export function stringsIn(root: object): string[] {
  const session = new Session();
  session.connect();
  try {
    return walk(session, root);
  } finally {
    session.post("Runtime.disable");
    session.disconnect();
  }
}

function walk(session: Session, root: object): string[] {
  const place = globalThis as { walkedRoot?: object | undefined };
  const call = (method: string, params: object): any => {
    let answer: unknown;
    session.post(method, params, (error, result) => {
      if (error) throw new Error(error.message);
      answer = result;
    });
    return answer;
  };
  place.walkedRoot = root;
  const { result } = call("Runtime.evaluate", { expression: "walkedRoot" }) as { result: Remote };
  delete place.walkedRoot;
  const { result: seen } = call("Runtime.evaluate", { expression: "new WeakSet()" }) as { result: Remote };
  const isNew = "function (seen) { return !seen.has(this) && !!seen.add(this) }";
  const strings: string[] = [];
  const due: Remote[] = [result];
  const take = (value: Remote | undefined): void => {
    if (value?.type === "string") strings.push(String(value.value));
    else if (value?.type === "object" && value.objectId !== undefined && !WEAK.has(value.subtype)) due.push(value);
  };
  for (let next = due.pop(); next !== undefined; next = due.pop()) {
    const { objectId } = next;
    const first = call("Runtime.callFunctionOn", {
      functionDeclaration: isNew,
      objectId,
      arguments: [{ objectId: seen.objectId }],
      returnByValue: true,
    }) as { result: Remote };
    if (first.result.value !== true) continue;
    const found = call("Runtime.getProperties", { objectId, ownProperties: true }) as {
      result: { name: string; value?: Remote }[];
      internalProperties?: { name: string; value?: Remote }[];
      privateProperties?: { name: string; value?: Remote }[];
    };
    for (const { name, value } of found.result) if (!OUTWARD.has(name)) take(value);
    for (const { value } of found.privateProperties ?? []) take(value);
    for (const { name, value } of found.internalProperties ?? []) if (name === "[[Entries]]") take(value);
  }
  return strings;
}
