/**
 * Subscriptions: a call answers with an id, and notifications that name it follow, as in Ethereum's `eth_subscribe`.
 *
 * A client learns the id from the reply. A push that comes before it names nothing that the client knows. One that the
 * client reads in the same turn may come before the code that awaited the reply listens. Hence the rule kept here: the first
 * push leaves when the client has read the reply. Where that cannot be found out, it leaves a macrotask after the reply.
 */
import { customAlphabet } from "nanoid";
import { encodeNotification } from "../core/codec.js";
import { callOf } from "../core/incoming-call.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ErrorCode, expected, RpcError } from "../core/errors.js";
import { mergeLimits } from "../core/limits.js";
import { isId } from "../core/message.js";
import { anyFunction, checkOptions, must, optional } from "../core/options.js";

/** What a subscription is named by. */
export type SubscriptionId = string | number;

/** Bounds on the subscriptions of one kind. */
export interface SubscriptionLimits {
  /** Most that one peer has open. Opening more throws an `RpcError` of code -32006. Default 1,024; `Infinity` turns it off. */
  maxPerPeer: number;
  /**
   * Most pushes that wait for the reply, for each subscription. Until the reply has left, further ones are not taken; after
   * that, a further one sends those that wait without more delay. Default 256; `Infinity` turns it off.
   */
  maxHeld: number;
}

/** How the subscriptions of one kind are named, sent and bounded. */
export interface SubscriptionsOptions {
  /** The method of each push, such as `"eth_subscription"`. Its params are `{ subscription: id, result }`. */
  method: string;
  /** Makes the id of each new subscription; it must not repeat within a peer. Default: `0x` and 32 random hexadecimal digits. */
  nextId?: (() => SubscriptionId) | undefined;
  limits?: Partial<SubscriptionLimits> | undefined;
}

/** One open subscription. Its members survive destructuring. */
export interface Subscription<T = any> {
  /** What the call is to be answered with. */
  readonly id: SubscriptionId;
  /** Aborts when the subscription ends, however it does: stop producing then. */
  readonly signal: AbortSignal;
  /**
   * Pushes; `undefined` arrives as `null`. Whether it was taken: false once the subscription or the peer is over, and while
   * `maxHeld` pushes wait for the reply to leave. Throws a `TypeError` for what cannot be encoded.
   */
  readonly notify: (result: T) => boolean;
  /** Ends it from this side, and says whether it was open. Nothing is sent, what is held included. */
  readonly close: () => boolean;
}

/** What is needed of the peer that a context names. */
interface Subscriber {
  readonly state: string;
  readonly closed: Promise<unknown>;
  notify(method: string, params: object): boolean;
  on(event: "lost", listener: () => void): unknown;
}

/** How long the first push waits at most for a client to say that it has read the reply. Not every client answers pings. */
const READ_WAIT_MS = 1000;

const DEFAULT_LIMITS: SubscriptionLimits = { maxPerPeer: 1024, maxHeld: 256 };

/** Some 125 random bits, without the digit 0: Ethereum's numbers have no leading zeros. */
const hexDigits = customAlphabet("123456789abcdef", 32);

const OPTIONS = {
  method: must<string>("a string", (value) => typeof value === "string"),
  nextId: optional<() => SubscriptionId, () => SubscriptionId>(anyFunction, () => `0x${hexDigits()}`),
  limits: (value: unknown) => mergeLimits(DEFAULT_LIMITS, value as Partial<SubscriptionLimits>),
};

/**
 * The open subscriptions of one kind, over all peers. It works on any link, and asks nothing of the other side.
 *
 * ```js
 * const heads = new Subscriptions({ method: "eth_subscription" });
 * const methods = {
 *   eth_subscribe(_params, context) {
 *     const { id, notify, signal } = heads.open(context);
 *     chain.on("head", notify);
 *     signal.addEventListener("abort", () => chain.off("head", notify));
 *     return id;
 *   },
 *   eth_unsubscribe: ([id], { peer }) => heads.close(peer, id),
 * };
 * ```
 */
export class Subscriptions<T = any> {
  readonly #method: string;
  readonly #nextId: () => SubscriptionId;
  readonly #limits: SubscriptionLimits;
  readonly #ofPeers = new WeakMap<object, Map<unknown, Subscription<T>>>();
  #size = 0;

  /** Throws a `TypeError` for a bad option, naming it, the rule and the value. */
  constructor(options: SubscriptionsOptions) {
    const { method, nextId, limits } = checkOptions("options", options, OPTIONS);
    this.#method = method;
    this.#nextId = nextId;
    this.#limits = limits;
  }

  /** How many are open, over all peers. */
  get size(): number {
    return this.#size;
  }

