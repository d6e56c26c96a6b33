/** The conditions that measured connections must meet, at any number. */
import assert from "node:assert/strict";
import type { Held } from "./held.js";
import { WARM_UP, type Measured } from "./measure.js";

/** Most timers of a process: Node's own for its HTTP server, one for all deadlines, and some to spare. */
const MOST_TIMERS = 4;
/** Most resources that keep a process alive besides its connections: the channel, a listening server, timers. */
const MOST_OTHER_RESOURCES = 2 + MOST_TIMERS;

/** Throws an error that names the first violated condition. */
export function check({ kind, right, alive, connections, stats, server, clients }: Measured, count: number): void {
  const isReciproc = kind !== "ws";
  assert.deepEqual({ right, alive, connections }, { right: 2 * count, alive: count, connections: count });
  if (isReciproc) {
    checkStats(stats?.full, WARM_UP + count, { peers: count, closed: { 1000: WARM_UP } });
    checkStats(stats?.left, WARM_UP + 2 * count, { peers: 0, closed: { 1000: WARM_UP + 2 * count } });
  }
  const peers = isReciproc ? count : 0;
  for (const [side, { full, left }] of Object.entries({ server, clients })) {
    // Each connection has its heartbeat.
    const held = { peers, sessions: kind === "packed" ? count : 0, deadlines: peers };
    checkHeld(`${side}, open`, full, count, held);
    checkHeld(`${side}, closed`, left, 0, { peers: 0, sessions: 0, deadlines: 0 });
  }
}

function checkStats(stats: object | undefined, opened: number, more: object): void {
  const nothing = { requestsSent: 0, notificationsSent: 0, notificationsReceived: 0, refusedBusy: 0, refusedRate: 0 };
  const unhurt = { malformed: 0, unmatched: 0, dropped: 0, suspended: 0, suspendedBytes: 0, resumed: 0, refused: {} };
  const idle = { topics: 0, pending: 0, running: 0, streams: 0, unsentBytes: 0 };
  const wanted = { opened, requestsReceived: opened, ...nothing, ...unhurt, ...idle, ...more };
  assert.deepEqual(stats, { ...stats, ...wanted });
}

function checkHeld(when: string, held: Held, connections: number, wanted: Partial<Held>): void {
  const { TCPSocketWrap: sockets = 0, ...others } = held.resources;
  assert.deepEqual({ when, sockets, ...held }, { when, sockets: connections, ...held, ...wanted });
  const other = Object.values(others).reduce((sum, each) => sum + each, 0);
  assert.ok(held.timers <= MOST_TIMERS, `${when}: ${held.timers} timers`);
  assert.ok(other <= MOST_OTHER_RESOURCES, `${when}: too many active resources, ${JSON.stringify(others)}`);
}
