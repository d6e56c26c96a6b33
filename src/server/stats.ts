/** The counts of a server over all its peers, closed ones included. */
import { addCounts, newCounts, type Counts, type PeerStats } from "../peer/stats.js";
import type { CloseInfo } from "../message/transport.js";
import type { EngineStats } from "../topics/host.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import type { Refusal } from "./upgrade.js";

/** The counts of a server since it was made, and its present load. Counts that `PeerStats` also has are sums over all peers. */
export interface ServerStats extends Omit<PeerStats, keyof Counts>, Readonly<Counts> {
  /** Open peers, suspended ones included. */
  readonly peers: number;
  /** Suspended peers. */
  readonly suspended: number;
  /** What suspended sessions hold, as `limits.maxSuspendedBytes` counts it, and their queued broadcasts. */
  readonly suspendedBytes: number;
  /** Topics that have members. */
  readonly topics: number;
  /** Number of peers that were made, one for each connection and for each POST that ran. */
  readonly opened: number;
  /** Number of times that a session was resumed. */
  readonly resumed: number;
  /** Number of refused upgrades and POSTs, by HTTP status. */
  readonly refused: Readonly<Record<number, number>>;
  /** Number of closed peers, by the close code of their `close` event. An answered POST counts as 1000. */
  readonly closed: Readonly<Record<number, number>>;
  /** The counts of the engine; `undefined` without one. */
  readonly engine?: EngineStats | undefined;
}

/** What the server knows besides the counts of its peers: the present load, and how often sessions were resumed. */
type Load = Pick<ServerStats, "peers" | "suspended" | "suspendedBytes" | "topics" | "resumed" | "engine">;

/** Adds up the counts of the peers of one server. */
export class Tally {
  readonly #live = new Set<AnyPeer>();
  readonly #counts = newCounts();
  #bytesReceived = 0;
  #bytesSent = 0;
  #opened = 0;
  readonly #refused: Record<number, number> = {};
  readonly #closed: Record<number, number> = {};

  opened(peer: AnyPeer): void {
    this.#opened++;
    this.#live.add(peer);
  }

  refused({ status }: Refusal): void {
    this.#refused[status] = (this.#refused[status] ?? 0) + 1;
  }

  closed(peer: AnyPeer, { code }: CloseInfo): void {
    this.#live.delete(peer);
    this.#closed[code] = (this.#closed[code] ?? 0) + 1;
    const { counts, transport } = connectionOf(peer);
    addCounts(this.#counts, counts);
    const { received = 0, sent = 0 } = transport.traffic ?? {};
    this.#bytesReceived += received;
    this.#bytesSent += sent;
  }

  /** Returns the sums over all peers, open and closed. */
  sum(load: Load): ServerStats {
    const counts = { ...this.#counts };
    const gauges = { pending: 0, running: 0, streams: 0 };
    let unsentBytes = 0;
    let bytesReceived = this.#bytesReceived;
    let bytesSent = this.#bytesSent;
    for (const peer of this.#live) {
      const stats = peer.stats();
      addCounts(counts, stats);
      for (const name of Object.keys(gauges) as (keyof typeof gauges)[]) gauges[name] += stats[name];
      const { incoming } = connectionOf(peer);
      // A peer that is a part of a connection has the unsent bytes of that.
      if (incoming.counter === incoming) unsentBytes += stats.unsentBytes;
      bytesReceived += stats.bytesReceived;
      bytesSent += stats.bytesSent;
    }
    const refused = { ...this.#refused };
    const closed = { ...this.#closed };
    const happened = { opened: this.#opened, refused, closed };
    return { ...load, ...counts, ...gauges, unsentBytes, bytesReceived, bytesSent, ...happened };
  }
}