  /**
   * Opens a subscription for whoever called. To be called in the handler, before it answers; the handler then answers with
   * the id. What is pushed before the client has read that reply is held, and follows in order. The client is asked by a
   * WebSocket ping, and waited for 1 s. On a transport without pings, what is held follows a macrotask after the reply.
   * Where the call came in a batch, the reply is that to all of it. `peer.notify` itself holds nothing.
   *
   * It ends when it is closed, when the peer closes or its session is lost, and when the call is answered with an error, for
   * then nobody knows the id. One that is opened for a notification, or after the peer closed, is over from the start.
   *
   * Throws an `RpcError`, for the handler to let through: of code -32006 when the peer has `maxPerPeer` open, of -32601 when
   * it came by HTTP POST and nothing can be pushed to it. Throws a `TypeError`
   * for what is not a handler's context and for a `nextId` that is unusable; an `Error` when the call is answered already.
   */
  open(context: { readonly peer: object; readonly method: string }): Subscription<T> {
    const call = callOf(context);
    if (call === undefined) throw expected("context", "the context that a handler is given", context);
    const { connection } = call.calls;
    const cause = connection.answersOnly;
    if (cause !== undefined)
      throw new RpcError(ErrorCode.MethodNotFound, "Notifications not supported", undefined, { cause });
    const peer = context.peer as Subscriber;
    const ofPeer = this.#of(peer);
    const { maxPerPeer, maxHeld } = this.#limits;
    if (ofPeer.size >= maxPerPeer) {
      throw new RpcError(ErrorCode.TooManySubscriptions, "Too many subscriptions", { maxPerPeer });
    }
    const id = this.#nextId();
    if (!isId(id) || id === null || ofPeer.has(id)) throw expected("nextId()", "an id that is not in use", id);
    const subscription = new OpenSubscription<T>(peer, this.#method, id, maxHeld, () => {
      ofPeer.delete(id);
      this.#size--;
    });
    call.onReply((isResult) => {
      if (isResult) subscription.release((then) => connection.transport.afterRead?.(then) ?? false);
      else subscription.close();
    });
    ofPeer.set(id, subscription);
    this.#size++;
    if (call.id === undefined || peer.state === "closed") subscription.close();
    return subscription;
  }

  /** Ends the subscription that this peer knows by `id`, and says whether it had one: the answer to an unsubscribing call. */
  close(peer: object, id: unknown): boolean {
    return this.#ofPeers.get(peer)?.get(id)?.close() ?? false;
  }

  #of(peer: Subscriber): Map<unknown, Subscription<T>> {
    const known = this.#ofPeers.get(peer);
    if (known !== undefined) return known;
    const ofPeer = new Map<unknown, Subscription<T>>();
    this.#ofPeers.set(peer, ofPeer);
    const endAll = (): void => {
      for (const subscription of ofPeer.values()) subscription.close();
    };
    void peer.closed.then(endAll);
    peer.on("lost", endAll);
    return ofPeer;
  }
}

class OpenSubscription<T> implements Subscription<T> {
  readonly id: SubscriptionId;
  readonly #peer: Subscriber;
  readonly #method: string;
  readonly #maxHeld: number;
  readonly #onEnd: () => void;
  readonly #ended = new AbortController();
  /** The params of what waits for the reply to be read; `undefined` once everything has left. */
  #held: object[] | undefined = [];
  #hasReplied = false;
  /** Ends the wait for the client to read the reply. */
  readonly #wait: Expiring = { deadline: 0, expire: () => this.#flush() };

  constructor(peer: Subscriber, method: string, id: SubscriptionId, maxHeld: number, onEnd: () => void) {
    this.#peer = peer;
    this.#method = method;
    this.id = id;
    this.#maxHeld = maxHeld;
    this.#onEnd = onEnd;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  readonly notify = (result: T): boolean => {
    if (this.#ended.signal.aborted || this.#peer.state === "closed") return false;
    const params = { subscription: this.id, result: result === undefined ? null : result };
    if (this.#held !== undefined && this.#held.length >= this.#maxHeld) {
      if (!this.#hasReplied) return false;
      this.#flush();
    }
    if (this.#held === undefined) return this.#peer.notify(this.#method, params);
    // A copy of what it is now; and what cannot be encoded is thrown at whoever pushes it.
    this.#held.push((JSON.parse(encodeNotification(this.#method, params)) as { params: object }).params);
    return true;
  };

  readonly close = (): boolean => {
    if (this.#ended.signal.aborted) return false;
    clearDeadline(this.#wait);
    this.#held = undefined;
    this.#onEnd();
    this.#ended.abort();
    return true;
  };

  /** Takes note that the reply has left. `afterRead`: see `Transport`. */
  release(afterRead: (then: () => void) => boolean): void {
    if (this.#ended.signal.aborted) return;
    this.#hasReplied = true;
    setDeadline(this.#wait, afterRead(() => this.#flush()) ? READ_WAIT_MS : 0);
  }

  /** What is pushed meanwhile, by an `around`, comes last; and one that closes this leaves nothing to send. */
  #flush(): void {
    clearDeadline(this.#wait);
    for (let next; (next = this.#held?.shift()) !== undefined;) this.#peer.notify(this.#method, next);
    this.#held = undefined;
  }
}
