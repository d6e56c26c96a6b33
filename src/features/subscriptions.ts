/**
 * Subscriptions: a call returns an id, and notifications with that id follow, as in Ethereum's `eth_subscribe`.
 *
 * A client learns the id from the response. A push that arrives before the response names an unknown id. A push that the client
 * reads in the same tick can arrive before the code that awaited the response listens. So the first push is sent when the client
 * has read the response. If the transport cannot find that out, the push is sent a macrotask after the response.
 */
import { customAlphabet } from "nanoid";
import { checkForms } from "../message/codec.js";
import { encodeNotification } from "../message/text.js";
import { onReply } from "../peer/incoming-call.js";
import { callOf } from "../peer/incoming-calls.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { ErrorCode, expected, RpcError } from "../message/errors.js";
import { limitChecks } from "../message/limits.js";
import { isId } from "../message/message.js";
import { anyFunction, checkOptions, must, optional } from "../message/options.js";
import { synchronous } from "../base/promises.js";
import type { AnyPeer } from "../peer/peer.js";

/** The id of a subscription. */
export type SubscriptionId = string | number;

/** Bounds on the subscriptions of one kind. */
export interface SubscriptionLimits {
  /** Most subscriptions that one peer has open. Opening more throws an `RpcError` of code -32006. Default 1,024; `Infinity`: no limit. */
  maxPerPeer: number;
  /**
   * Most pushes of a subscription that are queued until the response is read. Until the response is sent, further pushes are
   * refused. After that, a further push sends the queued pushes at once. Default 256; `Infinity`: no limit.
   */
  maxQueued: number;
}

/** How the subscriptions of one kind are named, sent and bounded. */
export interface SubscriptionsOptions {
  /** The method of each push, such as `"eth_subscription"`. Its params are `{ subscription: id, result }`. */
  method: string;
  /** Makes the id of each new subscription. An id must not repeat within a peer. Not asynchronous. Default: `0x` and 32 random hexadecimal digits. */
  nextId?: (() => SubscriptionId) | undefined;
  limits?: Partial<SubscriptionLimits> | undefined;
}

/** One open subscription. Its members survive destructuring. */
export interface Subscription<T = any> {
  /** What the handler must return. */
  readonly id: SubscriptionId;
  /** Aborts when the subscription ends, for whatever reason. Stop producing then. */
  readonly signal: AbortSignal;
  /**
   * Pushes a value; `undefined` arrives as `null`. Returns false, and pushes nothing, once the subscription or the peer has
   * ended, and while `maxQueued` pushes are queued before the response is sent. Throws a `TypeError` for a value that cannot be encoded.
   */
  readonly notify: (result: T) => boolean;
  /** Ends the subscription from this side. Returns whether it was open. Drops queued pushes. */
  readonly close: () => boolean;
}

/** How long the first push waits at most for the client to have read the response. Not every client answers pings. */
const READ_WAIT_MS = 1000;

const DEFAULT_LIMITS: SubscriptionLimits = { maxPerPeer: 1024, maxQueued: 256 };

/** Some 125 random bits, without the digit 0: Ethereum's numbers have no leading zeros. */
const hexDigits = customAlphabet("123456789abcdef", 32);

const OPTIONS = {
  method: must<string>("a string", (value) => typeof value === "string"),
  nextId: optional<() => SubscriptionId, () => SubscriptionId>(anyFunction, () => `0x${hexDigits()}`),
  limits: (value: unknown) => checkOptions("limits", value as object | undefined, limitChecks(DEFAULT_LIMITS)),
};

