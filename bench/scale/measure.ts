/**
 * Measures connections of one kind: opens them, makes one call on each, leaves them idle, measures, and closes them.
 * Then it does the same again.
 */
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startChild } from "./channel.js";
import type { ClientCommands } from "./clients.js";
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

/**
 * Runs the measurement. `build` is the directory of the compiled processes. Rejects if one of them fails, or does not
 * end by itself.
 */
export async function measure(kind: Kind, count: number, idleMs: number, build: string) {
  using server = startChild<ServerCommands>(join(build, "server.js"), kind);
  using clients = startChild<ClientCommands>(join(build, "clients.js"), kind, await server.ask("url"));
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

  const first = await clients.ask("open", count);
  const opened = await server.ask("stats");
  const before = await spent();
  await sleep(idleMs);
  const after = await spent();
  const fullStats = await server.ask("stats");
  const full = await look();
  const alive = await clients.ask("alive");
  const connections = await server.ask("connections");
  await close();
  const once = await weigh();

  const second = await clients.ask("open", count);
  await close();
  const leftStats = await server.ask("stats");
  await server.ask("close");
  const left = await look();
  await Promise.all([server.end(), clients.end()]);

  const side = (i: 0 | 1) => ({
    /** Before, when a few connections have opened and closed. */
    empty: empty[i],
    /** When all were open and had been idle. */
    full: full[i],
    /** When all were closed. The remainder is Node's: compiled code, tables that have grown. */
    once: once[i],
    /** When as many others had opened and closed, and the server was closed. They left any growth since `once`. */
    left: left[i],
    /** Milliseconds of CPU time while all were idle. */
    idleCpuMs: after[i] - before[i],
  });
  return {
    kind,
    /** Milliseconds until all were open and answered. */
    openMs: first.tookMs,
    /** How many results were correct, both times together. */
    right: first.right + second.right,
    /** How many clients were open after the time of idleness, and how many connections the server had then. */
    alive,
    connections,
    /** The server's counts when all were open, after the idle time, and when all had closed. Undefined for bare `ws`. */
    stats: opened && fullStats && leftStats && { opened, full: fullStats, left: leftStats },
    server: side(0),
    clients: side(1),
  };
}

export type Measured = Awaited<ReturnType<typeof measure>>;
