/**
 * One node of a fleet: connects the server of this process to those of others. Reads the frames that come, and gives each to the module
 * that it concerns. The server sees only this class.
 */
import { encodeNotification, plainText, type MessageText } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { runReporting } from "../base/tell.js";
import type { AnyPeer } from "../peer/peer.js";
import { Calls } from "./calls.js";
import type { Channel, Engine, EngineError, NodeName } from "../topics/engine.js";
import { frameOf, isNodeName, Kind, readFrame, type ReadFrame } from "./frames.js";
import type { EngineStats, GroupOptions, Health, NodeHost, Nodes } from "../topics/host.js";
import type { ServerNode } from "../topics/local.js";
import { FleetNode } from "./node.js";
import type { OwnPeers } from "../topics/own-peers.js";
import { Principals } from "./principals.js";
import { notificationIn, type Notification } from "../topics/publication.js";
import { shuffled } from "./reconnecting.js";
import { refuseOptions } from "../topics/remote.js";
import { FleetTopics } from "./topics.js";

/**
 * Another node gets the report of a session for so long, each time that it is heard and has not received it. A session without a socket
 * seldom lasts longer.
 */
const SESSION_OVER_MS = 60_000;

/** One node of a fleet. */
export class Fleet implements ServerNode {
  readonly topics: FleetTopics;
  readonly #node: FleetNode;
  readonly calls: Calls;
  readonly principals: Principals;
  /** Whether `start` has resolved, with or without the broker. */
  #isStarted = false;
  /** What weakened a promise of the broker at the last connect. */
  #unmet: ReadonlySet<string> = new Set();
  readonly #unmetReport: Expiring = { deadline: 0, expire: () => this.#reportUnmet() };
  #downAt = performance.now();
  #closed: Promise<void> | undefined;

