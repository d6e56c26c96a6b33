/** The server of a node, as the node sees it, and what a node reports. */
import type { MessageText } from "../message/codec.js";
import type { CallSettings } from "../peer/outgoing-call.js";
import type { AnyPeer } from "../peer/peer.js";
import type { Exclusion } from "./remote.js";
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
export interface NodeHost {
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
  /** The peers of a principal are closed. Clients whose `authenticate` was called until `until` may be on their way to become peers. */
  disconnected(principal: string, until: number): void;
  /** Takes an error that has no caller. */
  report(error: unknown): void;
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
  /** Frames that were sent, without publications and calls of this node. */
  readonly sent: number;
  readonly received: number;
  /** Frames and publications that were not sent: the engine was down, or too much was unanswered. */
  readonly dropped: number;
  /** How often the broker did not take the subscription of a topic or a user. It is tried again each second, and the second failure is emitted as `error`. */
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
