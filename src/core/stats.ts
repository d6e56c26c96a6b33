/** Counts that are always on: plain numbers, which are increased where things happen. */

/** What happened on one connection since it began. Members of batches count each. */
export interface Counts {
  requestsSent: number;
  notificationsSent: number;
  requestsReceived: number;
  notificationsReceived: number;
  /** Requests and notifications not run, because `maxInFlight` were running. */
  refusedBusy: number;
  /** Requests, notifications and foreign messages not run, because of `maxMessagesPerSecond`. */
  refusedRate: number;
  /** Messages that were malformed. */
  malformed: number;
  /** Answers that no call waited for: late, repeated or never asked for. */
  unmatched: number;
  /** Broadcasts that were not sent, because this peer reads too slowly, has no socket and enough waits for it, or is closing. */
  dropped: number;
}

/** Nothing has happened yet. */
export function newCounts(): Counts {
  return {
    requestsSent: 0,
    notificationsSent: 0,
    requestsReceived: 0,
    notificationsReceived: 0,
    refusedBusy: 0,
    refusedRate: 0,
    malformed: 0,
    unmatched: 0,
    dropped: 0,
  };
}

/** Adds what `counts` holds to `total`. */
export function addCounts(total: Counts, counts: Readonly<Counts>): void {
  for (const name of Object.keys(total) as (keyof Counts)[]) total[name] += counts[name];
}

/** What happened so far, and how full everything is at this moment. */
export interface PeerStats extends Readonly<Counts> {
  /** Calls of this side that wait for their answer. */
  readonly pending: number;
  /** Handlers that run. */
  readonly running: number;
  /** Streams of this side that the other reads. */
  readonly streams: number;
  /** Bytes that wait to be sent. */
  readonly unsentBytes: number;
  /** Bytes that came and went, WebSocket headers included; 0 where the carrier does not count them (in a browser). */
  readonly bytesReceived: number;
  readonly bytesSent: number;
}
