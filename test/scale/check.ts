/** The conditions that measured connections must meet, at any number. */
import type { ServerStats } from "../../src/node.js";
import type { Held } from "./held.js";
import { WARM_UP } from "./kinds.js";
import type { Measured } from "./measure.js";

/**
 * Limit of timers of a process with any number of connections: Node's own for its HTTP server, one for all deadlines,
 * and some to spare.
 */
const MOST_TIMERS = 4;
/**
 * Resources that keep a process alive besides its connections: the channel to its parent, a listening server, timers.
 */
const MOST_OTHER_RESOURCES = 2 + MOST_TIMERS;

/** Returns the violated conditions. */
export function broken(measured: Measured, count: number): string[] {
  const { kind, right, alive, connections, stats, server, clients } = measured;
  const isReciproc = kind !== "ws";
  return [
    ...differences("all", { right, alive, connections }, { right: 2 * count, alive: count, connections: count }),
    ...(isReciproc ? wrongStats(stats, count) : []),
    ...Object.entries({ server, clients }).flatMap(([side, { full, left }]) => [
      ...differences(`${side}, open`, full, {
        peers: isReciproc ? count : 0,
        sessions: kind === "packed" ? count : 0,
        // Each connection has its heartbeat.
        deadlines: isReciproc ? count : 0,
      }),
      ...beyond(`${side}, open`, full, count),
      ...differences(`${side}, closed`, left, { peers: 0, sessions: 0, deadlines: 0 }),
      ...beyond(`${side}, closed`, left, 0),
    ]),
  ];
}

function wrongStats(stats: Measured["stats"], count: number): string[] {
  if (stats === undefined) return ["the server has no stats"];
  // All had opened at that time, and all had closed at the end.
  const [some, all] = [WARM_UP + count, WARM_UP + 2 * count];
  const nothing = { requestsSent: 0, notificationsSent: 0, notificationsReceived: 0, refusedBusy: 0, refusedRate: 0 };
  const unhurt = { malformed: 0, unmatched: 0, dropped: 0, suspended: 0, suspendedBytes: 0, resumed: 0, refused: {} };
  const idle = { topics: 0, pending: 0, running: 0, streams: 0, unsentBytes: 0 };
  const common = { ...nothing, ...unhurt, ...idle };
  const full: Partial<ServerStats> = {
    ...common,
    opened: some,
    requestsReceived: some,
    peers: count,
    closed: { 1000: WARM_UP },
  };
  const left: Partial<ServerStats> = { ...common, opened: all, requestsReceived: all, peers: 0, closed: { 1000: all } };
  return [...differences("stats, open", stats.full, full), ...differences("stats, closed", stats.left, left)];
}

function beyond(when: string, { timers, resources }: Held, connections: number): string[] {
  const { TCPSocketWrap: sockets = 0, ...others } = resources;
  const other = Object.values(others).reduce((sum, each) => sum + each, 0);
  const wrong = differences(when, { sockets }, { sockets: connections });
  if (timers > MOST_TIMERS) wrong.push(`${when}: ${timers} timers, at most ${MOST_TIMERS} wanted`);
  if (other > MOST_OTHER_RESOURCES) wrong.push(`${when}: too many active resources, ${JSON.stringify(others)}`);
  return wrong;
}

function differences<T extends object>(when: string, found: T, wanted: Partial<T>): string[] {
  return (Object.keys(wanted) as (string & keyof T)[]).flatMap((name) => {
    const [is, should] = [found[name], wanted[name]].map((value) => JSON.stringify(value));
    return is === should ? [] : [`${when}: ${name} is ${is}, ${should} wanted`];
  });
}
