/**
 * The peers of a principal on all nodes. A node is subscribed to the channel of a principal while it has a peer of it. So what is sent
 * there costs no other node.
 */
import { encodeNotification, plainText } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import type { NodeName } from "../topics/engine.js";
import { channelOf, frameOf, Kind, type ReadFrame } from "./frames.js";
import type { FleetNode } from "./node.js";
import { notificationIn, parsed, type Notification } from "../topics/publication.js";
import type { PrincipalCalls } from "../topics/remote.js";

/** How long the answers are waited for of nodes that the broker has not counted, and of those that it has. */
const UNCOUNTED_MS = 200;
const COUNTED_MS = 5_000;
/** How long a close is repeated. A client may take three times `handshakeTimeoutMs`, 10 s, until it has a peer. */
const REPEAT_MS = 30_000;

/** A question to the nodes of a principal, until it has ended. */
interface Question extends Expiring {
  /** How many answers end it: so many nodes have received it. `Infinity` until that is known, and while uncounted ones may answer. */
  count: number;
  end(): void;
  /** By node; null for this one, whose peers are known. */
  readonly answers: Map<NodeName, unknown>;
}

/** The principals of all nodes, as one node reaches them. */
export class Principals implements PrincipalCalls {
  readonly #node: FleetNode;
  readonly #questions = new Map<number, Question>();
  #lastNumber = 0;

  constructor(node: FleetNode) {
    this.#node = node;
  }

  notifyAll(principal: string, method: string, params: unknown): void {
    const { broker, id, own } = this.#node;
    const body = plainText(encodeNotification(method, params as object));
    broker.send(channelOf(principal), frameOf(Kind.Principal, [0, id, "notify", 0, principal], body));
    own.notifyAll(principal, method, params);
  }

  async find(principal: string): Promise<{ ids: Set<string>; isComplete: boolean }> {
    const asking = this.#ask(principal, "peers", 0, "null");
    const own = this.#node.own.idsOf(principal);
    const [answers, isComplete] = await asking;
    return { ids: new Set([...own, ...answers.flatMap(textsIn)]), isComplete };
  }

  async disconnect(principal: string, code: number, reason: string): Promise<{ closed: number; isComplete: boolean }> {
    const { closes, id, own } = this.#node;
    const at = performance.now();
    const body = JSON.stringify(reason);
    const asking = this.#ask(principal, "close", code, body);
    const closed = own.closeAll(principal, code, reason);
    // A node may have missed it, or get its first peer of the principal from a client that was authenticated before.
    const again = (): string =>
      frameOf(Kind.Principal, [0, id, "close", code, principal, performance.now() - at], body);
    void closes.send(channelOf(principal), again, REPEAT_MS, () => false);
    const [answers, isComplete] = await asking;
    return {
      closed: answers.reduce<number>((sum, one) => sum + (typeof one === "number" ? one : 0), closed),
      isComplete,
    };
  }

  /** Asks the nodes of a principal. Resolves with the answers, and with whether they are all. Never rejects. */
  #ask(principal: string, verb: "peers" | "close", code: number, body: string): Promise<[unknown[], boolean]> {
    const { broker, id, nodes } = this.#node;
    const number = ++this.#lastNumber;
    const frame = frameOf(Kind.Principal, [number, id, verb, code, principal], body);
    return new Promise((resolve) => {
      const answers = new Map<NodeName, unknown>();
      const end = (): void => {
        if (!this.#questions.delete(number)) return;
        clearDeadline(question);
        resolve([[...answers.values()], answers.size >= question.count && !nodes.isBeatMissing(performance.now())]);
      };
      const question: Question = { deadline: 0, expire: end, end, count: Infinity, answers };
      this.#questions.set(number, question);
      const taken = (count: number | undefined): void => {
        if (!this.#questions.has(number)) return;
        question.expire = () => {
          question.count = count ?? 0;
          question.expire = end;
          setDeadline(question, COUNTED_MS);
          this.#check(question);
        };
        if (count !== undefined && broker.facts?.undercounts !== true) question.expire();
        else setDeadline(question, UNCOUNTED_MS);
      };
      broker.now(() => broker.connection.send(channelOf(principal), frame)).then(taken, end);
    });
  }

  #check(question: Question): void {
    if (question.answers.size >= question.count) question.end();
  }

  /** Takes a frame about a principal. Returns false if it breaks a rule. */
  received({ kind, fields, body }: ReadFrame): boolean {
    const { broker, id, own } = this.#node;
    const [numberField, from = "", verb, code, principal, ageMs = 0] = fields;
    const number = Number(numberField);
    const value = verb === "notify" ? notificationIn(body) : parsed(body);
    if (!Number.isSafeInteger(number) || from === "" || value === undefined) return false;
    if (kind === Kind.PeersOf || from === id) {
      const question = this.#questions.get(number);
      question?.answers.set(from, from === id ? null : value);
      if (question !== undefined) this.#check(question);
      return true;
    }
    if (principal === undefined) return false;
    if (verb === "notify") {
      const { method, params } = value as Notification;
      own.notifyAll(principal, method, params);
      return true;
    }
    const reason = typeof value === "string" ? value : "";
    const until = performance.now() - Number(ageMs);
    const answer = verb === "close" ? own.closeAll(principal, Number(code), reason, until) : own.idsOf(principal);
    // One that is repeated is not answered.
    if (number > 0) broker.send(`n:${from}`, frameOf(Kind.PeersOf, [number, id], JSON.stringify(answer)));
    return true;
  }

  /** Ends all questions. */
  end(): void {
    for (const question of this.#questions.values()) question.end();
  }
}

/** Returns the texts that another node has sent; none for any other value. */
function textsIn(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}