/**
 * The open subscriptions of one kind, over all peers. Works on any link, and needs nothing of the other side.
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

  /** How many subscriptions are open, over all peers. */
  get size(): number {
    return this.#size;
  }

  /**
   * Opens a subscription for the caller. Call it in the handler, before the handler returns the id. Pushes are queued until
   * the client has read the response, and are then sent in order. A WebSocket ping finds out when that is: if no pong comes
   * within 1 s, they are sent then. On a transport without pings, they are sent a macrotask after the response. In a batch, the
   * response is the reply to the whole batch. `peer.notify` does not wait.
   *
   * The subscription ends when it is closed, when the peer closes or its session is lost, and when the call is answered with an
   * error, which does not carry the id. For a notification, or after the peer closed, it is over from the start.
   *
   * Throws an `RpcError`, which the handler should let through: -32006 if the peer has `maxPerPeer` subscriptions open, -32601
   * if the call came by HTTP POST, because nothing can be pushed to its peer. Throws a `TypeError` for a value that is no
   * handler's context and for an unusable id; an `Error` if the call is answered already.
   */
  open(context: { readonly peer: object; readonly method: string }): Subscription<T> {
    const known = callOf(context);
    if (known === undefined) throw expected("context", "the context that a handler is given", context);
    const { call, connection } = known;
    const cause = connection.outgoing.whyNoCalls?.reason;
    if (cause !== undefined)
      throw new RpcError(ErrorCode.MethodNotFound, "Notifications not supported", undefined, { cause });
    const peer = context.peer as AnyPeer;
    const ofPeer = this.#of(peer);
    const { maxPerPeer, maxQueued } = this.#limits;
    if (ofPeer.size >= maxPerPeer) {
      throw new RpcError(ErrorCode.TooManySubscriptions, "Too many subscriptions", { maxPerPeer });
    }
    const id = synchronous(this.#nextId(), "`nextId`");
    if (!isId(id) || id === null || ofPeer.has(id)) throw expected("nextId()", "an id that is not in use", id);
    const subscription = new OpenSubscription<T>(peer, this.#method, id, maxQueued, () => {
      ofPeer.delete(id);
      this.#size--;
    });
    onReply(call, (isResult) => {
      if (isResult) subscription.release((then) => connection.flow.afterRead(then));
      else subscription.close();
    });
    ofPeer.set(id, subscription);
    this.#size++;
    if (call.id === undefined || peer.state === "closed") subscription.close();
    return subscription;
  }

  /** Ends the subscription of this peer with that id. Returns true if there was one, as the handler that unsubscribes should. */
  close(peer: object, id: unknown): boolean {
    return this.#ofPeers.get(peer)?.get(id)?.close() ?? false;
  }

  #of(peer: AnyPeer): Map<unknown, Subscription<T>> {
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
  readonly #peer: AnyPeer;
  readonly #method: string;
  readonly #maxQueued: number;
  readonly #onEnd: () => void;
  readonly #ended = new AbortController();
  /** The params of the pushes that are queued until the response is read; `undefined` once they were sent. */
  #queued: object[] | undefined = [];
  #hasReplied = false;
  /** The deadline of the wait for the client to read the response. */
  readonly #wait: Expiring = { deadline: 0, expire: () => this.#flush() };

  constructor(peer: AnyPeer, method: string, id: SubscriptionId, maxQueued: number, onEnd: () => void) {
    this.#peer = peer;
    this.#method = method;
    this.id = id;
    this.#maxQueued = maxQueued;
    this.#onEnd = onEnd;
  }

  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  readonly notify = (result: T): boolean => {
    if (this.#ended.signal.aborted || this.#peer.state === "closed") return false;
    // The result is a member of the params, whose own members are not checked.
    checkForms(result);
    const params = { subscription: this.id, result: result === undefined ? null : result };
    if (this.#queued !== undefined && this.#queued.length >= this.#maxQueued) {
      if (!this.#hasReplied) return false;
      this.#flush();
    }
    if (this.#queued === undefined) return this.#peer.notify(this.#method, params);
    // A copy of the present value. A value that cannot be encoded throws here.
    this.#queued.push((JSON.parse(encodeNotification(this.#method, params)) as { params: object }).params);
    return true;
  };

  readonly close = (): boolean => {
    if (this.#ended.signal.aborted) return false;
    clearDeadline(this.#wait);
    this.#queued = undefined;
    this.#onEnd();
    this.#ended.abort();
    return true;
  };

  /** Notes that the response was sent. `afterRead`: see `Transport`. */
  release(afterRead: (then: () => void) => boolean): void {
    if (this.#ended.signal.aborted) return;
    this.#hasReplied = true;
    setDeadline(this.#wait, afterRead(() => this.#flush()) ? READ_WAIT_MS : 0);
  }

  /** Sends the queued pushes. A push that `around` makes meanwhile is sent last. If `around` closes the subscription, stops. */
  #flush(): void {
    clearDeadline(this.#wait);
    for (let next; (next = this.#queued?.shift()) !== undefined;) this.#peer.notify(this.#method, next);
    this.#queued = undefined;
  }
}
