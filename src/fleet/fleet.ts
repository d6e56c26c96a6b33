/**
 * One node of a fleet: connects the server of this process to those of others. Reads the frames that come, and gives each to the module
 * that it concerns. The server sees only this class.
 */
import { encodeNotification, plainText, type MessageText } from "../core/codec.js";
import type { Contract } from "../core/contract.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { attempt } from "../core/tell.js";
import { expected } from "../core/errors.js";
import type { AnyPeer } from "../peer/peer.js";
import type { Broker } from "./broker.js";
import { Calls } from "./calls.js";
import type { Channel, Engine, EngineError, NodeName } from "./engine.js";
import { frameOf, isNodeName, Kind, notificationIn, principalName, readFrame, type ReadFrame } from "./frames.js";
import { FleetNode, type EngineState, type FleetHost } from "./node.js";
import { AddressedPeer, principalOf, refuseOptions, type Principal, type RemotePeer } from "./remote.js";
import { Repeats } from "./repeats.js";
import { FleetTopics } from "./topics.js";
import type { SendOptions } from "./topic-options.js";

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
   * `maxMessageBytes` of a member, or this node published before it could read the log. Live publications go on. Tell the members to
   * load their state again.
   */
  gap(topic: string, reason: string): void;
};

/** The kinds of frames that concern the log or the members of a topic. */
const OF_TOPICS: ReadonlySet<string> = new Set([Kind.Log, Kind.Joined, Kind.Left, Kind.Digest, Kind.Question]);

/** Another node gets the report of a session for so long, while it lives and has not received it. A session without a socket seldom lasts longer. */
const SESSION_OVER_MS = 60_000;
const SESSION_OVER = { firstMs: 500, lastMs: 8_000, most: 1_000, maxLength: 2 ** 20 };

/** Returns a token that names its node. */
export function tokenOf(node: NodeName, random: string): string {
  return `${node}.${random}`;
}

/** Returns the node that a token names, if it names one. */
function nodeOfToken(token: string): NodeName | undefined {
  const node = token.slice(0, Math.max(0, token.indexOf(".")));
  return isNodeName(node) ? node : undefined;
}

/** One node of a fleet. */
export class Fleet {
  readonly topics: FleetTopics;
  readonly #node: FleetNode;
  readonly #calls: Calls;
  /** The frames that end sessions on other nodes. */
  readonly #sessionsOver: Repeats;
  #wasUp = false;
  /** Whether `start` has resolved, with or without the broker. */
  #isStarted = false;
  /** What weakened a promise of the broker at the last connect. */
  #unmet: ReadonlySet<string> = new Set();
  readonly #unmetReport: Expiring = { deadline: 0, expire: () => this.#reportUnmet() };
  #downAt = performance.now();
  #closed: Promise<void> | undefined;