  constructor(engine: Engine, host: NodeHost) {
    this.#node = new FleetNode(engine, host, {
      received: this.#received,
      up: () => this.#up(),
      down: (error) => this.#down(error),
      failed: (error) => host.report(error),
      resubscribed: (channels) => {
        this.topics.resubscribed(shuffled(channels));
        // Perhaps they moved to a server that is new.
        this.#reportSoon();
      },
      lost: (node, wasLive) => {
        if (wasLive) this.topics.lost(node);
        this.calls.lost(node);
      },
      forgotten: () => this.topics.repeatAll(),
    });
    this.calls = new Calls(this.#node);
    this.principals = new Principals(this.#node);
    this.topics = new FleetTopics(this.#node);
  }

  get id(): NodeName {
    return this.#node.id;
  }

  get own(): OwnPeers {
    return this.#node.own;
  }

  async start(listen: () => Promise<void>): Promise<void> {
    await this.#node.broker.open();
    await listen();
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
    this.#unmet = new Set(this.#node.broker.facts?.unmet);
    for (const sentence of this.#unmet) if (!before.has(sentence)) this.#node.host.report(new Error(sentence));
  }

  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    clearDeadline(this.#unmetReport);
    this.calls.end();
    this.principals.end();
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

  canHave(peer: AnyPeer): boolean {
    return isNodeName(this.#node.addressOf(peer.id).node);
  }

  notifyElsewhere(
    topics: readonly string[] | undefined,
    method: string,
    text: MessageText,
    options: GroupOptions,
  ): void {
    if (topics !== undefined) this.topics.queue(topics, method, text, options);
    const { except, whenSlow, volatile, latest, here } = options;
    if (here === true || topics?.length === 0) return;
    const fields = [
      this.id,
      except === undefined ? "" : this.#node.elsewhere(except.peers).join(","),
      whenSlow === "close" ? "c" : "",
      volatile === true ? "v" : "",
      latest === undefined ? "" : `=${latest}`,
    ];
    const isOne = topics?.length === 1;
    const excepted = except?.topics ?? [];
    const isUnion = excepted.length > 0 || (topics !== undefined && !isOne);
    const body = plainText(text);
    // The nodes with members of several topics have no channel in common but that of all nodes.
    this.#node.broker.send(
      isOne ? `t:${topics[0]}` : "a:all",
      isUnion
        ? frameOf(Kind.Union, fields, `${JSON.stringify([topics ?? null, excepted])}\n${body}`)
        : frameOf(Kind.Notify, fields, body),
    );
  }

  #notifyNodes(method: string, params: unknown, options: unknown): void {
    refuseOptions(options);
    const body = plainText(encodeNotification(method, params as object));
    this.#node.broker.send("a:all", frameOf(Kind.Nodes, [this.id], body));
  }

  tokenOf(random: string): string {
    return `${this.id}.${random}`;
  }

  sessionOver(token: string, hash: string, principal: string | undefined): (() => void) | undefined {
    // As the id of a peer, a token begins with the name of its node.
    const { node } = this.#node.addressOf(token);
    if (!isNodeName(node) || node === this.id) return undefined;
    const frame = frameOf(Kind.SessionOver, [this.id, hash, principal === undefined ? "" : "p", principal ?? ""]);
    const { nodes, reports } = this.#node;
    let checkedAt = -Infinity;
    const isReceived = (count = 1): boolean => {
      checkedAt = performance.now();
      return count > 0 || !nodes.live.has(node);
    };
    // A node that has died is not heard again, and gets one frame.
    const isDue = (): boolean => nodes.heardAt(node) >= checkedAt;
    return () => void reports.send(`n:${node}`, () => frame, SESSION_OVER_MS, isReceived, isDue);
  }

  stats(): EngineStats {
    const { broker, counts, nodes } = this.#node;
    return { ...counts, ...broker.counts, pendingBytes: broker.pendingBytes, nodes: nodes.live.size };
  }

  health(): Health {
    const { nodes, leaseMs } = this.#node;
    const lagMs = nodes.lagMs(performance.now());
    const { isUp } = this.#node.broker;
    return { ok: isUp && (lagMs ?? 0) < leaseMs, engine: isUp ? "up" : "down", lagMs };
  }

  #up(): void {
    this.#node.nodes.connected();
    this.#node.beat();
    this.topics.up();
    this.#node.answers.up();
    this.#node.reports.up();
    this.#node.closes.up();
    if (!this.#isStarted) return;
    this.#node.host.changed({ state: "up", downMs: performance.now() - this.#downAt });
    this.#reportSoon();
  }

  #down(error: EngineError): void {
    this.#downAt = performance.now();
    this.#node.host.changed({ state: "down", downMs: 0, error });
  }

  readonly #received = (channel: Channel, text: string): void => {
    const { broker, counts, isClosed } = this.#node;
    if (isClosed) return;
    counts.received++;
    const frame = text.length <= broker.maxFrameBytes ? readFrame(text) : undefined;
    const isTopic = channel.startsWith("t:");
    const isKnown =
      frame !== undefined && (isTopic ? this.topics.received(channel.slice(2), frame) : this.#ofNode(frame));
    if (!isKnown) counts.foreign++;
  };

  /** Takes a frame of the inbox, or of the channel of all nodes. Returns false for an unknown one. */
  #ofNode(frame: ReadFrame): boolean {
    const { kind, fields, body } = frame;
    switch (kind) {
      case Kind.Notify:
      case Kind.One:
      case Kind.Nodes: {
        // Of this node: what it has sent came back.
        if (fields[0] === this.id) return true;
        const notification = notificationIn(body);
        if (notification !== undefined) this.#notified(frame, notification);
        return notification !== undefined;
      }
      case Kind.Principal:
      case Kind.PeersOf:
        return this.principals.received(frame);
      case Kind.SessionOver:
        this.#node.host.endSession(fields[1] ?? "", fields[2] === "p" ? fields[3] : undefined);
        return true;
      case Kind.Beat:
        return this.#node.nodes.received(fields, performance.now());
      case Kind.Union:
        return this.topics.ofUnion(frame);
      case Kind.Question:
      case Kind.Members:
        return this.topics.ofMembers(fields[1] ?? "", frame);
      default:
        return this.calls.received(frame);
    }
  }

  /** Takes a notification of another node: to one peer, to the application, or to all peers. */
  #notified({ kind, fields, body }: ReadFrame, { method, params }: Notification): void {
    const { host } = this.#node;
    const [from = "", localId = ""] = fields;
    if (kind === Kind.One) this.#node.peerAt(localId)?.notify(method, params);
    else if (kind === Kind.Notify) host.send(host.peers, method, body, this.#node.optionsOf(fields));
    else
      runReporting(
        () => host.nodeMethods.get(method)?.(params, { from }),
        (error) => host.report(error),
      );
  }
}
