/** The topics of a node, as its fleet sees them: their subscriptions, logs and members, and the peers that are about to join. */
import { utf8Bytes, type MessageText } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { List, unlink, type Linked } from "../base/list.js";
import { TooLargeError } from "../message/errors.js";
import type { AnyPeer } from "../peer/peer.js";
import type { Sending } from "./broker.js";
import {
  positionOf,
  type Channel,
  type EngineError,
  type LogPart,
  type NodeName,
  type Position,
} from "../topics/engine.js";
import type { Joined, SendOptions, TopicMember } from "../topics/topic-options.js";
import { frameOf, Kind, type ReadFrame } from "./frames.js";
import { RecentEntries } from "../topics/entries.js";
import { Join } from "./join.js";
import { Members } from "./members.js";
import type { FleetNode } from "./node.js";
import { notificationIn, parsed, type Publication } from "../topics/publication.js";
import { memberOf, NodeTopic, NodeTopics, type Entry } from "../topics/topic.js";
import { TAILS_BYTES, TopicLog } from "./topic-log.js";

/** How long a topic waits after its log or its members could not be read, if the connection is up. */
const RETRY_MS = 1_000;
/** How long a node that begins to follow a topic waits for the members on the others, if the broker does not count them. */
const ANSWERS_MS = 200;
/** How often unanswered questions are looked at. */
const TICK_MS = 1_000;
/**
 * How long after its last change of a topic a node repeats what it has said last. So a node that missed the last message of a topic learns
 * that, and a quiet topic costs nothing.
 */
const DIGESTS_MS = [1_000, 10_000, 60_000];
/** How many topics are repeated: those that this node has changed last. Clients may choose their topics. */
const MAX_SAID = 100_000;

/** What this node has said last of a topic, until that was repeated. */
interface Said extends Linked {
  readonly topic: string;
  readonly timer: Expiring;
  repeats: number;
  /** The position of the last publication of this node. */
  position: Position | undefined;
}

/** A topic that has members or watchers on this node, or that is being joined. */
class FleetTopic extends NodeTopic {
  readonly channel: Channel = `t:${this.name}`;
  /** Prepares the topic again. */
  readonly retry: Expiring;
  log: TopicLog | undefined = undefined;
  /** The first question about its members. Resolves when it was answered, and never rejects. */
  asking: Promise<void> | undefined = undefined;
  /** The attempt to follow the log for which publications of this node wait. */
  following: Promise<void> | undefined = undefined;
  /** The joins of each peer, in the order in which they were asked for. The first one is in progress. */
  readonly joining = new Map<AnyPeer, List<Join>>();

  /** Throws a `TypeError` for bad rules. */
  constructor(name: string, node: FleetNode, retry: (topic: FleetTopic) => void) {
    super(name, node.host, (reason) => node.gap(name, reason, []));
    this.retry = { deadline: 0, expire: () => retry(this) };
    const { connection, name: engine } = node.broker;
    if (this.logRule !== undefined && connection.log === undefined)
      throw new TypeError(`the engine ${engine} has no logs, so the rule \`log\` cannot be met`);
  }
}

/** The topics of one node. */
export class FleetTopics extends NodeTopics<FleetTopic> {
  readonly #node: FleetNode;
  readonly #tails = new RecentEntries(TAILS_BYTES);
  readonly #members: Members;
  readonly #said = new Map<string, Said>();
  /** The same, in the order of the last change. */
  readonly #lastSaid = new List<Said>();
  /** The topics whose digests are sent next. */
  readonly #due = new Set<string>();
  readonly #tick: Expiring = { deadline: 0, expire: () => this.#work() };
  #isTicking = false;

