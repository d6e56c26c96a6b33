/**
 * Measures connections of one kind: opens them, makes one call on each, leaves them idle, measures, and closes them.
 * Then it does the same again.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { ServerStats } from "../../src/node.js";
import { Child } from "./channel.js";
import type { ClientCommands } from "./clients.js";
import type { Held, Memory } from "./held.js";
import type { ServerCommands } from "./server.js";

/** The compared kinds: the same connections alone, with a peer, and with a session. */
export const KINDS = {
  ws: "bare ws",
  plain: "reciproc (plain)",
  packed: "reciproc (packed, a session each)",
} as const;

export type Kind = keyof typeof KINDS;

/** Connections that are opened and closed first: the code that is compiled for them must not count for the measured ones. */
export const WARM_UP = 100;

/** What one side held at each time. */
export interface Side {
  /** Before, when a few connections have opened and closed. */
  readonly empty: Memory;
  /** When all were open and had been idle. */
  readonly full: Held;
  /** When all were closed. The remainder is Node's: compiled code, tables that have grown. */
  readonly once: Memory;
  /** When as many others had opened and closed, and the server was closed. They left any growth since `once`. */
  readonly left: Held;
  /** Milliseconds of CPU time while all were idle. */
  readonly idleCpuMs: number;
}

export interface Measured {
  readonly kind: Kind;
  /** Milliseconds until all were open and answered. */
  readonly openMs: number;
  /** How many results were correct, both times together. */
  readonly right: number;
  /** How many clients were open after the time of idleness. */
  readonly alive: number;
  /** How many connections the server had then. */
  readonly connections: number;
  /** The server's counts when all were open, after the idle time, and when all had closed. Undefined for bare `ws`. */
  readonly stats: { readonly opened: ServerStats; readonly full: ServerStats; readonly left: ServerStats } | undefined;
  readonly server: Side;
  readonly clients: Side;
}

/**
 * Runs the measurement. `build` is the directory of the compiled processes. Rejects if one of them fails, or does not
 * end by itself.
 */
export async function measure(kind: Kind, count: number, idleMs: number, build: string): Promise<Measured> {
  using server = new Child<ServerCommands>(join(build, "server.js"), `the ${kind} server`, [kind]);
  const url = await server.ask("url");
  using clients = new Child<ClientCommands>(join(build, "clients.js"), `the ${kind} clients`, [kind, url]);
  const look = () => Promise.all([server.ask("held"), clients.ask("held")]);
  const weigh = () => Promise.all([server.ask("memory"), clients.ask("memory")]);
  const spent = () => Promise.all([server.ask("cpuMs"), clients.ask("cpuMs")]);

  const close = async (): Promise<void> => {
    await clients.ask("close");
    await server.ask("left");
  };

  await clients.ask("open", WARM_UP);
  await close();
  const empty = await weigh();

  const opened = await clients.ask("open", count);
  const openedStats = await server.ask("stats");
  const before = await spent();
  await sleep(idleMs);
  const after = await spent();
  const fullStats = await server.ask("stats");
  const full = await look();
  const alive = await clients.ask("alive");
  const connections = await server.ask("connections");

  await close();
  const once = await weigh();

  const others = await clients.ask("open", count);
  await close();
  const leftStats = await server.ask("stats");
  await server.ask("close");
  const left = await look();
  await Promise.all([server.end(), clients.end()]);

  const side = (i: 0 | 1): Side => {
    const idleCpuMs = after[i] - before[i];
    return { empty: empty[i], full: full[i], once: once[i], left: left[i], idleCpuMs };
  };
  const stats = openedStats && fullStats && leftStats && { opened: openedStats, full: fullStats, left: leftStats };
  const answers = { openMs: opened.tookMs, right: opened.right + others.right };
  return { kind, ...answers, alive, connections, stats, server: side(0), clients: side(1) };
}
