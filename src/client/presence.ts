/** Presence: the list of the members of a topic, which this side keeps current, and its own state in that list. */
import type { Contract, GivenParams, PresenceParams } from "../contract/contract.js";
import { encodeNotification } from "../message/codec.js";
import { InvalidParams } from "../message/codes.js";
import { ConnectionLostError, isApplicationError, type RpcError } from "../message/errors.js";
import { any, anyFunction, checkOptions, optional } from "../message/options.js";
import type { AnyPeer, Peer } from "../peer/peer.js";
import { Backoff } from "./backoff.js";
import { leaveLast, Store, type FollowedValue, type TopicState } from "./follow.js";

/** The params of a method that `presence` calls: those of the application. */
export type PresentParams<M> = Omit<GivenParams<M>, "presence" | "state">;

/** The state of a member, as a method takes it. */
export type MemberState<M> = 0 extends 1 & GivenParams<M>
  ? any
  : GivenParams<M> extends { state?: infer S }
    ? Exclude<S, undefined>
    : never;

/** A member of the list that a method returns: `{ id, as }`. */
export type Other<M> = 0 extends 1 & FollowedValue<M>
  ? any
  : FollowedValue<M> extends { members: readonly (infer T)[] }
    ? T
    : never;

/** The options of `presence`. `O`: a member, `S`: the state of this side. */
export interface PresenceOptions<O, S> {
  /** The state with which the peer joins. Default: none. */
  state?: S | undefined;
  /**
   * Returns what tells people apart, for example the name of a user: of several members with the same, the store shows the last one in the
   * list, and none with that of this peer. Must not throw. Default: the `id`, so that each connection is a person.
   */
  by?: ((member: O) => unknown) | undefined;
}

/** What a presence shows. `O`: a member, `S`: the state of this side. */
export interface PresenceState<O, S> {
  /**
   * The other members, each once. Empty until the list is loaded, and not changed while it is not current. The array is the same until it
   * changes.
   */
  readonly others: readonly O[];
  /** The state of this side, as it was set last. */
  readonly me: S | undefined;
  /** Whether the list is loaded, the peer is open, and no change is known to be missing. */
  readonly isCurrent: boolean;
  /** Why the list is not current, if its last join has failed, or the peer is closed. `undefined` otherwise. */
  readonly error: unknown;
}

/** A store of the list of members, as `useSyncExternalStore` and the stores of other frameworks read it. Its functions need no `this`. */
export interface Presence<O, S> extends Disposable {
  /** Returns what is shown at present. The object is the same until something changes. */
  readonly get: () => PresenceState<O, S>;
  /**
   * Calls `listener` after changes: once for all changes of one microtask. Returns a function that ends that. What the listener throws
   * is emitted as `error` of the peer.
   */
  readonly subscribe: (listener: () => void) => () => void;
  /**
   * Replaces the state of this side by another value or object. The server gets it at once, or when it has answered the one before. While the list is not current,
   * and while the server has not answered, only the newest state is kept. If the call fails, the peer emits `error`, and the newest state
   * is sent again after 0 s, and then after 0.25 to 5 s. If the handler has thrown an `RpcError` with a code of its own, outside -32768 to
   * -32000, or the params are invalid (-32602), the state is refused: it is sent again only by a join. Throws a `TypeError` for a state
   * without a JSON form. After `close`, the server does not get it.
   */
  readonly set: (state: S) => void;
  /** Stops, and leaves the list, unless another store of the peer has the same method and params. Does nothing the second time. */
  readonly close: () => void;
}

/** The list, as the server sends it. */
interface List {
  readonly id: string;
  readonly members: readonly { readonly id: string }[];
}

/**
 * Joins a list of members, and keeps it current. Calls `method` with `params` and with those of `PresenceParams`; the handler decides who
 * may join, and returns what `topic.present` resolves with. Calls it again after `lost` and `missed`, with the newest state of this side.
 *
 * The changes of the list come by the event `notification`, so no handler and no `fallback` of the peer may take them. What happens if the call
 * fails and if the peer closes is the same as for `follow`. Throws a `TypeError` for bad options, for params or a state without a JSON form,
 * and for a peer with a `fallback`.
 */
export function presence<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: PresentParams<S[K]>,
  options?: PresenceOptions<Other<S[K]>, MemberState<S[K]>>,
): Presence<Other<S[K]>, MemberState<S[K]>>;
export function presence(peer: AnyPeer, method: string, params: object, options?: object): Presence<any, any> {
  const { state, by } = checkOptions("options", options, { state: any, by: optional(anyFunction, idOf) });
  return new PresenceStore(peer, method, params, state, by);
}