  constructor(node: FleetNode) {
    super();
    this.#node = node;
    const { broker } = node;
    this.#members = new Members(node.id, {
      send: (channel, frame) => broker.send(channel, frame),
      later: (key, frames) => broker.later(key, frames),
      maxFrameBytes: () => broker.maxFrameBytes,
      noteSign: (other) => node.nodes.noteSign(other, performance.now()),
      changed: (topic, event, other, localId, as) =>
        this.topics.get(topic)?.changed(event, memberOf(node.idOf({ node: other, localId }), as)),
      asked: () => this.#wake(),
    });
  }

  #wake(): void {
    if (this.#isTicking || this.isClosed) return;
    this.#isTicking = true;
    setDeadline(this.#tick, TICK_MS);
  }

  #work(): void {
    this.#isTicking = false;
    if (this.#members.tick(performance.now())) this.#wake();
  }

  /** Repeats the digests of these topics, behind other work. */
  #repeat(topics: Iterable<string>): void {
    for (const topic of topics) this.#due.add(topic);
    this.#node.broker.later("digests", this.#digests());
  }

  /** Makes each digest when it is sent, so that it says what is true then. */
  *#digests(): Generator<Sending> {
    for (const topic of this.#due) {
      this.#due.delete(topic);
      const said = this.#said.get(topic);
      const number = this.#members.numberOf(topic);
      const { epoch = "", offset = "" } = said?.position ?? {};
      if (said?.repeats === DIGESTS_MS.length) this.#forget(said);
      if (number !== undefined || epoch !== "")
        yield [`t:${topic}`, frameOf(Kind.Digest, [this.#node.id, number ?? "", epoch, offset])];
    }
  }

  /** This node has changed something of a topic. */
  #changed(topic: string, position?: Position): void {
    if (this.isClosed) return;
    const said = this.#said.get(topic) ?? this.#makeSaid(topic);
    this.#said.set(topic, said);
    unlink(said);
    this.#lastSaid.add(said);
    if (this.#said.size > MAX_SAID) this.#forget(this.#lastSaid.first!);
    // Two publications may be acknowledged in another order.
    const isOlder =
      position === undefined || (position.epoch === said.position?.epoch && position.offset < said.position.offset);
    if (!isOlder) said.position = position;
    this.#begin(said);
  }

  #makeSaid(topic: string): Said {
    const timer = { deadline: 0, expire: () => this.#repeatSaid(said) };
    const said: Said = { topic, timer, repeats: 0, position: undefined };
    return said;
  }

  #begin(said: Said): void {
    said.repeats = 0;
    setDeadline(said.timer, DIGESTS_MS[0]!);
  }

  #repeatSaid(said: Said): void {
    // Begun again when the connection is up.
    if (!this.#node.broker.isUp) return;
    const [before, next] = DIGESTS_MS.slice(said.repeats++);
    if (next !== undefined) setDeadline(said.timer, next - before!);
    this.#repeat([said.topic]);
  }

  /** What this node has said of a topic is repeated no more. */
  #forget(said: Said): void {
    const { topic, timer } = said;
    clearDeadline(timer);
    unlink(said);
    this.#said.delete(topic);
    this.#members.forget(topic);
    // The digest of a topic with members is still due, if it has not been sent since the connection is up.
    if (this.#members.numberOf(topic) === undefined) this.#due.delete(topic);
  }

  protected make(name: string): FleetTopic {
    return new FleetTopic(name, this.#node, (topic) => this.#keep(topic));
  }

  /** The application adds a peer. If the peer is being joined, it gets what was queued for it. */
  added(name: string, peer: AnyPeer): void {
    this.topics.get(name)?.joining.get(peer)?.first?.release();
  }

  /** A peer left, or shall not join. */
  override left(name: string, peer: AnyPeer): void {
    for (const join of this.topics.get(name)?.joining.get(peer)?.toArray() ?? []) join.cancel();
    super.left(name, peer);
  }

  hide(name: string, peer: AnyPeer): void {
    for (const join of this.topics.get(name)?.joining.get(peer)?.toArray() ?? []) join.as = undefined;
    this.#hide(name, peer);
  }

  #hide(name: string, peer: AnyPeer): void {
    if (this.#members.remove(name, this.#node.addressOf(peer.id).localId)) this.#changed(name);
  }

  protected override end(topic: FleetTopic): void {
    topic.log?.stop();
    clearDeadline(topic.retry);
    this.#members.unfollow(topic.name);
    this.#node.broker.release(topic.channel);
  }

  /** Subscribes, and then reads the top of the log and asks for the members. */
  protected override begin(topic: FleetTopic): void {
    const { name } = topic;
    this.#node.broker.want(topic.channel);
    if (topic.logRule !== undefined) {
      const deliver = ({ method, text }: Publication): void => this.#send(name, method, text, topic.publicationOptions);
      topic.log = new TopicLog(name, topic.logRule, this.#node, this.#tails, deliver);
    }
    if (topic.memberRule !== undefined) this.#members.follow(name);
    // Without a connection, this is done when it is up.
    this.#keep(topic);
  }

  /** Prepares a topic, and tries again if that fails although the connection is up. */
  #keep(topic: FleetTopic): void {
    clearDeadline(topic.retry);
    this.#prepare(topic).catch(() => {
      if (topic.uses > 0 && this.#node.broker.isUp) setDeadline(topic.retry, RETRY_MS);
    });
  }

  async #prepare(topic: FleetTopic): Promise<void> {
    await this.#node.broker.ready(topic.channel);
    if (topic.uses > 0) await Promise.all([topic.log?.follow(), this.#know(topic)]);
  }

  /** The connection is up: what failed without it is done now. */
  up(): void {
    for (const said of this.#said.values()) this.#begin(said);
    for (const topic of this.topics.values()) this.#keep(topic);
  }

  /** Repeats the digests of all topics in which this node has members. */
  repeatAll(): void {
    this.#repeat(this.#members.ownTopics);
  }

  /** Messages of these channels may have been missed: heals their logs, and asks for their members. */
  resubscribed(channels: readonly Channel[]): void {
    const topics = channels.flatMap((channel) => (channel.startsWith("t:") && this.topics.get(channel.slice(2))) || []);
    const names = topics.map(({ name }) => name);
    // This node may have missed questions too.
    this.#repeat(names);
    this.#members.missed(names);
    for (const { log } of topics) void log?.heal();
  }

  lost(node: NodeName): void {
    this.#members.lost(node);
  }

  /** Takes a frame of a topic's channel. Returns false if it breaks a rule. */
  received(name: string, frame: ReadFrame): boolean {
    const topic = this.topics.get(name);
    const { kind, fields, body } = frame;
    switch (kind) {
      case Kind.Notify: {
        // The members on this node have got what it has sent.
        if (topic === undefined || fields[0] === this.#node.id) return true;
        const notification = notificationIn(body);
        if (notification !== undefined) this.#send(name, notification.method, body, this.#node.optionsOf(fields));
        return notification !== undefined;
      }
      case Kind.Union:
        return this.ofUnion(frame);
      case Kind.Log: {
        const position = placeIn(fields[0], fields[1]);
        if (position === undefined || position.offset === 0) return topic === undefined;
        topic?.log?.received(position.epoch, position.offset, body);
        return true;
      }
      case Kind.Digest: {
        const position = placeIn(fields[2], fields[3]);
        if (position !== undefined) topic?.log?.reaches(position);
        return fields[1] === "" || this.ofMembers(name, frame);
      }
      case Kind.Joined:
      case Kind.Left:
      case Kind.Question:
        return this.ofMembers(name, frame);
      default:
        return false;
    }
  }

  /** Takes a notification of another node to several topics. Returns false if it breaks a rule. */
  ofUnion({ fields, body }: ReadFrame): boolean {
    if (fields[0] === this.#node.id) return true;
    const end = body.indexOf("\n");
    const names = parsed(body.slice(0, end));
    if (!isNames(names)) return false;
    const [topics, excepted] = names;
    // Most nodes have no member of most topics.
    if (topics?.some((name) => this.topics.has(name)) === false) return true;
    const text = body.slice(end + 1);
    const notification = notificationIn(text);
    if (notification === undefined) return false;
    const { host } = this.#node;
    const peers = topics === null ? host.peers : new Set(topics.flatMap((name) => [...host.membersOf(name)]));
    const options = this.#node.optionsOf(fields, excepted);
    host.send(peers, notification.method, text, options);
    this.queue(topics ?? [], notification.method, text, options);
    return true;
  }

  /** Takes a frame that concerns the members of a topic, of its channel or of the inbox. Returns false if it breaks a rule. */
  ofMembers(name: string, frame: ReadFrame): boolean {
    return this.#members.received(name, frame);
  }

  /** Sends a message to the members on this node, and to the peers that join. */
  #send(name: string, method: string, message: MessageText, options: SendOptions): void {
    this.#node.host.send(this.#node.host.membersOf(name), method, message, options);
    this.queue([name], method, message, options);
  }

  /** Queues a message to these topics for the peers that are about to join one of them and are in none, once for each. */
  queue(names: readonly string[], method: string, message: MessageText, options: SendOptions): void {
    const { host } = this.#node;
    const reached = new Set<AnyPeer>();
    for (const name of names)
      for (const [peer, joins] of this.topics.get(name)?.joining ?? []) {
        if (reached.has(peer) || names.some((one) => host.membersOf(one).has(peer))) continue;
        if (joins.first!.queue(method, message, options)) reached.add(peer);
      }
  }

  protected async enter(topic: FleetTopic, peer: AnyPeer, since?: Position, as?: string): Promise<Joined> {
    // A peer joins once at a time: the second join finds a member.
    const joins = topic.joining.get(peer) ?? new List<Join>();
    topic.joining.set(peer, joins);
    const join = new Join(peer, as, topic, this.#node.host);
    joins.add(join);
    if (join !== joins.first) await (join.before as Join).settled;
    try {
      return await this.#join(topic, join, since);
    } finally {
      unlink(join);
      if (joins.first === undefined) topic.joining.delete(peer);
      join.settle();
    }
  }

  async #join(topic: FleetTopic, join: Join, since: Position | undefined): Promise<Joined> {
    const { broker } = this.#node;
    const { name, log } = topic;
    const { peer } = join;
    const localId = this.#node.addressOf(peer.id).localId;
    await broker.ready(topic.channel);
    // The client may have more than this node, if another node was faster.
    await log?.follow(since);
    if (join.as !== undefined) await this.#know(topic);
    // It may have been hidden meanwhile.
    const { as } = join;
    if (as !== undefined) {
      if (!this.#members.has(name, localId)) topic.checkRoom(this.#members.sizeOf(name));
      join.checkPresent();
      if (this.#members.put(name, localId, as)) this.#changed(name);
    }
    try {
      return await join.enter(since);
    } catch (error) {
      if (as !== undefined && !this.#node.host.membersOf(name).has(peer)) this.#hide(name, peer);
      throw error;
    } finally {
      // Also if the join has failed after the application added the peer.
      if (join.refusedBytes > 0 && this.#node.host.membersOf(name).has(peer)) topic.missed(join.refusedBytes);
    }
  }

  protected async append(topic: FleetTopic, { method, body, rule, key, timeoutMs }: Entry): Promise<Position> {
    const { name } = topic;
    const { broker } = this.#node;
    const bytes = utf8Bytes(body) + HEAD_BYTES;
    const check = (): void => {
      const { maxFrameBytes } = broker;
      if (bytes > maxFrameBytes) throw new TooLargeError(method, bytes, maxFrameBytes);
    };
    check();
    let isUnread = false;
    const append = async (): Promise<Position> => {
      check();
      isUnread = this.#isUnread(name);
      return broker.connection.log!.append(name, body, rule, key);
    };
    try {
      const position = await broker.run(bytes, timeoutMs, append, () => this.#untilFollowed(name));
      this.#changed(name, position);
      return position;
    } catch (error) {
      if ((error as EngineError).outcome === "not-sent") isUnread = false;
      throw error;
    } finally {
      if (isUnread) this.#node.gap(name, "a publication was logged before this node could read the log");
    }
  }

  /**
   * Resolves when this node follows the log of a topic, so that the members that were added before get the next publication too, or when
   * that has failed: then the publication is logged nevertheless, and is a gap. Returns the same promise until then, so that publications
   * keep their order. `undefined`: none need wait.
   */
  #untilFollowed(name: string): Promise<void> | undefined {
    const topic = this.topics.get(name);
    if (topic === undefined || topic.log!.position !== undefined) return topic?.following;
    topic.following ??= this.#node.broker
      .ready(topic.channel)
      .then(() => topic.log!.follow())
      .catch(() => {})
      // Before those that wait for it.
      .finally(() => (topic.following = undefined));
    return topic.following;
  }

  /** Returns true if the members of this node miss what is logged now, because the node does not follow the log yet. */
  #isUnread(name: string): boolean {
    const log = this.topics.get(name)?.log;
    return log !== undefined && log.position === undefined && this.#node.host.membersOf(name).size > 0;
  }

  protected page(...question: Parameters<FleetNode["read"]>): Promise<LogPart> {
    return this.#node.read(...question);
  }

  protected async list(topic: FleetTopic, limit: number): Promise<TopicMember[]> {
    await this.#node.broker.ready(topic.channel);
    await this.#know(topic);
    const members = [...this.#members.list(topic.name)].slice(0, limit);
    return members.map(([node, localId, as]) => memberOf(this.#node.idOf({ node, localId }), as));
  }

  /** Asks the other nodes for their members in a topic that is subscribed, once. */
  async #know(topic: FleetTopic): Promise<void> {
    if (topic.memberRule === undefined || this.#members.isKnown(topic.name)) return;
    await (topic.asking ??= this.#ask(topic));
  }

  async #ask(topic: FleetTopic): Promise<void> {
    const { name, channel } = topic;
    const { broker } = this.#node;
    // Another topic of this name may have its own question by the time that this one is sent or answered.
    const isUsed = (): boolean => this.topics.get(name) === topic;
    const timer = { deadline: 0, expire: () => this.#members.enough(name) };
    const answered = new Promise<void>((resolve) => {
      const frame = this.#members.ask(name, resolve);
      void this.#node.questions.run(async () => {
        try {
          const count = await broker.now(() => broker.connection.send(channel, frame));
          if (count !== undefined && isUsed()) this.#members.counted(name, count);
        } catch {
          // Too much is unanswered, or the connection is lost. The question is asked again behind other work.
          this.#members.missed([name]);
        }
        if (isUsed() && !this.#members.isKnown(name)) setDeadline(timer, ANSWERS_MS);
      });
    });
    await answered;
    clearDeadline(timer);
  }

  override close(): void {
    super.close();
    clearDeadline(this.#tick);
    for (const { timer } of this.#said.values()) clearDeadline(timer);
    for (const topic of this.topics.values()) this.end(topic);
    this.topics.clear();
  }
}

/** Returns true for the names of a notification to several topics, as a frame has them. */
function isNames(value: unknown): value is [topics: string[] | null, excepted: string[]] {
  return Array.isArray(value) && (value[0] === null || isList(value[0])) && isList(value[1]);
}

function isList(value: unknown): boolean {
  return Array.isArray(value) && value.every((name) => typeof name === "string");
}

/** Returns the position in two fields; `undefined` if there is none. */
function placeIn(epoch: string | undefined, offset = ""): Position | undefined {
  return epoch === undefined || epoch === "" ? undefined : positionOf(`${epoch}.${offset}`);
}

/** The longest head of the frame of an entry, and what is inserted for `at`. */
const HEAD_BYTES = 256;
