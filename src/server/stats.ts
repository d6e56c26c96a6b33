/** What a server counts over all its peers, those that are gone included. */
import { addCounts, newCounts, type Counts, type PeerStats } from "../core/stats.js";
import type { CloseInfo } from "../core/transport.js";
import type { AnyPeer } from "../peer/peer.js";
import type { Refusal } from "./upgrade.js";

/** What happened on a server since it began, and how full it is. Names of what happened are those of `PeerStats`, summed over all peers. */
export interface ServerStats extends Omit<PeerStats, keyof Counts>, Readonly<Counts> {
  /** Open peers, suspended ones included. */
  readonly peers: number;
  /** Peers that wait for their client to come back. */
  readonly suspended: number;
  /** What suspended sessions hold, as `limits.maxSuspendedBytes` counts it, and the broadcasts that wait there. */
  readonly suspendedBytes: number;
  /** Topics that have members. */
  readonly topics: number;
  /** Peers that there ever were: connections, and POSTs that ran. */
  readonly opened: number;
  /** How often a session went on over another socket. */
  readonly resumed: number;
  /** How many upgrades and POSTs were refused, by HTTP status. */
  readonly refused: Readonly<Record<number, number>>;
  /** How many peers ended, by the close code that each reported with `close`. That of a POST which was answered is 1000. */
  readonly closed: Readonly<Record<number, number>>;
}

/** What is known of at the moment, beside the counts. */
type Now = Pick<ServerStats, "peers" | "suspended" | "suspendedBytes" | "topics">;

/** Adds it up. */
export class Tally {
  readonly #live = new Set<AnyPeer>();
  readonly #counts = newCounts();
  #bytesReceived = 0;
  #bytesSent = 0;
  #opened = 0;
  #resumed = 0;
  readonly #refused: Record<number, number> = {};
  readonly #closed: Record<number, number> = {};

  opened(peer: AnyPeer): void {
    this.#opened++;
    this.#live.add(peer);
  }

  resumed(): void {
    this.#resumed++;
  }

  refused({ status }: Refusal): void {
    this.#refused[status] = (this.#refused[status] ?? 0) + 1;
  }

  closed(peer: AnyPeer, { code }: CloseInfo): void {
    this.#live.delete(peer);
    this.#closed[code] = (this.#closed[code] ?? 0) + 1;
    const stats = peer.stats();
    addCounts(this.#counts, stats);
    this.#bytesReceived += stats.bytesReceived;
    this.#bytesSent += stats.bytesSent;
  }

  /** The sum of all. */
  sum(now: Now): ServerStats {
    const counts = { ...this.#counts };
    const gauges = { pending: 0, running: 0, streams: 0, unsentBytes: 0 };
    let bytesReceived = this.#bytesReceived;
    let bytesSent = this.#bytesSent;
    for (const peer of this.#live) {
      const stats = peer.stats();
      addCounts(counts, stats);
      for (const name of Object.keys(gauges) as (keyof typeof gauges)[]) gauges[name] += stats[name];
      bytesReceived += stats.bytesReceived;
      bytesSent += stats.bytesSent;
    }
    const refused = { ...this.#refused };
    const closed = { ...this.#closed };
    const happened = { opened: this.#opened, resumed: this.#resumed, refused, closed };
    return { ...now, ...counts, ...gauges, bytesReceived, bytesSent, ...happened };
  }
}
