/** What this process uses. */
import { setTimeout as sleep } from "node:timers/promises";

/** Returns the CPU time so far, in microseconds. */
export function cpu() {
  const { user, system } = process.cpuUsage();
  return user + system;
}

/**
 * Returns the bytes in use, after collections. Only a process that measures memory has `gc`: a forced collection drops compiled code,
 * which costs a contender more the more code it has.
 */
export async function memory() {
  // One collection may make garbage that only the next one frees.
  for (let times = 0; times < 3; times++) {
    globalThis.gc();
    await sleep(20);
  }
  const { heapUsed, rss } = process.memoryUsage();
  return { heapUsed, rss };
}

/** Resolves when no TCP connection is open. */
export async function disconnected() {
  while (process.getActiveResourcesInfo().includes("TCPSocketWrap")) await sleep(2);
}
