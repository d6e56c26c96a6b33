/** Imports `base/deadlines`, `session/session`: no interface shows which timeouts and sessions were kept. What a process holds: memory, resources, and these. */
import { setTimeout as sleep } from "node:timers/promises";
import { queryObjects } from "node:v8";
import { countDeadlines } from "../../src/base/deadlines.js";
import { Session } from "../../src/session/session.js";
import { Peer } from "../../src/index.js";

// The subclasses of a peer must exist before they are counted.
await import("../../src/node.js");

/** The class of Node's timers, which it does not name. */
const timer = setTimeout(() => {}, 0);
clearTimeout(timer);
const Timeout = timer.constructor;

/** Returns how many objects of a class are on the heap, after a collection. */
function count(constructor: Function): number {
  return queryObjects(constructor, { format: "count" });
}

/** How many prototypes of subclasses are on the heap: each counts as an object of the class. There is no peer yet. */
const subclasses = { peers: count(Peer), sessions: count(Session) };

export const measurements = {
  /** Returns the memory in bytes. `buffers` is outside the heap, such as the contents of Buffers. Requires `--expose-gc`. */
  async memory() {
    // A collection can make further objects collectable, and closing needs ticks in between.
    for (let times = 0; times < 4; times++) {
      await sleep(20);
      globalThis.gc!();
    }
    const { heapUsed: heap, external: buffers, rss } = process.memoryUsage();
    return { heap, buffers, rss };
  },

  /**
   * Returns the memory, the resources that keep the process alive by kind, and the numbers of objects. `timers` are those of the
   * whole process, also of Node, and `deadlines` the pending timeouts, heartbeats included.
   */
  async held() {
    const inMemory = await measurements.memory();
    const resources: Record<string, number> = {};
    for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1;
    const peers = count(Peer) - subclasses.peers;
    const sessions = count(Session) - subclasses.sessions;
    return { ...inMemory, timers: count(Timeout), resources, deadlines: countDeadlines().waiting, peers, sessions };
  },

  /** Returns the CPU time of this process so far, in milliseconds. */
  cpuMs() {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
};

export type Memory = Awaited<ReturnType<typeof measurements.memory>>;
export type Held = Awaited<ReturnType<typeof measurements.held>>;
