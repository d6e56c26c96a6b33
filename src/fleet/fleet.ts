/**
 * One node of a fleet: connects the server of this process to those of others. Reads the frames that come, and gives each to the module
 * that it concerns. The server sees only this class.
 */
import { encodeNotification, plainText, type MessageText } from "../core/codec.js";
import type { Wait } from "../core/config.js";
import type { Contract } from "../core/contract.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { attempt } from "../core/tell.js";
import { expected } from "../core/errors.js";
import { nanoid } from "../core/packages.js";
import type { AnyPeer } from "../peer/peer.js";
import { Broker } from "./broker.js";
import { Calls, type Address } from "./calls.js";
import { EngineError, type Channel, type Engine, type NodeName } from "./engine.js";
import {
  frameOf,
  isNodeName,
  Kind,
  nodeName,
  notificationIn,
  principalName,
  readFrame,
  type ReadFrame,
} from "./frames.js";
import { BEATS, LEASE_MS, LiveNodes } from "./nodes.js";
import { AddressedPeer, principalOf, refuseOptions, type Principal, type RemotePeer } from "./remote.js";
import { SessionReports } from "./session-over.js";
import { Tails, type LogsOwner } from "./topic-log.js";
import { FleetTopics } from "./topics.js";
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

/** What a handler of a notification between nodes gets. */
export interface NodeContext {
  /** The id of the node that has notified. */
  readonly from: string;
}

/** Handlers of the notifications between nodes. What they throw or reject with is emitted as `error`. */
export type NodeMethods = Readonly<Record<string, (params: any, context: NodeContext) => unknown>>;

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

/** The kinds of frames that concern the log or the members of a topic. */
const OF_TOPICS: ReadonlySet<string> = new Set([Kind.Log, Kind.Joined, Kind.Left, Kind.Digest, Kind.Question]);

/** Reads of logs and first questions that run at once: more wait. */
const MOST_READS = 32;

/** One node of a fleet. */
export class Fleet {
  readonly id: NodeName = nodeName(nanoid(NODE_LENGTH));
  /** True for the private fleet of a server without an engine: the ids of its peers have no name of a node. */
  readonly isAlone: boolean;
  readonly topics: FleetTopics;
  readonly #host: FleetHost;
  readonly #broker: Broker;
  readonly #nodes: LiveNodes;
  readonly #leaseMs: number;
  readonly #beat: Expiring = { deadline: 0, expire: () => this.#sendBeat() };
  readonly #calls: Calls;
  readonly #sessionReports: SessionReports;
  readonly #byId = new Map<string, AnyPeer>();
  readonly #byPrincipal = new Map<string, Set<AnyPeer>>();
  readonly #principals = new Map<AnyPeer, string>();
  readonly #counts = { sent: 0, received: 0, dropped: 0, foreign: 0, healed: 0, gaps: 0, reconnects: 0 };
  #wasUp = false;
  /** Whether `start` has resolved, with or without the broker. */
  #isStarted = false;
  /** What weakened a promise of the broker at the last connect. */
  #unmet: ReadonlySet<string> = new Set();
  readonly #unmetReport: Expiring = { deadline: 0, expire: () => this.#reportUnmet() };
  #downAt = performance.now();
  #reads = 0;
  readonly #readers: (() => void)[] = [];
  #closed: Promise<void> | undefined;

