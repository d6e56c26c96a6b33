import { queryObjects } from "node:v8";
import { turn } from "./turns.js";

/** Returns how many objects are on the heap, without garbage. Closing sockets needs ticks between several collections. */
export async function objectsKept(collections = 2): Promise<number> {
  let count = 0;
  for (let i = 0; i < collections; i++) {
    count = queryObjects(Object, { format: "count" });
    await turn();
  }
  return count;
}
