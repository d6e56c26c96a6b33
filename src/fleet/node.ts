/** What the modules of one node share: its name, its broker, the nodes that live, its peers, its counts and its server. */
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { nanoid } from "../base/packages.js";
import type { AnyPeer } from "../peer/peer.js";
import { Broker, Limit, type BrokerEvents } from "./broker.js";
import { EngineError, type Engine, type LogPage, type LogPart, type LogRule, type NodeName } from "../topics/engine.js";
import { channelOf, isNodeName } from "./frames.js";
import type { NodeHost } from "../topics/host.js";
import { BEATS, LEASE_MS, LiveNodes, type NodesOutput } from "./nodes.js";
import { OwnPeers } from "../topics/own-peers.js";
import { Repeats } from "./repeats.js";
import { Exclusion } from "../topics/remote.js";
import type { SendOptions } from "../topics/topic-options.js";

/** A peer on any node. */
export interface Address {
  readonly node: NodeName;
  readonly localId: string;
}

/** What a node finds out about the others, besides what its broker reports. */
export type NodeEvents = BrokerEvents & Omit<NodesOutput, "send">;

/** 72 random bits. */
const NODE_LENGTH = 12;
/** After two pages that are later than that, and a second after each, a node that was paused has a gap within 10 s. */
const READ_TIMEOUT_MS = 3_000;

/** One node. */
export class FleetNode {
  readonly id: NodeName = nanoid(NODE_LENGTH);
  readonly host: NodeHost;
  readonly own: OwnPeers;
  readonly broker: Broker;
  readonly nodes: LiveNodes;
  /** Answers to other nodes, reports of sessions that began elsewhere, and closes of the peers of a principal. */
  readonly answers: Repeats;
  readonly reports: Repeats;
  readonly closes: Repeats;
  readonly leaseMs: number;
  readonly counts = { received: 0, foreign: 0, healed: 0, gaps: 0 };
  readonly #beat: Expiring = { deadline: 0, expire: () => this.beat() };
  /** A log that is not answered delays no question. */
  readonly #reads = new Limit();
  readonly questions = new Limit();
  isClosed = false;

  constructor(engine: Engine, host: NodeHost, events: NodeEvents) {
    this.host = host;
    this.broker = new Broker(engine, this.id, events);
    this.answers = new Repeats(this.broker, 10_000, 16 * 2 ** 20);
    this.reports = new Repeats(this.broker, 1_000, 2 ** 20);
    this.closes = new Repeats(this.broker, 10_000, 4 * 2 ** 20);
    this.own = new OwnPeers(host, (principal, isHere) => {
      if (isHere) this.broker.want(channelOf(principal));
      else this.broker.release(channelOf(principal));
    });
    this.leaseMs = engine.settings?.leaseMs ?? LEASE_MS;
    const send: NodesOutput["send"] = (channel, frame) => this.broker.send(channel, frame, true);
    this.nodes = new LiveNodes(this.id, this.leaseMs, { ...events, send }, performance.now());
  }

  /** Sends a beat, and the next ones. Reconnects if they do not come back. */
  beat(): void {
    if (this.isClosed) return;
    setDeadline(this.#beat, this.leaseMs / BEATS);
    const { connection, name, isUp } = this.broker;
    if (!isUp || this.nodes.beat(performance.now())) return;
    connection.reconnect(new EngineError(`the beats of this node do not come back over ${name}`, "unknown"));
  }

  /** Says that this node ends, and disconnects. Never rejects. */
  async close(): Promise<void> {
    this.isClosed = true;
    clearDeadline(this.#beat);
    this.answers.stop();
    this.reports.stop();
    this.closes.stop();
    const { broker, nodes } = this;
    if (broker.isUp) await broker.now(() => broker.connection.send("a:all", nodes.bye())).catch(() => {});
    await broker.close();
  }

  /** Members of a topic have missed publications: by default, all of this node. */
  gap(topic: string, reason: string, members: Iterable<AnyPeer> = this.host.membersOf(topic)): void {
    this.counts.gaps++;
    this.host.gap(topic, reason, members);
  }

  /** Returns the peer of this node with a local id. */
  peerAt(localId: string): AnyPeer | undefined {
    return this.own.get(this.idOf({ node: this.id, localId }));
  }

  addressOf(id: string): Address {
    const dot = id.indexOf(".");
    return dot < 0 ? { node: "", localId: id } : { node: id.slice(0, dot), localId: id.slice(dot + 1) };
  }

  idOf({ node, localId }: Address): string {
    return `${node}.${localId}`;
  }

  /** Returns the ids of those peers that other nodes may have. A frame needs no escape for them. */
  elsewhere(peers: Iterable<AnyPeer | string>): string[] {
    const ids = Array.from(peers, (peer) => (typeof peer === "string" ? peer : peer.id));
    return ids.filter((id) => {
      const { node, localId } = this.addressOf(id);
      return node !== this.id && isNodeName(node) && isNodeName(localId);
    });
  }

  /** Returns the options of a notification of another node. `topics`: those whose members get nothing. */
  optionsOf(
    [_from, except = "", slow, volatile, latest = ""]: readonly string[],
    topics: readonly string[] = [],
  ): SendOptions {
    const named = (): Exclusion =>
      new Exclusion({ peers: new Set(except.split(",").flatMap((id) => this.own.get(id) ?? [])), topics }, (topic) =>
        this.host.membersOf(topic),
      );
    return {
      except: except === "" && topics.length === 0 ? undefined : named(),
      whenSlow: slow === "c" ? "close" : "drop",
      volatile: volatile === "v",
      latest: latest.startsWith("=") ? latest.slice(1, 257) : undefined,
    };
  }

  /** Reads a page of a log, and begins one as the rule says if there is none. Rejects with an `EngineError`. */
  read(topic: string, after: number, page: LogPage, rule: LogRule): Promise<LogPart> {
    const { broker } = this;
    const read = (): Promise<LogPart> => broker.connection.log!.read(topic, after, page, rule);
    return this.#reads.run(() => broker.now(read, 0, READ_TIMEOUT_MS));
  }
}
