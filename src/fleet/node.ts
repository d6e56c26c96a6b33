/** What the modules of one node share: its name, its broker, the nodes that live, its peers, its counts and its server. */
import type { MessageText } from "../core/codec.js";
import type { Wait } from "../core/config.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { nanoid } from "../core/packages.js";
import type { AnyPeer } from "../peer/peer.js";
import { Broker, type BrokerEvents } from "./broker.js";
import { EngineError, type Engine, type LogPage, type LogPart, type LogRule, type NodeName } from "./engine.js";
import { isNodeName, nodeName } from "./frames.js";
import { BEATS, LEASE_MS, LiveNodes } from "./nodes.js";
import type { SendOptions } from "./topic-options.js";

/** The state of the engine, as the event `engine` reports it. */
export interface EngineState {
  /** `"down"`: this node has no connection to the broker. */
  readonly state: "up" | "down";
  /** How long the engine was down, in milliseconds. 0 while it is down. Plain notifications of that time are lost to this node. */
  readonly downMs: number;
  /** Why it is down. */
  readonly error?: Error | undefined;
}

/** What a handler of a notification between nodes gets. */
export interface NodeContext {
  /** The id of the node that has notified. */
  readonly from: string;
}

/** Handlers of the notifications between nodes. What they throw or reject with is emitted as `error`. */
export type NodeMethods = Readonly<Record<string, (params: any, context: NodeContext) => unknown>>;

/** The server of a node, as its fleet sees it. None of its functions throws, except `rulesOf`. */
export interface FleetHost {
  /** How long calls wait by default. */
  readonly wait: Pick<Wait, "timeoutMs" | "retry">;
  /** At most so much is sent to a client that comes back, in UTF-16 code units. */
  readonly maxReplayLength: number;
  /** All peers of this node. */
  readonly peers: Iterable<AnyPeer>;
  /** Returns the rules of a topic, as the application gives them. May throw. */
  rulesOf(topic: string): unknown;
  /** Returns the members of a topic on this node. */
  membersOf(topic: string): ReadonlySet<AnyPeer>;
  /** Makes a peer a member, unless it is one or is closed. */
  add(topic: string, peer: AnyPeer): void;
  /** Sends an encoded notification to peers, as `notify` of a group does. */
  send(peers: Iterable<AnyPeer>, method: string, text: MessageText, options: SendOptions): void;
  /** Returns false if a peer has said that it does not accept a text of that length. */
  accepts(peer: AnyPeer, text: MessageText): boolean;
  /** The handlers of notifications between nodes. */
  readonly nodeMethods: ReadonlyMap<string, NodeMethods[string]>;
  /** The peers of a principal are closed. Clients of it may still be on their way to become peers. */
  disconnected(principal: string): void;
  /** Ends a session that its client has discarded, if it is here. */
  endSession(hash: string, principal: string | undefined): void;
  changed(state: EngineState): void;
  gap(topic: string, reason: string): void;
  /** Takes an error that has no caller. */
  report(error: unknown): void;
}

/** A peer on any node. */
export interface Address {
  readonly node: NodeName;
  readonly localId: string;
}

/** What a node finds out about the others, besides what its broker reports. */
export interface NodeEvents extends BrokerEvents {
  /** Another node has ended, or was silent for its lease. */
  lost(node: NodeName): void;
  /** Another node had given this one up, and has forgotten its members. */
  forgotten(): void;
}

/** 72 random bits. */
const NODE_LENGTH = 12;
/** Reads of logs and first questions that run at once: more wait. */
const MOST_READS = 32;
/** How much of a log is read at once. So what is read at once is bounded too. */
export const PAGE: LogPage = { length: 500, bytes: 256 * 1024 };

/** One node. */
export class FleetNode {
  readonly id: NodeName = nodeName(nanoid(NODE_LENGTH));
  /** True for the private fleet of a server without an engine: the ids of its peers have no name of a node. */
  readonly isLocal: boolean;
  readonly host: FleetHost;
  readonly broker: Broker;
  readonly nodes: LiveNodes;
  readonly leaseMs: number;
  readonly counts = { sent: 0, received: 0, dropped: 0, foreign: 0, healed: 0, gaps: 0, reconnects: 0 };
  readonly #beat: Expiring = { deadline: 0, expire: () => this.beat() };
  #isClosed = false;
  readonly #byId = new Map<string, AnyPeer>();
  readonly #byPrincipal = new Map<string, Set<AnyPeer>>();
  readonly #principals = new Map<AnyPeer, string>();
  #reads = 0;
  readonly #readers: (() => void)[] = [];

