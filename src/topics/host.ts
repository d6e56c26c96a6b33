/** What a server and its node know of each other. `LocalNode` is the node of a server without an engine, and `Fleet` that of any other. */
import type { MessageText } from "../message/codec.js";
import type { CallSettings } from "../peer/outgoing-call.js";
import type { AnyPeer } from "../peer/peer.js";
import type { OwnPeers, PeersHost } from "./own-peers.js";
import type { Exclusion, PeerCalls, PrincipalCalls } from "./remote.js";
import type { NodeTopics } from "./topic.js";
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

/** The server of a node, as the node sees it. None of its functions throws, except `rulesOf`. */
export interface NodeHost extends PeersHost {
  /** The defaults of the options of a call. */
  readonly settings: Pick<CallSettings, "timeoutMs" | "retry">;
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
  /** Ends a session that its client has discarded, if it is here. */
  endSession(hash: string, principal: string | undefined): void;
  changed(state: EngineState): void;
  /** Emits `gap`. `members`: those that have missed publications, and have no report of it. */
  gap(topic: string, reason: string, members: Iterable<AnyPeer>): void;
}

/** What `server.health()` returns. */
export interface Health {
  /** Whether this node reaches the others. True without an engine. */
  readonly ok: boolean;
  readonly engine: "up" | "down" | "none";
  /** How long the last message of this node to itself took over the broker, in milliseconds. `undefined` until the first. */
  readonly lagMs: number | undefined;
}

/** Counts of the engine since the start, and its present load. */
export interface EngineStats {
  /** Frames that were sent, without publications. */
  readonly sent: number;
  readonly received: number;
  /** Frames and publications that were not sent: the engine was down, or too much was unanswered. */
  readonly dropped: number;
  /** How often the broker did not take the subscription of a topic or a user. It is tried again each second, and emitted as `error`. */
  readonly failedSubscriptions: number;
  /** Frames that this node did not understand. */
  readonly foreign: number;
  /** Publications that were read from the log because their message did not come. */
  readonly healed: number;
  /** How often publications were lost to this node. */
  readonly gaps: number;
  /** Bytes that the broker has not confirmed. */
  readonly pendingBytes: number;
  /** How often the connection was restored. */
  readonly reconnects: number;
  /** How many nodes live, with this one. */
  readonly nodes: number;
}

/** The nodes of a fleet. */
export interface Nodes {
  /** The id of this node. Random, and new with each start. */
  readonly id: string;
  /** The ids of the nodes that live, with this one. A node that was killed is listed until it was silent for its lease. */
  readonly live: readonly string[];
  /**
   * Notifies the other nodes, at most once. They handle it by `serve({ nodes: { methods } })`. Throws a `TypeError` for params without
   * a JSON form, and for options: it takes none.
   */
  notify(method: string, params?: object): void;
}

/** The events of a server that is a node of a fleet. */
export type FleetEvents = {
  /**
   * The connection to the broker was lost or restored. No peer is closed. While it is down, notifications reach only the peers of this
   * node. Not emitted for the start.
   */
  engine(state: EngineState): void;
  /**
   * Members of a logged topic on this node have missed publications, or may have: the log no longer has them, they are longer than
   * `maxMessageBytes` of a member, or this node published before it could read the log. Live publications go on. Those members that are
   * reciproc peers emit `missed`. Tell the others to load their state again.
   */
  gap(topic: string, reason: string): void;
};

/** How a message is sent to a group. `here`: not to other nodes. */
export type GroupOptions = SendOptions & {
  readonly here?: boolean | undefined;
  readonly except?: Exclusion | undefined;
};

/** The node of a server. What only concerns other nodes is `undefined` without an engine. */
export interface ServerNode {
  /** Random, and new with each start. */
  readonly id: string;
  readonly topics: NodeTopics;
  readonly nodes: Nodes;
  /** The open peers of this node, of which the server reports each that opens and closes. */
  readonly own: OwnPeers;
  /** Reaches the peers of all nodes. */
  readonly calls: PeerCalls;
  readonly principals: PrincipalCalls;
  /**
   * Takes a notification that this node has sent to its members of these topics, or to all its peers: for those of other nodes, and those
   * that are about to join.
   */
  notifyElsewhere?(
    topics: readonly string[] | undefined,
    method: string,
    text: MessageText,
    options: GroupOptions,
  ): void;
  /** Connects, and then listens. Rejects with an `EngineError` if the broker cannot be reached in time, and as `listen` does. */
  start?(listen: () => Promise<void>): Promise<void>;
  /** Leaves the others. Never rejects. A second call waits for the first. */
  close(): Promise<void>;
  /** Returns false for a peer of this process that no node of the fleet has. */
  canHave?(peer: AnyPeer): boolean;
  /** Returns a token of a session, which names this node. */
  tokenOf?(random: string): string;
  /**
   * Returns what reports that a client has discarded its session, because this node refused it. The node that the token names ends the
   * session, so that its calls settle and its user is not a member twice until the session expires. Ending a session twice does nothing.
   * Returns nothing if the token names no other node.
   */
  sessionOver?(token: string, hash: string, principal: string | undefined): (() => void) | undefined;
  /** Returns the counts of the engine. */
  stats?(): EngineStats;
  health?(): Health;
}
