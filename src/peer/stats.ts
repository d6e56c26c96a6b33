/** Counters. They are plain numbers, and always on. */

/** The events of one connection since it began. Each member of a batch counts. */
export interface Counts {
  requestsSent: number;
  notificationsSent: number;
  requestsReceived: number;
  notificationsReceived: number;
  /** Requests and notifications that were refused, because `maxInFlight`, or `maxRunning` of their method, were running. */
  refusedBusy: number;
  /** Requests, notifications and foreign messages that were refused because of `maxMessagesPerSecond`, or of a rate of their method. */
  refusedRate: number;
  /** Malformed messages. */
  malformed: number;
  /** Responses without a pending call, which are late, repeated or unsolicited, and late progress reports. */
  unmatched: number;
  /**
   * Messages that were dropped: broadcasts if the peer reads too slowly, has no socket and too much queued, or is closing, and
   * messages with `latest` beyond 1,024 keys. Neither volatile messages nor those that a newer one has replaced.
   */
  dropped: number;
}

/** Returns counters that are all 0. */
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

/** Adds `counts` to `total`. */
export function addCounts(total: Counts, counts: Readonly<Counts>): void {
  for (const name of Object.keys(total) as (keyof Counts)[]) total[name] += counts[name];
}

/** The counters of a peer so far, and the current sizes of its tables and queues. */
export interface PeerStats extends Readonly<Counts> {
  /** Pending calls of this side. */
  readonly pending: number;
  /** Running handlers. */
  readonly running: number;
  /** Streams of this side that the other side reads. */
  readonly streams: number;
  /** Unsent bytes. */
  readonly unsentBytes: number;
  /** Bytes received and sent, WebSocket headers included; 0 if the carrier does not count them (in a browser). */
  readonly bytesReceived: number;
  readonly bytesSent: number;
}
