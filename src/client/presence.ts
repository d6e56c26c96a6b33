/** Presence: the list of the members of a topic, which this side keeps current, and its own state in that list. */
import type { Contract, GivenParams, PresenceParams } from "../contract/contract.js";
import { encodeNotification } from "../message/codec.js";
import { InvalidParams } from "../message/codes.js";
import { ConnectionLostError, isApplicationError, type RpcError } from "../message/errors.js";
import { any, anyFunction, checkOptions, optional } from "../message/options.js";
import type { AnyPeer, Peer } from "../peer/peer.js";
import { Backoff } from "./backoff.js";
import type { FollowedValue } from "./follow.js";
import { joinTopic } from "./join.js";
import { newStore } from "./store.js";

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
   * Replaces the state of this side by another value or object. The server gets it at once, or when it has answered the one before. While
   * the list is not current, and while the server has not answered, only the newest state is kept. If the call fails, the peer emits
   * `error`, and the newest state is sent again after 0 s, and then after 0.25 to 5 s. If the session is lost, the next join has the state,
   * and there is no `error`. If the handler has thrown an `RpcError` with a code of its own, outside -32768 to -32000, or the params are
   * invalid (-32602), the state is refused: it is sent again only by a join. Throws a `TypeError` for a state without a JSON form. After
   * `close`, the server does not get it.
   */
  readonly set: (state: S) => void;
  /** Stops, and leaves the list, unless another store of the peer has the same method and params. Does nothing the second time. */
  readonly close: () => void;
}

/** A member, as the server sends it. */
interface Member {
  readonly id: string;
  readonly as: unknown;
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
  /** Throws for a state or params without a JSON form. */
  const check = (me: unknown): void => void encodeNotification(method, { ...params, state: me });
  check(state);
  const store = newStore<PresenceState<any, any>>(peer, method, {
    others: [],
    me: state,
    isCurrent: false,
    error: undefined,
  });

  /** The list: its `at`, the id of this peer in it, and its members by their ids. */
  let listAt: unknown;
  let ownId: string;
  let members: Map<unknown, Member>;
  /** Returns what is shown of the list: the members without this peer, one of each person. */
  const show = (): object => {
    const people = mapOf(members.values(), by);
    const own = members.get(ownId);
    if (own !== undefined) people.delete(by(own));
    return { others: [...people.values()] };
  };

  /** The params of the newest call, which has the state that the server has, or will have. `undefined` if that is not known. */
  let sent: PresenceParams | undefined;
  let isSending = false;
  const backoff = new Backoff();
  /** Returns the params of a call, which has the newest state. */
  const take = (kind: "join" | "set"): PresenceParams => (sent = { ...params, presence: kind, state: store.get().me });

  /** Sends the newest state, unless the server has it, or has not answered the one before. A join sends it too. */
  const send = async (): Promise<void> => {
    const { me, isCurrent } = store.get();
    const hasState = sent !== undefined && sent.state === me;
    if (isSending || hasState || !isCurrent) return;
    isSending = true;
    const call = take("set");
    let isKnown = true;
    try {
      // Made again after a loss, it would replace the state of the join.
      await (peer as Peer).request(method, call, { timeoutMs: Infinity, retry: false });
      backoff.succeeded();
      // The server may have run this call after a join that was sent later.
      isKnown = sent === call;
    } catch (error) {
      // After the loss of a session, the next join has the state.
      if (!(error instanceof ConnectionLostError)) {
        store.report(error);
        const isRefused = isApplicationError(error) || (error as RpcError).code === InvalidParams;
        if (!isRefused) await delay(backoff.nextDelayMs());
        isKnown = isRefused && sent === call;
      }
    }
    if (!isKnown) sent = undefined;
    isSending = false;
    void send();
  };

  const close = joinTopic(peer, method, store, {
    params: () => take("join"),
    load: ({ at, value }) => {
      if (at === undefined || !Array.isArray(value?.members)) return undefined;
      listAt = at;
      ownId = value.id;
      members = mapOf(value.members as Member[], idOf);
      return show();
    },
    apply: (_method, { at, event, id, as }) => {
      if (at !== listAt) return {};
      // A member that changes keeps its place.
      if (event === "left") members.delete(id);
      else members.set(id, { id, as });
      return show();
    },
    // A change of a list replaces an older one of the same member, so changes are not counted.
    isBehind: () => false,
    leave: [method, { ...params, presence: "leave" }],
  });
  store.subscribe(() => void send());
  const set = (me: unknown): void => {
    check(me);
    store.show({ me });
  };
  return { get: store.get, subscribe: store.subscribe, set, close, [Symbol.dispose]: close };
}

function idOf({ id }: Member): string {
  return id;
}

/** Returns the members by what `key` returns of each: the last one, at the place of the first. */
function mapOf(members: Iterable<Member>, key: (member: any) => unknown): Map<unknown, Member> {
  return new Map(Array.from(members, (member): [unknown, Member] => [key(member), member]));
}

/** Resolves after some time. Keeps no process alive. */
function delay(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    timer.unref?.();
  });
}
