/** Finds the method that a person may have meant. */
import { ErrorCode, RpcError, type Peer } from "../node.js";

/** How long the server may take to list its methods, in milliseconds. */
const TIMEOUT_MS = 2_000;

/**
 * Returns the end of the message about a call that failed: the nearest name, if the method is not found and the server lists its methods by
 * `rpc.discover` (OpenRPC, "Service Discovery Method"); else "".
 */
export async function suggestionFor(error: unknown, peer: Peer, method: string): Promise<string> {
  if (!(error instanceof RpcError) || error.code !== ErrorCode.MethodNotFound) return "";
  let nearest = { name: "", distance: Math.max(1, Math.floor(method.length / 3)) + 1 };
  for (const name of await namesOf(peer)) {
    // The server chooses how many names there are, and how long they are.
    if (name === method || Math.abs(name.length - method.length) >= nearest.distance) continue;
    const between = distance(name.toLowerCase(), method.toLowerCase());
    if (between < nearest.distance) nearest = { name, distance: between };
  }
  return nearest.name === "" ? "" : `; did you mean "${nearest.name}"?`;
}

/** Returns the names in the OpenRPC document of a server; none if it has no such document. */
async function namesOf(peer: Peer): Promise<string[]> {
  try {
    const listed: unknown = await peer.request("rpc.discover", undefined, { timeoutMs: TIMEOUT_MS });
    const { methods } = listed as { methods: { name: unknown }[] };
    return methods.map(({ name }) => name).filter((name) => typeof name === "string");
  } catch {
    // The other side wrote the document, so it may be anything.
    return [];
  }
}

/** Returns how many characters must be added, dropped or replaced. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + Number(a[i - 1] !== b[j - 1]));
    row = next;
  }
  return row[b.length]!;
}
