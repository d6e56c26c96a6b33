/** Returns the values that an object holds. The debugger also sees private fields. */
import { Session } from "node:inspector";

interface Remote {
  readonly type: string;
  readonly subtype?: string;
  readonly value?: unknown;
  readonly objectId?: string;
}

interface Member {
  readonly name: string;
  readonly value?: Remote;
}

/** Returns every string that can be reached from `root` by members, private ones too, and by entries of maps and sets. */
export function stringsIn(root: object): string[] {
  const session = new Session();
  session.connect();
  const call = (method: string, params: object): any => {
    let answer: unknown;
    session.post(method, params, (error, result) => {
      if (error) throw new Error(error.message);
      answer = result;
    });
    return answer;
  };
  const place = globalThis as { walkedRoot?: object };
  place.walkedRoot = root;
  const due: Remote[] = [call("Runtime.evaluate", { expression: "walkedRoot" }).result];
  delete place.walkedRoot;
  const seen: Remote = call("Runtime.evaluate", { expression: "new WeakSet()" }).result;
  const strings: string[] = [];
  for (let next = due.pop(); next !== undefined; next = due.pop()) {
    const { objectId } = next;
    const functionDeclaration = "function (seen) { return !seen.has(this) && !!seen.add(this) }";
    const isNew = { functionDeclaration, objectId, arguments: [{ objectId: seen.objectId }], returnByValue: true };
    if (call("Runtime.callFunctionOn", isNew).result.value !== true) continue;
    const found = call("Runtime.getProperties", { objectId, ownProperties: true }) as Record<string, Member[]>;
    const { result, privateProperties = [], internalProperties = [] } = found;
    const entries = internalProperties.filter(({ name }) => name === "[[Entries]]");
    // These two lead out of an object and into the whole process.
    const members = result!.filter(({ name }) => name !== "__proto__" && name !== "constructor");
    for (const { value } of [...members, ...privateProperties, ...entries]) {
      if (value?.type === "string") strings.push(String(value.value));
      // Weak collections keep none of their entries in memory.
      else if (value?.type === "object" && value.objectId !== undefined && !value.subtype?.startsWith("weak"))
        due.push(value);
    }
  }
  session.post("Runtime.disable");
  session.disconnect();
  return strings;
}
