/**
 * The members of topics on all nodes: a state machine without I/O. Each node is the only writer of its members. It sends each change on the
 * channel of the topic, with its number and that of the change before. A node that misses one asks the other node for its members.
 */
import type { Sending } from "./broker.js";
import type { Channel, NodeName } from "../topics/engine.js";
import { frameOf, isNodeName, Kind, type ReadFrame } from "./frames.js";
import { parsed } from "../topics/publication.js";

/** Changes of one node behind a missing one: more are not kept. */
const MAX_AHEAD = 1_000;
/** How long an answer may take until the question is repeated: twice as long each time, because the other node may have much to answer. */
const REPEAT_MS = 1_000;
const LONGEST_REPEAT_MS = 16_000;
/**
 * The length of one part of an answer, in UTF-16 code units, which have at most 3 bytes each as JSON. One member may be longer: it has at most
 * 8 KiB. And the longest head.
 */
const PART_LENGTH = 16_384;
const UNIT_BYTES = 3;
const HEAD_BYTES = 4_096;

/** Takes what the state machine decides. */
export interface MembersOutput {
  /** Sends a change. If it gets lost, the next one or a digest shows that. */
  send(channel: Channel, frame: string): void;
  /** Sends questions and answers, paced. A source replaces the one with the same key. */
  later(key: string, frames: Iterator<Sending>): void;
  /** Returns the longest frame, in bytes of UTF-8. */
  maxFrameBytes(): number;
  /** A node has given a sign. Returns false if the node has closed: then the sign is an old one. */
  noteSign(node: NodeName): boolean;
  /** A member joined, changed its `as` or left. `as`: JSON. */
  changed(topic: string, event: "joined" | "left", node: NodeName, localId: string, as: string): void;
  /** A question was asked: `tick` must be called from now on. */
  asked(): void;
}

/** A change of another node. `as`: `undefined` if the member left. */
interface Change {
  readonly number: number;
  /** The number of the change before; 0 if there was no member before. */
  readonly before: number;
  readonly localId: string;
  readonly as: string | undefined;
}

/** What this node has in a topic. */
interface Own {
  /** The number of the last change. */
  number: number;
  /** By local id: the `as` of each member. */
  readonly members: Map<string, string>;
}

/** What another node has in a topic, as this one knows. */
interface Known {
  readonly topic: string;
  readonly followed: Followed;
  readonly node: NodeName;
  number: number;
  readonly members: Map<string, string>;
  /** Changes behind a missing one, in their order. */
  ahead: Change[];
  /** The parts of an answer that have come. */
  parts: { readonly number: number; readonly next: number; readonly members: Map<string, string> } | undefined;
  /** The first tick after the question was sent, `Infinity` until then; `undefined` if nothing is missing. And after which time it is repeated. */
  askedAt: number | undefined;
  repeatMs: number;
}

/** The first question on the channel of a topic. */
interface Question {
  readonly answered: Set<NodeName>;
  /** How many nodes answer, if the broker has counted them. */
  count: number | undefined;
  done: () => void;
}

/** A topic that this node follows. */
interface Followed {
  readonly known: Map<NodeName, Known>;
  /** `undefined` when it was answered. Until then, members that are found are not reported. */
  question: Question | undefined;
}

/** The members of all topics, as one node sees them. Times are in milliseconds of its own clock. */
export class Members {
  readonly #node: NodeName;
  readonly #output: MembersOutput;
  /** By topic. Kept until the digest of the last change was repeated. */
  readonly #own = new Map<string, Own>();
  /** The number of the last change in any topic. */
  #number = 0;
  readonly #followed = new Map<string, Followed>();
  /** How often changes were missed. */
  #losses = 0;
  /** Those that were asked. */
  readonly #asked = new Set<Known>();

  constructor(node: NodeName, output: MembersOutput) {
    this.#node = node;
    this.#output = output;
  }

  /** Adds a member of this node, or changes its `as`. Returns false if that changes nothing. */
  put(topic: string, localId: string, as: string): boolean {
    const own = this.#own.get(topic) ?? { number: 0, members: new Map<string, string>() };
    if (own.members.get(localId) === as) return false;
    this.#own.set(topic, own);
    this.#change(topic, own, localId, as);
    return true;
  }