/** What `presence` returns. */
class PresenceStore implements Presence<any, any> {
  readonly #peer: AnyPeer;
  readonly #method: string;
  readonly #params: object;
  readonly #by: (member: any) => unknown;
  readonly #list: Store;
  #me: unknown;
  /** The params of the newest call, which has the state that the server has, or will have. `undefined` if that is not known. */
  #sent: PresenceParams | undefined;
  #isSending = false;
  readonly #backoff = new Backoff();
  /** What is shown, and the state of the list of which it was made. */
  #source: TopicState<List> | undefined;
  #shown: PresenceState<any, any> = { others: [], me: undefined, isCurrent: false, error: undefined };

  constructor(peer: AnyPeer, method: string, params: object, state: unknown, by: (member: any) => unknown) {
    this.#peer = peer;
    this.#method = method;
    this.#params = params;
    this.#by = by;
    this.#replace(state);
    this.#list = new Store(peer, {
      method,
      paramsAt: () => this.#take("join"),
      isState: (value) => Array.isArray((value as List | undefined)?.members),
      reducerOf: () => changed,
      count: () => leaveLast(peer, method, { ...params, presence: "leave" }),
    });
    this.subscribe(() => void this.#send());
  }

  readonly get = (): PresenceState<any, any> => {
    const [source, me] = [this.#list.get() as TopicState<List>, this.#me];
    if (source === this.#source && me === this.#shown.me) return this.#shown;
    const { value, isCurrent, error } = source;
    const others = value === this.#source?.value ? this.#shown.others : this.#othersIn(value!);
    this.#source = source;
    return (this.#shown = { others, me, isCurrent, error });
  };

  readonly subscribe = (listener: () => void): (() => void) => this.#list.subscribe(listener);

  readonly set = (state: unknown): void => {
    this.#replace(state);
    this.#list.listeners.notify();
  };

  readonly close = (): void => this.#list.close();

  [Symbol.dispose](): void {
    this.close();
  }

  #replace(state: unknown): void {
    // Throws for a state or params without a JSON form.
    encodeNotification(this.#method, { ...this.#params, state });
    this.#me = state;
  }

  /** Returns the params of a call, which has the newest state. */
  #take(kind: "join" | "set"): PresenceParams {
    return (this.#sent = { ...this.#params, presence: kind, state: this.#me });
  }

  /** Sends the newest state, unless the server has it, or has not answered the one before. A join sends it too. */
  async #send(): Promise<void> {
    const hasState = this.#sent !== undefined && this.#sent.state === this.#me;
    if (this.#isSending || hasState || !this.#list.get().isCurrent) return;
    this.#isSending = true;
    const call = this.#take("set");
    let isKnown = true;
    try {
      // Made again after a loss, it would replace the state of the join.
      const options = { timeoutMs: Infinity, retry: false } as const;
      await (this.#peer as Peer).request(this.#method, call, options);
      this.#backoff.succeeded();
      // The server may have run this call after a join that was sent later.
      isKnown = this.#sent === call;
    } catch (error) {
      // After the loss of a session, the next join has the state.
      if (!(error instanceof ConnectionLostError)) isKnown = (await this.#refuses(error)) && this.#sent === call;
    }
    if (!isKnown) this.#sent = undefined;
    this.#isSending = false;
    void this.#send();
  }

  /** Reports why a call has failed. Resolves with true if the server refuses the state, or else with false when to send it again. */
  async #refuses(error: unknown): Promise<boolean> {
    this.#list.report(error);
    if (isApplicationError(error) || (error as RpcError).code === InvalidParams) return true;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, this.#backoff.nextDelayMs());
      // It keeps no process alive.
      timer.unref?.();
    });
    return false;
  }

  /** Returns the members without this peer, one of each person. */
  #othersIn({ id, members }: List): unknown[] {
    const me = members.find((member) => member.id === id);
    const people = new Map(members.map((member) => [this.#by(member), member]));
    if (me !== undefined) people.delete(this.#by(me));
    return [...people.values()];
  }
}

function idOf({ id }: { readonly id: string }): string {
  return id;
}

/** Returns the list after a `MemberChange`. A member keeps its place. */
function changed({ id: own, members }: List, { event, id, as }: any): List {
  const [rest, member] = [members.filter((one) => one.id !== id), { id, as }];
  if (event === "left") return { id: own, members: rest };
  const isNew = rest.length === members.length;
  return { id: own, members: isNew ? [...rest, member] : members.map((one) => (one.id === id ? member : one)) };
}