  constructor(engine: Engine, host: FleetHost, isLocal: boolean, events: NodeEvents) {
    this.host = host;
    this.isLocal = isLocal;
    this.broker = new Broker(engine, this, events);
    this.leaseMs = engine.settings?.leaseMs ?? LEASE_MS;
    const output = {
      send: (...[channel, frame]: Parameters<Broker["send"]>) => void this.broker.send(channel, frame, true),
      lost: (node: NodeName) => events.lost(node),
      forgotten: () => events.forgotten(),
    };
    this.nodes = new LiveNodes(this.id, this.leaseMs, output, performance.now());
  }

  /** Sends a beat, and the next ones. Reconnects if they do not come back. */
  beat(): void {
    // There is no other node.
    if (this.isLocal || this.#isClosed) return;
    setDeadline(this.#beat, this.leaseMs / BEATS);
    const { connection, name, isUp } = this.broker;
    if (!isUp || this.nodes.beat(performance.now())) return;
    connection.reconnect(new EngineError(`the beats of this node do not come back over ${name}`, "unknown"));
  }

  /** Says that this node ends, and disconnects. Never rejects. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearDeadline(this.#beat);
    const { broker, nodes } = this;
    if (broker.isUp) await broker.now(() => broker.connection.send("a:all", nodes.bye())).catch(() => {});
    await broker.close();
  }

  /** A node has given a sign. Returns false if the node has closed: then the sign is an old one. */
  noteSign(node: NodeName): boolean {
    return this.nodes.noteSign(node, performance.now());
  }

  /** Counts a frame that breaks a rule. */
  foreign(): void {
    this.counts.foreign++;
  }

  /** Counts something that is not sent. */
  dropped(): void {
    this.counts.dropped++;
  }

  /** Members of a topic have missed publications. */
  gap(topic: string, reason: string): void {
    this.counts.gaps++;
    this.host.gap(topic, reason);
  }

  /** A peer of this node is open. */
  opened(peer: AnyPeer, principal: string | undefined): void {
    this.#byId.set(this.addressOf(peer.id).localId, peer);
    if (principal === undefined) return;
    this.#principals.set(peer, principal);
    let peers = this.#byPrincipal.get(principal);
    if (peers === undefined) this.#byPrincipal.set(principal, (peers = new Set()));
    peers.add(peer);
  }

  /** A peer of this node is closed. */
  closed(peer: AnyPeer): void {
    this.#byId.delete(this.addressOf(peer.id).localId);
    const principal = this.#principals.get(peer);
    if (principal === undefined) return;
    this.#principals.delete(peer);
    const peers = this.#byPrincipal.get(principal)!;
    peers.delete(peer);
    if (peers.size === 0) this.#byPrincipal.delete(principal);
  }

  /** Returns the peer of an id, if it is on this node. */
  peerOf(id: string): AnyPeer | undefined {
    return this.peerAt(this.addressOf(id));
  }

  /** Returns the peer of an address, if it is on this node. */
  peerAt({ node, localId }: Address): AnyPeer | undefined {
    return node === this.id ? this.#byId.get(localId) : undefined;
  }

  /** Returns the peers of a principal on this node. */
  peersOf(principal: string): Iterable<AnyPeer> {
    return this.#byPrincipal.get(principal) ?? [];
  }

  addressOf(id: string): Address {
    if (this.isLocal) return { node: this.id, localId: id };
    const dot = id.indexOf(".");
    return dot < 0 ? { node: "", localId: id } : { node: id.slice(0, dot), localId: id.slice(dot + 1) };
  }

  idOf({ node, localId }: Address): string {
    return this.isLocal ? localId : `${node}.${localId}`;
  }

  /** Returns the ids of those peers that other nodes may have. A frame needs no escape for them. */
  elsewhere(peers: Iterable<AnyPeer | string>): string[] {
    const ids = Array.from(peers, (peer) => (typeof peer === "string" ? peer : peer.id));
    return ids.filter((id) => {
      const { node, localId } = this.addressOf(id);
      return node !== this.id && isNodeName(node) && isNodeName(localId);
    });
  }

  /** Reads a page of a log, and begins one as the rule says if there is none. Rejects with an `EngineError`. */
  read(topic: string, after: number, page: LogPage, rule: LogRule): Promise<LogPart> {
    const { broker } = this;
    return this.limit(() => broker.now(() => broker.connection.log!.read(topic, after, page, rule)));
  }

  /** Runs at most `MOST_READS` at once. */
  async limit<T>(run: () => Promise<T>): Promise<T> {
    if (this.#reads >= MOST_READS) await new Promise<void>((resolve) => this.#readers.push(resolve));
    else this.#reads++;
    try {
      return await run();
    } finally {
      const next = this.#readers.shift();
      if (next === undefined) this.#reads--;
      else next();
    }
  }
}
