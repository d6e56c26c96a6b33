/**
 * Which nodes live: a state machine without I/O. Each node sends beats to all nodes, and judges the others by its own clock. Its own beats
 * come back to it, so it knows whether it hears what is sent.
 */
import type { Channel, NodeName } from "../topics/engine.js";
import { frameOf, isNodeName, Kind } from "./frames.js";

/** How long a node is believed to live without a beat, unless the engine says otherwise. */
export const LEASE_MS = 10_000;
/** How many beats a node sends in its lease. */
export const BEATS = 3;
/** After so many own beats that did not come back, the connection is opened anew. */
const MOST_LOST_BEATS = 2;
/** No engine waits longer before it tries to connect again. */
export const LONGEST_RECONNECT_DELAY_MS = 5_000;
/** How many nodes that have ended are remembered. */
const MAX_ENDED = 10_000;

/** What a beat says besides. `"new"`: the receiver was not known. `"again"`: it had been given up. `"bye"`: the sender ends. */
type Note = "" | "new" | "again" | "bye";

/** Takes what the state machine decides. */
export interface NodesOutput {
  /** Sends a frame, beyond every bound. */
  send(channel: Channel, frame: string): void;
  /** A node has ended, or was silent for its lease. `wasLive`: false if it has never given a sign, and was only called. */
  lost(node: NodeName, wasLive: boolean): void;
  /** Another node had given this one up, and has forgotten its members. */
  forgotten(): void;
}

interface Sign {
  at: number;
  leaseMs: number;
}

/** The nodes of a fleet, as one of them hears them. Times are in milliseconds of its own clock. */
export class LiveNodes {
  readonly #node: NodeName;
  readonly #leaseMs: number;
  readonly #output: NodesOutput;
  /** The last sign of each node that lives, and when others were called first. */
  readonly #signs = new Map<NodeName, Sign>();
  readonly #live: Set<NodeName>;
  /** Nodes that were given up, and whether they have closed. Their names are not used again. */
  readonly #ended = new Map<NodeName, "silent" | "closed">();
  #number = 0;
  /** The beats that have not come back, the oldest first, and when they were sent. */
  #away: { readonly number: number; readonly at: number }[] = [];
  #lagMs: number | undefined;
  /** When a beat of this node came back last, and since when it judges the others. */
  #echoedAt: number;
  #judgesFrom: number;

  constructor(node: NodeName, leaseMs: number, output: NodesOutput, now: number) {
    this.#node = node;
    this.#leaseMs = leaseMs;
    this.#output = output;
    this.#live = new Set([node]);
    this.#echoedAt = this.#judgesFrom = now;
  }

  /** The nodes that live, with this one. */
  get live(): ReadonlySet<NodeName> {
    return this.#live;
  }

  /** Returns when a node gave its last sign; `-Infinity` for one that does not live. */
  heardAt(node: NodeName): number {
    return this.#signs.get(node)?.at ?? -Infinity;
  }

  /** Returns true if a node that lives, or this one, has missed a beat: it may be cut off. */
  isBeatMissing(now: number): boolean {
    const own = { at: this.#echoedAt, leaseMs: this.#leaseMs };
    const signs = Array.from(this.#live, (node) => this.#signs.get(node) ?? own);
    return signs.some(({ at, leaseMs }) => now - at > (1.5 * leaseMs) / BEATS);
  }

  /** Returns how long the last beat took to come back, or how long it has been away if that is longer. */
  lagMs(now: number): number | undefined {
    const awayMs = now - (this.#away[0]?.at ?? now);
    return this.#lagMs === undefined ? undefined : Math.max(this.#lagMs, awayMs);
  }

  /** The connection is up. What was sent before does not come back, and no node is given up until a beat does. */
  connected(): void {
    this.#away = [];
    this.#judgesFrom = Infinity;
  }

  /** Sends a beat. Returns false if the earlier ones did not come back: then nothing is sent, and the connection must be opened anew. */
  beat(now: number): boolean {
    if (this.#away.length >= MOST_LOST_BEATS) {
      this.connected();
      return false;
    }
    this.#away.push({ number: ++this.#number, at: now });
    this.#output.send("a:all", this.#frame(""));
    return true;
  }

  /** Returns the last beat: the others forget this node at once. */
  bye(): string {
    return this.#frame("bye");
  }

  #frame(note: Note): string {
    return frameOf(Kind.Beat, [this.#node, this.#number, this.#leaseMs, note]);
  }

  /** Takes the fields of a beat. Returns false if they are none. */
  received([from = "", number, lease, note]: readonly string[], now: number): boolean {
    const leaseMs = Number(lease);
    if (!isNodeName(from) || !(leaseMs > 0 && leaseMs < Infinity)) return false;
    if (from === this.#node) this.#cameBack(Number(number), now);
    else if (note === "bye") this.#end(from, "closed");
    else if (this.noteSign(from, now, leaseMs) && note === "again") this.#output.forgotten();
    return true;
  }

  #cameBack(number: number, now: number): void {
    const index = this.#away.findIndex((beat) => beat.number === number);
    if (index === -1) return;
    this.#lagMs = now - this.#away[index]!.at;
    // A late one shows too that this node hears what is sent.
    this.#away = this.#away.slice(index + 1);
    const awayMs = now - this.#echoedAt;
    this.#echoedAt = now;
    // This node was paused or without the broker. Perhaps the others were too, and connect later. After a pause of two beats, the last sign of
    // another node may be older than its lease, because it is up to a beat older than the pause.
    if (this.#judgesFrom === Infinity || awayMs > (1.5 * this.#leaseMs) / BEATS)
      this.#judgesFrom = now + Math.min(awayMs, LONGEST_RECONNECT_DELAY_MS);
    for (const [node, { at, leaseMs }] of this.#signs)
      if (now - Math.max(at, this.#judgesFrom) > leaseMs) this.#end(node, "silent");
  }

  /** Takes a sign of another node. Returns false if the node has closed, so that the sign is an old one. */
  noteSign(node: NodeName, now: number, leaseMs?: number): boolean {
    const ended = this.#ended.get(node);
    if (ended === "closed") return false;
    const sign = this.#signs.get(node);
    if (sign !== undefined && this.#live.has(node)) {
      sign.at = now;
      sign.leaseMs = leaseMs ?? sign.leaseMs;
      return true;
    }
    this.#ended.delete(node);
    this.#signs.set(node, { at: now, leaseMs: leaseMs ?? this.#leaseMs });
    this.#live.add(node);
    this.#output.send(`n:${node}`, this.#frame(ended === undefined ? "new" : "again"));
    return true;
  }

  /** A call is sent to a node. If it gives no sign, it is lost. Returns false if the node has closed. */
  expects(node: NodeName, now: number): boolean {
    if (this.#ended.get(node) === "closed") return false;
    if (!this.#signs.has(node)) this.#signs.set(node, { at: now, leaseMs: this.#leaseMs });
    return true;
  }

  #end(node: NodeName, how: "silent" | "closed"): void {
    this.#signs.delete(node);
    const wasLive = this.#live.delete(node);
    // Others chose the name of a node that gave no sign.
    if (wasLive || how === "closed") {
      if (this.#ended.size >= MAX_ENDED) this.#ended.delete(this.#ended.keys().next().value!);
      this.#ended.set(node, how);
    }
    this.#output.lost(node, wasLive);
  }
}
