import { setImmediate as turn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

export const MIB = 2 ** 20;

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Returns the memory in use after full collections. Closing sockets needs ticks between the collections. */
export async function memoryInUse(): Promise<NodeJS.MemoryUsage> {
  for (let i = 0; i < 6; i++) {
    collectGarbage();
    await turn();
  }
  return process.memoryUsage();
}