  /** Removes a member of this node. Returns false if it is none. */
  remove(topic: string, localId: string): boolean {
    const own = this.#own.get(topic);
    if (own?.members.has(localId) !== true) return false;
    this.#change(topic, own, localId, undefined);
    return true;
  }

  #change(topic: string, own: Own, localId: string, as: string | undefined): void {
    const before = own.members.size === 0 ? 0 : own.number;
    own.number = ++this.#number;
    const last = as ?? own.members.get(localId)!;
    if (as === undefined) own.members.delete(localId);
    else own.members.set(localId, as);
    const kind = as === undefined ? Kind.Left : Kind.Joined;
    this.#output.send(`t:${topic}`, frameOf(kind, [this.#node, own.number, before, localId], as));
    this.#output.changed(topic, as === undefined ? "left" : "joined", this.#node, localId, last);
  }

  /** Returns the number of this node's last change in a topic; `undefined` if it has forgotten the topic. */
  numberOf(topic: string): number | undefined {
    return this.#own.get(topic)?.number;
  }

  /** The topics in which this node has or had members. */
  get ownTopics(): Iterable<string> {
    return this.#own.keys();
  }

  /** Forgets a topic in which this node has no members. */
  forget(topic: string): void {
    if (this.#own.get(topic)?.members.size === 0) this.#own.delete(topic);
  }

  /** Begins to follow a topic: its channel is or will be subscribed. */
  follow(topic: string): void {
    const question = { answered: new Set<NodeName>(), count: undefined, done: () => {} };
    this.#followed.set(topic, { known: new Map(), question });
  }

  unfollow(topic: string): void {
    const followed = this.#followed.get(topic);
    this.#followed.delete(topic);
    for (const known of followed?.known.values() ?? []) this.#confirm(known);
    followed?.question?.done();
  }

  /** Whether the first question about a topic was answered. */
  isKnown(topic: string): boolean {
    return this.#followed.get(topic)?.question === undefined;
  }

  /** Returns the first question about a topic, for its channel. `done` is called once, when all have answered. */
  ask(topic: string, done: () => void): string {
    this.#followed.get(topic)!.question!.done = done;
    return this.#question(topic);
  }

  /** So many nodes have received the first question, with this one. */
  counted(topic: string, count: number): void {
    const followed = this.#followed.get(topic);
    if (followed?.question !== undefined) followed.question.count = count;
    if (followed !== undefined) this.#check(followed);
  }

  /** Waits no longer for answers to the first question. */
  enough(topic: string): void {
    const followed = this.#followed.get(topic);
    if (followed !== undefined) this.#end(followed);
  }

  #check(followed: Followed): void {
    const { answered, count = Infinity } = followed.question ?? {};
    if (answered !== undefined && answered.size >= count - 1) this.#end(followed);
  }

  #end(followed: Followed): void {
    const { question } = followed;
    followed.question = undefined;
    question?.done();
  }

  /** Returns a question. `known`: the nodes whose members are known need not answer with the same again. */
  #question(topic: string, known: Iterable<readonly [NodeName, Known]> = []): string {
    const lines = Array.from(known, ([node, { number }]) => `${node} ${number}`);
    return frameOf(Kind.Question, [this.#node, topic], lines.join("\n"));
  }

  /** Changes of these topics may have been missed. Asks on their channels, and later those that do not answer there. */
  missed(topics: readonly string[]): void {
    const frames = function* (this: Members): Generator<Sending> {
      for (const topic of topics) {
        const followed = this.#followed.get(topic);
        if (followed === undefined) continue;
        for (const known of followed.known.values())
          if (known.members.size > 0) this.#await(known);
          else this.#confirm(known);
        yield [`t:${topic}`, this.#question(topic, followed.known)];
      }
    };
    this.#output.later(`missed ${++this.#losses}`, frames.call(this));
  }

  /** Repeats the questions that were not answered. Returns true if some are left. */
  tick(now: number): boolean {
    for (const known of this.#asked) {
      known.askedAt = Math.min(known.askedAt!, now);
      if (now - known.askedAt < known.repeatMs) continue;
      known.repeatMs = Math.min(known.repeatMs * 2, LONGEST_REPEAT_MS);
      this.#askNode(known);
    }
    return this.#asked.size > 0;
  }

  /** The node is asked now. */
  #await(known: Known): void {
    known.askedAt = Infinity;
    this.#asked.add(known);
    this.#output.asked();
  }

  #askNode(known: Known): void {
    known.askedAt = Infinity;
    // Until the question is sent, it is not repeated. If it is lost with the connection, `missed` asks again.
    this.#asked.delete(known);
    known.parts = undefined;
    const { topic, node } = known;
    const frames = function* (this: Members): Generator<Sending> {
      if (known.askedAt === undefined) return;
      this.#await(known);
      yield [`n:${node}`, this.#question(topic, [[node, known]])];
    };
    this.#output.later(`k ${node} ${topic}`, frames.call(this));
  }

  #confirm(known: Known): void {
    known.askedAt = undefined;
    known.repeatMs = REPEAT_MS;
    this.#asked.delete(known);
  }

  /** Answers with the members of this node. `known`: what the other node knows, a line for each node. */
  *#answer(to: NodeName, topic: string, known: string): Generator<Sending> {
    const own = this.#own.get(topic);
    const last = own?.number ?? this.#number;
    const frame = (part: number | "", isLast: boolean, body = ""): Sending => [
      `n:${to}`,
      frameOf(Kind.Members, [this.#node, topic, last, part, isLast ? 1 : 0], body),
    ];
    if (known.split("\n").includes(`${this.#node} ${last}`)) {
      yield frame("", true);
      return;
    }
    // A copy: all parts are of one moment.
    const members = [...(own?.members ?? [])];
    const most = Math.min(PART_LENGTH, (this.#output.maxFrameBytes() - HEAD_BYTES) / UNIT_BYTES);
    let [at, part] = [0, 0];
    do {
      const from = at;
      for (let length = 0; at < members.length; at++) {
        length += members[at]![0].length + members[at]![1].length;
        if (at > from && length > most) break;
      }
      yield frame(part++, at === members.length, JSON.stringify(members.slice(from, at)));
    } while (at < members.length);
  }

  /** Takes a frame of a topic's channel, or of the inbox. Returns false if it breaks a rule. */
  received(topic: string, { kind, fields, body }: ReadFrame): boolean {
    const [from = ""] = fields;
    if (!isNodeName(from)) return false;
    // What this node has sent came back.
    if (from === this.#node || !this.#output.noteSign(from)) return true;
    if (kind === Kind.Question) {
      this.#output.later(`m ${from} ${topic}`, this.#answer(from, topic, body));
      return true;
    }
    const number = wholeIn(fields[kind === Kind.Members ? 2 : 1]);
    if (number === undefined) return false;
    const known = this.#knownOf(topic, from);
    if (kind === Kind.Members) return known === undefined || this.#answered(known, number, fields.slice(3), body);
    if (kind === Kind.Digest) {
      if (number === known?.number && known.ahead.length === 0) this.#confirm(known);
      else if (known !== undefined && number > known.number) this.#miss(known);
      return true;
    }
    const before = wholeIn(fields[2]);
    const [, , , localId = ""] = fields;
    if (before === undefined || !isNodeName(localId)) return false;
    if (known === undefined) return true;
    const change = { number, before, localId, as: kind === Kind.Joined ? body : undefined };
    if (known.ahead.length < MAX_AHEAD) known.ahead.push(change);
    this.#applyAhead(known);
    return true;
  }

  /** Returns what is known of a node in a followed topic. */
  #knownOf(topic: string, node: NodeName): Known | undefined {
    const followed = this.#followed.get(topic);
    let known = followed?.known.get(node);
    if (followed !== undefined && known === undefined) {
      const nothing = { number: 0, members: new Map(), ahead: [], parts: undefined, askedAt: undefined };
      known = { topic, followed, node, ...nothing, repeatMs: REPEAT_MS };
      followed.known.set(node, known);
    }
    return known;
  }

  /** Changes of a node are missing. Asks it, unless it was asked. */
  #miss(known: Known): void {
    if (known.askedAt !== undefined) return;
    const { question } = known.followed;
    // It will answer the first question.
    if (question !== undefined && !question.answered.has(known.node)) this.#await(known);
    else this.#askNode(known);
  }

  /** Applies the changes that follow what is known. If one is missing, asks for the members. */
  #applyAhead(known: Known): void {
    const { ahead } = known;
    known.ahead = [];
    for (const change of ahead) {
      const { number, before, localId, as } = change;
      if (number <= known.number) continue;
      if (before !== known.number && before !== 0) {
        known.ahead.push(change);
        continue;
      }
      // There was no member before.
      if (before === 0) this.#replace(known, number, new Map());
      known.number = number;
      this.#set(known, localId, as);
    }
    if (known.ahead.length > 0) this.#miss(known);
    else this.#confirm(known);
  }

  #answered(known: Known, number: number, [partField, isLast]: readonly string[], body: string): boolean {
    if (partField !== "") {
      const [part, entries] = [wholeIn(partField), entriesIn(body)];
      if (part === undefined || entries === undefined) return false;
      const { parts } = known;
      const isNext = part === 0 || (parts?.number === number && parts.next === part);
      if (!isNext) return true;
      const members = part === 0 ? new Map(entries) : new Map([...parts!.members, ...entries]);
      known.parts = isLast === "1" ? undefined : { number, next: part + 1, members };
      if (isLast !== "1") return true;
      if (number > known.number) this.#replace(known, number, members);
    }
    // Nothing has changed since a question, but this node has given the other one up since.
    if (partField === "" && number !== known.number) return true;
    if (number >= known.number) this.#applyAhead(known);
    this.#markAnswered(known);
    return true;
  }

  /** A node has answered, or will not. */
  #markAnswered({ followed, node }: Known): void {
    followed.question?.answered.add(node);
    this.#check(followed);
  }

  /** Another node has these members in a topic. Reports the difference. */
  #replace(known: Known, number: number, members: ReadonlyMap<string, string>): void {
    known.number = number;
    for (const localId of known.members.keys()) if (!members.has(localId)) this.#set(known, localId, undefined);
    for (const [localId, as] of members) this.#set(known, localId, as);
  }

  /** A member of another node joined, changed or left. */
  #set({ topic, followed, node, members }: Known, localId: string, as: string | undefined): void {
    const before = members.get(localId);
    if (before === as) return;
    if (as === undefined) members.delete(localId);
    else members.set(localId, as);
    if (followed.question === undefined)
      this.#output.changed(topic, as === undefined ? "left" : "joined", node, localId, as ?? before!);
  }

  /** A node has ended, or was given up: its members leave. */
  lost(node: NodeName): void {
    for (const followed of this.#followed.values()) {
      const known = followed.known.get(node);
      if (known === undefined) continue;
      this.#confirm(known);
      followed.known.delete(node);
      this.#replace(known, known.number, new Map());
      this.#markAnswered(known);
    }
  }

  /** Returns how many members a followed topic has. */
  sizeOf(topic: string): number {
    let size = this.#own.get(topic)?.members.size ?? 0;
    for (const { members } of this.#followed.get(topic)?.known.values() ?? []) size += members.size;
    return size;
  }

  has(topic: string, localId: string): boolean {
    return this.#own.get(topic)?.members.has(localId) === true;
  }

  /** Yields the members of a followed topic, and last those of this node: the others may have members that are gone. `as`: JSON. */
  *list(topic: string): Generator<readonly [node: NodeName, localId: string, as: string]> {
    for (const [node, { members }] of this.#followed.get(topic)?.known ?? [])
      for (const [localId, as] of members) yield [node, localId, as];
    for (const [localId, as] of this.#own.get(topic)?.members ?? []) yield [this.#node, localId, as];
  }
}

/** Returns the whole number in a field. */
function wholeIn(field: string | undefined): number | undefined {
  return field !== undefined && /^\d{1,15}$/.test(field) ? Number(field) : undefined;
}

const isEntry = (one: unknown): boolean =>
  Array.isArray(one) && one.length === 2 && isNodeName(String(one[0])) && typeof one[1] === "string";

/** Returns the members in a part of an answer. */
function entriesIn(body: string): [localId: string, as: string][] | undefined {
  const entries = parsed(body);
  return Array.isArray(entries) && entries.every(isEntry) ? entries : undefined;
}
