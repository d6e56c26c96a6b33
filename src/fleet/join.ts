/** A peer that joins a topic: what it has missed comes first, then the live messages that were queued meanwhile, then it is a member. */
import type { Linked } from "../base/list.js";
import { utf8Bytes, type MessageText } from "../message/codec.js";
import type { AnyPeer } from "../peer/peer.js";
import { textOf, type Position } from "../topics/engine.js";
import type { NodeHost } from "../topics/host.js";
import type { Publication } from "../topics/publication.js";
import { checkJoin, type NodeTopic } from "../topics/topic.js";
import type { TopicLog } from "./topic-log.js";
import type { Joined, SendOptions } from "../topics/topic-options.js";

/** The topic that is joined. */
type JoinedTopic = NodeTopic & { readonly log: TopicLog | undefined };

/**
 * `first`: the position of the join is not known yet, and no message is for the peer. `replay`: what it has missed is being read, and live
 * messages are queued. `live`: it gets live messages. `cancelled`: the application has removed it.
 */
type State =
  | { readonly kind: "first" | "live" | "cancelled" }
  | { readonly kind: "replay"; readonly queued: (() => void)[]; length: number };

/** One join of a peer. */
export class Join implements Linked {
  before: Linked | undefined = undefined;
  after: Linked | undefined = undefined;
  readonly peer: AnyPeer;
  /** What the peer is listed as, in JSON; `undefined` if it is not, or shall not be any more. */
  as: string | undefined;
  readonly #topic: JoinedTopic;
  readonly #host: NodeHost;
  #state: State = { kind: "first" };
  /** The length in bytes of a publication that was queued and is longer than the peer accepts; 0 if there is none. */
  refusedBytes = 0;
  /** Resolves when the join has settled. */
  readonly settled: Promise<void>;
  settle!: () => void;

  constructor(peer: AnyPeer, as: string | undefined, topic: JoinedTopic, host: NodeHost) {
    this.peer = peer;
    this.as = as;
    this.#topic = topic;
    this.#host = host;
    this.settled = new Promise((resolve) => (this.settle = resolve));
  }

  /** Takes a live message. If too much is queued, the peer becomes a member, and has a gap. Returns true if the peer will get it. */
  queue(method: string, message: MessageText, options: SendOptions): boolean {
    const state = this.#state;
    const { peer } = this;
    // A volatile message is not queued.
    if (state.kind !== "replay" || options.except?.has(peer) === true || options.volatile === true) return false;
    const { onDropped } = options;
    const refused = (bytes: number): void => void (this.refusedBytes = bytes);
    if (onDropped !== undefined && !this.#host.accepts(peer, message)) refused(utf8Bytes(message));
    // The gap is emitted when the peer is a member: it then receives what a listener sends.
    const queuedOptions = onDropped === undefined ? options : { ...options, onDropped: refused };
    state.queued.push(() => this.#host.send([peer], method, message, queuedOptions));
    state.length += message.length;
    if (state.length > this.#host.maxReplayLength) {
      this.release();
      this.#host.add(this.#topic.name, peer);
    }
    return true;
  }

  /** The peer gets live messages from now on: sends what was queued. */
  release(): void {
    const state = this.#state;
    if (state.kind === "cancelled") return;
    this.#state = { kind: "live" };
    if (state.kind === "replay") for (const send of state.queued) send();
  }

  /** The application has removed the peer. */
  cancel(): void {
    this.#state = { kind: "cancelled" };
  }

  /** Throws if the peer cannot become a member any more. */
  checkPresent(): void {
    checkJoin(this.peer, this.#state.kind === "cancelled");
  }

  /** Makes the peer a member at the present position, behind what it has missed. */
  async enter(since: Position | undefined): Promise<Joined> {
    this.checkPresent();
    const { name, log, publicationOptions } = this.#topic;
    const { peer } = this;
    const at = log?.position && textOf(log.position);
    const isMember = this.#host.membersOf(name).has(peer);
    let missed: readonly Publication[] | undefined;
    if (since !== undefined && log !== undefined) {
      // A member has got live messages. Older ones would come behind them.
      const reading = isMember ? (at === textOf(since) ? [] : undefined) : log.since(since);
      // If nothing has to be read, the peer is a member before the next message.
      missed = reading instanceof Promise ? await this.#replay(log, reading) : reading;
    }
    this.checkPresent();
    // If the peer does not accept one of the missed publications, it gets none of them. The outcome is a gap.
    if (missed?.some(({ text: message }) => !this.#host.accepts(peer, message)) === true) missed = undefined;
    for (const { method, text: message } of missed ?? []) this.#host.send([peer], method, message, publicationOptions);
    this.release();
    this.#host.add(name, peer);
    this.checkPresent();
    const isComplete = missed !== undefined && this.refusedBytes === 0;
    return log === undefined ? {} : { at, outcome: isComplete ? "complete" : "gap" };
  }

  /** Holds live messages while the log is read. Returns what the peer has missed. `undefined`: a gap. */
  async #replay(log: TopicLog, reading: Promise<Publication[] | undefined>): Promise<Publication[] | undefined> {
    this.#state = { kind: "replay", queued: [], length: 0 };
    const { gaps } = log;
    const isReplaying = (): boolean => this.#state.kind === "replay";
    let missed: Publication[] | undefined;
    try {
      missed = await reading;
    } catch (error) {
      // A peer that is a member meanwhile needs nothing of the log.
      if (isReplaying()) throw error;
    }
    // It is a gap if live messages came first, because too much was queued or the application added the peer. It is a gap too if the peer
    // does not accept a queued publication, or if this node has lost one.
    return isReplaying() && this.refusedBytes === 0 && log.gaps === gaps ? missed : undefined;
  }
}
