/** What a process holds when everything that can go is gone. */
import { setTimeout as sleep } from "node:timers/promises";
import { queryObjects } from "node:v8";
import { countDeadlines } from "../../src/core/deadlines.js";
import { Session } from "../../src/session/session.js";
import { Peer } from "../../src/peer/peer.js";

/** In bytes. */
export interface Memory {
  readonly heap: number;
  /** Outside the heap, but of its objects: what a Buffer holds. */
  readonly buffers: number;
  /** Resident. */
  readonly rss: number;
}

export interface Held extends Memory {
  /** Timers of the whole process, those of Node and those that do not keep it alive included. */
  readonly timers: number;
  /** What keeps the process alive, by kind. */
  readonly resources: Readonly<Record<string, number>>;
  /** Timeouts that wait, heartbeats included. */
  readonly deadlines: number;
  readonly peers: number;
  readonly sessions: number;
}

/** The class of Node's timers, which it does not name. */
const Timeout = ((): Function => {
  const timer = setTimeout(() => {}, 0);
  clearTimeout(timer);
  return timer.constructor;
})();

/** Looks how much. Runs with `--expose-gc`. */
export async function memory(): Promise<Memory> {
  // A collection may free what only the next one finds, and what closes needs turns in between.
  for (let times = 0; times < 4; times++) {
    await sleep(20);
    globalThis.gc!();
  }
  const { heapUsed: heap, external: buffers, rss } = process.memoryUsage();
  return { heap, buffers, rss };
}

/** Looks at everything. */
export async function held(): Promise<Held> {
  const inMemory = await memory();
  const resources: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  const deadlines = countDeadlines().waiting;
  return { ...inMemory, timers: count(Timeout), resources, deadlines, peers: count(Peer), sessions: count(Session) };
}

/** How many there are on the heap; a collection goes before. */
function count(constructor: Function): number {
  return queryObjects(constructor, { format: "count" });
}

/** What this process has cost so far, in milliseconds of one core. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