  constructor(engine: Engine, host: FleetHost, isLocal = false) {
    this.#node = new FleetNode(engine, host, isLocal, {
      received: (channel, frame) => this.#received(channel, frame),
      up: () => this.#up(),
      down: (error) => this.#down(error),
      heard: (channels) => {
        this.topics.heard(shuffled(channels));
        // Perhaps they moved to a server that is new.
        this.#reportSoon();
      },
      lost: (node) => {
        this.topics.lost(node);
        this.#calls.lost(node);
      },
      forgotten: () => this.topics.repeatAll(),
    });
    this.#calls = new Calls(this.#node);
    this.#sessionsOver = new Repeats(this.#node, SESSION_OVER);
    this.topics = new FleetTopics(this.#node);
  }

  get id(): NodeName {
    return this.#node.id;
  }

  get isLocal(): boolean {
    return this.#node.isLocal;
  }

  get #broker(): Broker {
    return this.#node.broker;
  }

  /** Connects, and then listens. Rejects with an `EngineError` if the broker cannot be reached in time, and as `listen` does. */
  async start(listen?: () => Promise<void>): Promise<void> {
    await this.#broker.open();
    await listen?.();
    this.#isStarted = true;
    this.#reportSoon();
  }

  /** Reports what is unmet a task later, so that an application that awaits the start has added its listener. */
  #reportSoon(): void {
    if (this.#isStarted && this.#closed === undefined) setDeadline(this.#unmetReport, 1);
  }

  /** Reports each setting that weakens a promise of the broker, once for as long as it does. */
  #reportUnmet(): void {
    const before = this.#unmet;
    this.#unmet = new Set(this.#broker.facts?.unmet);
    for (const sentence of this.#unmet) if (!before.has(sentence)) this.#node.host.report(new Error(sentence));
  }

  /** Leaves the fleet: the others forget this node, and it disconnects. Never rejects. A second call waits for the first. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    clearDeadline(this.#unmetReport);
    this.#calls.end();
    this.#sessionsOver.stop();
    this.topics.close();
    await this.#node.close();
  }

  get nodes(): Nodes {
    const getLive = (): string[] => [...this.#node.nodes.live];
    return {
      id: this.id,
      get live() {
        return getLive();
      },
      notify: (method: string, params?: object, options?: unknown) => this.#notifyNodes(method, params, options),
    };
  }

  /** A peer of this node is open. */
  opened(peer: AnyPeer, principal: string | undefined): void {
    this.#node.opened(peer, principal);
  }

  /** A peer of this node is closed. */
  closed(peer: AnyPeer): void {
    this.#node.closed(peer);
  }

  /** Returns the peer of an id, if it is on this node. */
  peerOf(id: string): AnyPeer | undefined {
    return this.#node.peerOf(id);
  }

  /** Returns false for a peer of this process that no node has: of a client, or of a server without an engine. */
  canHave(peer: AnyPeer): boolean {
    return !this.isLocal && isNodeName(this.#node.addressOf(peer.id).node);
  }

  /** Sends a notification of this node to the members of a topic on the others. */
  notifyTopic(name: string, text: MessageText, options: SendOptions): void {
    this.#notify(`t:${name}`, text, options);
  }

  /** Sends a notification of this node to all peers of the others. */
  notifyAll(text: MessageText, options: SendOptions): void {
    this.#notify("a:all", text, options);
  }

  #notify(channel: Channel, text: MessageText, { except, whenSlow, volatile, latest }: SendOptions): void {
    const fields = [
      this.id,
      except === undefined ? "" : this.#node.elsewhere(except).join(","),
      whenSlow === "close" ? "c" : "",
      volatile === true ? "v" : "",
      latest === undefined ? "" : `=${latest}`,
    ];
    this.#broker.send(channel, frameOf(Kind.Notify, fields, plainText(text)));
  }

  /** Returns a peer of any node. */
  peer<R extends Contract<R> = any>(id: string): RemotePeer<R> {
    if (typeof id !== "string") throw expected("id", "a string", id);
    return new AddressedPeer<R>(this.#calls, id, this.#node.addressOf(id));
  }

  /** Returns the peers of a principal. Throws a `TypeError` for a name that no principal has. */
  principal<R extends Contract<R> = any>(name: string): Principal<R> {
    principalName(name, "name");
    const notifyElsewhere = (principal: string, method: string, params: unknown): void => {
      const body = plainText(encodeNotification(method, params as object));
      this.#broker.send("a:all", frameOf(Kind.Principal, [0, this.id, "notify", 0, principal], body));
    };
    return principalOf<R>({ calls: this.#calls, node: this.id, peer: (id) => this.peer(id), notifyElsewhere }, name);
  }

  #notifyNodes(method: string, params: unknown, options: unknown): void {
    refuseOptions(options);
    const body = plainText(encodeNotification(method, params as object));
    this.#broker.send("a:all", frameOf(Kind.Nodes, [this.id], body));
  }

  /**
   * Returns what reports that a client has discarded its session, because this node refused it. The node that the token names ends the
   * session, so that its calls settle and its user is not a member twice until the session expires. Ending a session twice does nothing.
   */
  sessionOver(token: string, hash: string, principal: string | undefined): () => void {
    const node = nodeOfToken(token);
    if (node === undefined || node === this.id) return () => {};
    const frame = frameOf(Kind.SessionOver, [this.id, hash, principal === undefined ? "" : "p", principal ?? ""]);
    const { nodes } = this.#node;
    const isReceived = (count: number): boolean => count > 0 || !nodes.live.has(node);
    return () => this.#sessionsOver.send(`n:${node}`, frame, SESSION_OVER_MS, isReceived);
  }

  stats(): EngineStats {
    return { ...this.#node.counts, pendingBytes: this.#broker.pendingBytes, nodes: this.#node.nodes.live.size };
  }

  health(): Health {
    const { nodes, leaseMs } = this.#node;
    const lagMs = nodes.lagMs(performance.now());
    const { isUp } = this.#broker;
    return { ok: isUp && (lagMs ?? 0) < leaseMs, engine: isUp ? "up" : "down", lagMs };
  }

  #up(): void {
    if (this.#wasUp) this.#node.counts.reconnects++;
    this.#wasUp = true;
    this.#node.nodes.connected();
    this.#node.beat();
    this.topics.up();
    this.#calls.up();
    this.#sessionsOver.up();
    if (!this.#isStarted) return;
    this.#node.host.changed({ state: "up", downMs: performance.now() - this.#downAt });
    this.#reportSoon();
  }

  #down(error: EngineError): void {
    this.#downAt = performance.now();
    this.#node.host.changed({ state: "down", downMs: 0, error });
  }

  #received(channel: Channel, text: string): void {
    if (this.#closed !== undefined) return;
    this.#node.counts.received++;
    const { maxFrameBytes = Infinity } = this.#broker.facts ?? {};
    const frame = text.length <= maxFrameBytes ? readFrame(text) : undefined;
    const isKnown =
      frame !== undefined && (channel.startsWith("t:") ? this.#ofTopic(channel, frame) : this.#ofNode(frame));
    if (!isKnown) this.#node.foreign();
  }

  /** Takes a frame of a topic's channel. Returns false for an unknown one. */
  #ofTopic(channel: Channel, frame: ReadFrame): boolean {
    const topic = channel.slice(2);
    if (frame.kind === Kind.Notify) {
      const options = this.#optionsOf(frame);
      if (options !== undefined) this.topics.notify(topic, frame.body, options);
      return true;
    }
    return OF_TOPICS.has(frame.kind) && this.topics.received(topic, frame);
  }

  /** Takes a frame of the inbox, or of the channel of all nodes. Returns false for an unknown one. */
  #ofNode(frame: ReadFrame): boolean {
    const { kind, fields, body } = frame;
    switch (kind) {
      case Kind.Notify:
        return this.#notifyAll(frame);
      case Kind.One: {
        const notification = notificationIn(body);
        if (notification !== undefined)
          this.#node
            .peerAt({ node: this.id, localId: fields[1] ?? "" })
            ?.notify(notification.method, notification.params);
        return notification !== undefined;
      }
      case Kind.Call:
      case Kind.Answer:
      case Kind.Progress:
      case Kind.Cancel:
      case Kind.Close:
        this.#calls.received(frame);
        return true;
      case Kind.Principal:
        this.#calls.asked(frame);
        return true;
      case Kind.SessionOver:
        this.#node.host.endSession(fields[1] ?? "", fields[2] === "p" ? fields[3] : undefined);
        return true;
      case Kind.Nodes: {
        const notification = notificationIn(body);
        const [from = ""] = fields;
        if (notification !== undefined && from !== this.id)
          this.#notified(notification.method, notification.params, from);
        return notification !== undefined;
      }
      case Kind.Beat:
        return this.#node.nodes.received(fields, performance.now());
      case Kind.Question:
      case Kind.Members:
        return this.topics.received(fields[1] ?? "", frame);
      default:
        return false;
    }
  }

  #notified(method: string, params: unknown, from: NodeName): void {
    const handler = this.#node.host.nodeMethods.get(method);
    if (handler !== undefined)
      attempt(
        () => handler(params, { from }),
        (error) => this.#node.host.report(error),
      );
  }

  #notifyAll(frame: ReadFrame): boolean {
    const options = this.#optionsOf(frame);
    if (options === undefined) return true;
    const notification = notificationIn(frame.body);
    if (notification !== undefined)
      this.#node.host.send(this.#node.host.peers, notification.method, frame.body, options);
    return notification !== undefined;
  }

  /** Returns the options of a notification. `undefined` if this node has sent it: its peers have got it. */
  #optionsOf({ fields: [from, except = "", slow, volatile, latest = ""] }: ReadFrame): SendOptions | undefined {
    if (from === this.id) return undefined;
    return {
      except: except === "" ? undefined : new Set(except.split(",").flatMap((id) => this.peerOf(id) ?? [])),
      whenSlow: slow === "c" ? "close" : "drop",
      volatile: volatile === "v",
      latest: latest.startsWith("=") ? latest.slice(1, 257) : undefined,
    };
  }
}

/** Returns the same in a random order, so that nodes do not all read the same log at once. */
function shuffled<T>(list: readonly T[]): T[] {
  const result = [...list];
  for (let i = result.length - 1; i > 0; i--) {
    const j = Math.floor(Math.random() * (i + 1));
    [result[i], result[j]] = [result[j]!, result[i]!];
  }
  return result;
}
