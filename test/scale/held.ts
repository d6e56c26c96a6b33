/** Imports `core/deadlines` and `session/session`: it counts on the heap what no interface shows, timeouts and sessions that were kept. */
import { setTimeout as sleep } from "node:timers/promises";
import { queryObjects } from "node:v8";
import { countDeadlines } from "../../src/core/deadlines.js";
import { Session } from "../../src/session/session.js";
import { Peer } from "../../src/index.js";

// The subclasses of a peer must exist before they are counted.
await import("../../src/node.js");

/** In bytes. */
export interface Memory {
  readonly heap: number;
  /** Memory outside the heap that heap objects own, such as the contents of Buffers. */
  readonly buffers: number;
  /** Resident. */
  readonly rss: number;
}

export interface Held extends Memory {
  /** Timers of the whole process, including those of Node and those that do not keep it alive. */
  readonly timers: number;
  /** Resources that keep the process alive, by kind. */
  readonly resources: Readonly<Record<string, number>>;
  /** Pending timeouts, heartbeats included. */
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

/** How many prototypes of subclasses are on the heap: each counts as an object of the class. There is no peer yet. */
const subclasses = { peers: count(Peer), sessions: count(Session) };

/** Measures the memory. Requires `--expose-gc`. */
export async function memory(): Promise<Memory> {
  // A collection can make further objects collectable, and closing needs ticks in between.
  for (let times = 0; times < 4; times++) {
    await sleep(20);
    globalThis.gc!();
  }
  const { heapUsed: heap, external: buffers, rss } = process.memoryUsage();
  return { heap, buffers, rss };
}

/** Measures memory and resources. */
export async function held(): Promise<Held> {
  const inMemory = await memory();
  const resources: Record<string, number> = {};
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
  const deadlines = countDeadlines().waiting;
  const peers = count(Peer) - subclasses.peers;
  const sessions = count(Session) - subclasses.sessions;
  return { ...inMemory, timers: count(Timeout), resources, deadlines, peers, sessions };
}

/** Returns how many objects of a class are on the heap, after a collection. */
function count(constructor: Function): number {
  return queryObjects(constructor, { format: "count" });
}

/** Returns the CPU time of this process so far, in milliseconds. */
export function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}