  constructor(engine: Engine, host: FleetHost, isAlone = false) {
    this.#host = host;
    this.isAlone = isAlone;
    const foreign = (): void => void this.#counts.foreign++;
    const dropped = (): void => void this.#counts.dropped++;
    this.#broker = new Broker(engine, this.id, {
      received: (channel, frame) => this.#received(channel, frame),
      up: () => this.#up(),
      down: (error) => this.#down(error),
      heard: (channels) => {
        this.topics.heard(shuffled(channels));
        // Perhaps they moved to a server that is new.
        this.#reportSoon();
      },
      sent: () => this.#counts.sent++,
      dropped,
      failed: (error) => host.report(error),
    });
    const { leaseMs = LEASE_MS } = engine.settings ?? {};
    this.#leaseMs = leaseMs;
    const now = performance.now();
    this.#nodes = new LiveNodes(
      this.id,
      leaseMs,
      {
        send: (channel, frame) => void this.#broker.send(channel, frame, true),
        lost: (node) => {
          this.topics.lost(node);
          this.#calls.lost(node);
        },
        forgotten: () => this.topics.repeatAll(),
      },
      now,
    );
    this.#calls = new Calls({
      node: this.id,
      isAlone,
      broker: this.#broker,
      wait: host.wait,
      live: this.#nodes.live,
      expects: (node) => this.#nodes.expects(node, performance.now()),
      peerOf: (localId) => this.#byId.get(localId),
      peersOf: (principal) => this.#byPrincipal.get(principal) ?? [],
      disconnected: (principal) => host.disconnected(principal),
      report: (error) => host.report(error),
      foreign,
      dropped,
    });
    this.#sessionReports = new SessionReports({
      node: this.id,
      broker: this.#broker,
      live: this.#nodes.live,
      endSession: (hash, principal) => host.endSession(hash, principal),
      dropped,
    });
    const logs: LogsOwner = {
      broker: this.#broker,
      maxReplayLength: host.maxReplayLength,
      tails: new Tails(),
      limit: (run) => this.#limit(run),
      healed: () => this.#counts.healed++,
      foreign,
    };
    this.topics = new FleetTopics({
      ...logs,
      node: this.id,
      hears: (node) => this.#nodes.hears(node, performance.now()),
      idOf: (node, localId) => (isAlone ? localId : `${node}.${localId}`),
      rulesOf: (topic) => host.rulesOf(topic),
      membersOf: (topic) => host.membersOf(topic),
      add: (topic, peer) => host.add(topic, peer),
      localIdOf: (peer) => this.#addressOf(peer.id).localId,
      peerOfId: (id) => this.peerOf(id),
      send: (...message) => host.send(...message),
      accepts: (peer, text) => host.accepts(peer, text),
      gap: (topic, reason) => {
        this.#counts.gaps++;
        host.gap(topic, reason);
      },
      report: (error) => host.report(error),
    });
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
    for (const sentence of this.#unmet) if (!before.has(sentence)) this.#host.report(new Error(sentence));
  }

  /** Leaves the fleet: the others forget this node, and it disconnects. Never rejects. A second call waits for the first. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    clearDeadline(this.#unmetReport);
    clearDeadline(this.#beat);
    this.#calls.end();
    this.#sessionReports.stop();
    this.topics.close();
    const { connection } = this.#broker;
    if (this.#broker.isUp) await this.#broker.now(() => connection.send("a:all", this.#nodes.bye())).catch(() => {});
    await this.#broker.close();
  }

  get nodes(): Nodes {
    const getLive = (): string[] => [...this.#nodes.live];
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
    this.#byId.set(this.#addressOf(peer.id).localId, peer);
    if (principal === undefined) return;
    this.#principals.set(peer, principal);
    let peers = this.#byPrincipal.get(principal);
    if (peers === undefined) this.#byPrincipal.set(principal, (peers = new Set()));
    peers.add(peer);
  }

  /** A peer of this node is closed. */
  closed(peer: AnyPeer): void {
    this.#byId.delete(this.#addressOf(peer.id).localId);
    const principal = this.#principals.get(peer);
    if (principal === undefined) return;
    this.#principals.delete(peer);
    const peers = this.#byPrincipal.get(principal)!;
    peers.delete(peer);
    if (peers.size === 0) this.#byPrincipal.delete(principal);
  }

  /** Returns the peer of an id, if it is on this node. */
  peerOf(id: string): AnyPeer | undefined {
    const { node, localId } = this.#addressOf(id);
    return node === this.id ? this.#byId.get(localId) : undefined;
  }

  #addressOf(id: string): Address {
    const dot = this.isAlone ? -1 : id.indexOf(".");
    return dot < 0 ? { node: this.isAlone ? this.id : "", localId: id } : splitAt(id, dot);
  }

  /** Returns false for a peer of this process that no node has: of a client, or of a server without an engine. */
  canHave(peer: AnyPeer): boolean {
    return !this.isAlone && isNodeName(this.#addressOf(peer.id).node);
  }

  /** Returns the ids of those peers that other nodes may have. A frame needs no escape for them. */
  #elsewhere(peers: Iterable<AnyPeer | string>): string[] {
    const ids = Array.from(peers, (peer) => (typeof peer === "string" ? peer : peer.id));
    return ids.filter((id) => {
      const { node, localId } = this.#addressOf(id);
      return node !== this.id && isNodeName(node) && isNodeName(localId);
    });
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
      except === undefined ? "" : this.#elsewhere(except).join(","),
      whenSlow === "close" ? "c" : "",
      volatile === true ? "v" : "",
      latest === undefined ? "" : `=${latest}`,
    ];
    this.#broker.send(channel, frameOf(Kind.Notify, fields, plainText(text)));
  }

  /** Returns a peer of any node. */
  peer<R extends Contract<R> = any>(id: string): RemotePeer<R> {
    if (typeof id !== "string") throw expected("id", "a string", id);
    return new AddressedPeer<R>(this.#calls, id, this.#addressOf(id));
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

  /** A client has discarded its session, because this node refused it. If another node has the session, that node ends it. */
  sessionOver(hash: string, principal: string | undefined): void {
    this.#sessionReports.send(hash, principal);
  }

  stats(): EngineStats {
    return { ...this.#counts, pendingBytes: this.#broker.pendingBytes, nodes: this.#nodes.live.size };
  }

  health(): Health {
    const lagMs = this.#nodes.lagMs(performance.now());
    const { isUp } = this.#broker;
    return { ok: isUp && (lagMs ?? 0) < this.#leaseMs, engine: isUp ? "up" : "down", lagMs };
  }

  #up(): void {
    if (this.#wasUp) this.#counts.reconnects++;
    this.#wasUp = true;
    this.#nodes.connected();
    this.#sendBeat();
    this.topics.up();
    this.#calls.up();
    this.#sessionReports.up();
    if (!this.#isStarted) return;
    this.#host.changed({ state: "up", downMs: performance.now() - this.#downAt });
    this.#reportSoon();
  }

  #sendBeat(): void {
    // Nobody else is there.
    if (this.isAlone || this.#closed !== undefined) return;
    setDeadline(this.#beat, this.#leaseMs / BEATS);
    if (!this.#broker.isUp || this.#nodes.beat(performance.now())) return;
    const { connection, name } = this.#broker;
    connection.reconnect(new EngineError(`the beats of this node do not come back over ${name}`, "unknown"));
  }

  #down(error: EngineError): void {
    this.#downAt = performance.now();
    this.#host.changed({ state: "down", downMs: 0, error });
  }

  #received(channel: Channel, text: string): void {
    if (this.#closed !== undefined) return;
    this.#counts.received++;
    const { maxFrameBytes = Infinity } = this.#broker.facts ?? {};
    const frame = text.length <= maxFrameBytes ? readFrame(text) : undefined;
    const isKnown =
      frame !== undefined && (channel.startsWith("t:") ? this.#ofTopic(channel, frame) : this.#ofNode(frame));
    if (!isKnown) this.#counts.foreign++;
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
          this.#byId.get(fields[1] ?? "")?.notify(notification.method, notification.params);
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
        this.#sessionReports.received(frame);
        return true;
      case Kind.Nodes: {
        const notification = notificationIn(body);
        const [from = ""] = fields;
        if (notification !== undefined && from !== this.id)
          this.#notified(notification.method, notification.params, from);
        return notification !== undefined;
      }
      case Kind.Beat:
        return this.#nodes.received(fields, performance.now());
      case Kind.Question:
      case Kind.Members:
        return this.topics.received(fields[1] ?? "", frame);
      default:
        return false;
    }
  }

  #notified(method: string, params: unknown, from: NodeName): void {
    const handler = this.#host.nodeMethods.get(method);
    if (handler !== undefined)
      attempt(
        () => handler(params, { from }),
        (error) => this.#host.report(error),
      );
  }

  #notifyAll(frame: ReadFrame): boolean {
    const options = this.#optionsOf(frame);
    if (options === undefined) return true;
    const notification = notificationIn(frame.body);
    if (notification !== undefined) this.#host.send(this.#host.peers, notification.method, frame.body, options);
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

  /** Runs at most `MOST_READS` at once. */
  async #limit(run: () => Promise<void>): Promise<void> {
    if (this.#reads >= MOST_READS) await new Promise<void>((resolve) => this.#readers.push(resolve));
    else this.#reads++;
    try {
      await run();
    } finally {
      const next = this.#readers.shift();
      if (next === undefined) this.#reads--;
      else next();
    }
  }
}

/** 72 random bits. */
const NODE_LENGTH = 12;

function splitAt(id: string, at: number): Address {
  return { node: id.slice(0, at), localId: id.slice(at + 1) };
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
