/** A followed topic: the state of a topic of the server, which this side keeps current by the publications of the topic. */
import type { Contract, GivenParams, NotifyName, Params, Result } from "../contract/contract.js";
import { encodeNotification } from "../message/codec.js";
import { mistake } from "../message/errors.js";
import { anyFunction, anyString, checkOptions, optional, tableOf } from "../message/options.js";
import { positionOf } from "../message/position.js";
import { connectionOf, type AnyPeer, type Peer } from "../peer/peer.js";
import { joinTopic, WOULD_TAKE } from "./join.js";
import { newStore } from "./store.js";

/** What a followed topic shows. `T`: the state of the topic. */
export interface TopicState<T> {
  /** The state; `undefined` until it is loaded for the first time. Not changed while the topic is not current. */
  readonly value: T | undefined;
  /** Whether the state is loaded, the peer is open, and no publication is known to be missing. */
  readonly isCurrent: boolean;
  /** Why the topic is not current, if its last join or a reducer has failed, or the peer is closed. `undefined` otherwise. */
  readonly error: unknown;
}

/** A store of a topic, as `useSyncExternalStore` and the stores of other frameworks read it. Its functions need no `this`. */
export interface FollowedTopic<T> extends Disposable {
  /** Returns the present state. The object is the same until the state changes. */
  readonly get: () => TopicState<T>;
  /**
   * Calls `listener` after changes: once for all changes of one microtask. Returns a function that ends that. What the listener throws
   * is emitted as `error` of the peer.
   */
  readonly subscribe: (listener: () => void) => () => void;
  /**
   * Stops, and leaves the topic by `leave`, unless another store of the peer has the same `leave` and params. Another one of the same topic
   * with other params gets no publication any more. The state stays as it is, and is not current. Does nothing the second time.
   */
  readonly close: () => void;
}

/** What each publication changes: returns the next state. Must not change the old one, because `get` returned it. */
export type Reducers<T, C> = { readonly [K in NotifyName<C>]?: (value: T, params: Params<C[K]>) => T };

/** The options of `follow`. `T`: the state, `C`: the contract of this side, `S`: that of the server. */
export interface FollowOptions<T, C, S> {
  /** The reducers, by the methods of the publications. A publication without a reducer changes nothing. */
  reduce: Reducers<T, C>;
  /** The method by which the peer leaves the topic, with the params of `follow`. Default: the peer stays a member until it closes. */
  leave?: NotifyName<S> | undefined;
}

/** The params by which a method joins a topic: those of the application, without `since`. */
export type FollowParams<M> = Omit<GivenParams<M>, "since">;

/** The state that a method returns as `value`. */
export type FollowedValue<M> = 0 extends 1 & Result<M>
  ? any
  : Result<M> extends { value?: infer T }
    ? Exclude<T, undefined>
    : never;

/**
 * Joins a topic of the server, loads its state, and applies the publications of the topic to it, each once and in order. Calls `method` with
 * `params` and with `since`, the position of the state; the handler returns what `topic.join(peer, { since, load })` resolves with. It
 * decides who may join. Calls it again after `lost` and `missed`, and loads the state if a publication may be missing.
 *
 * The topic must have a log. Its publications come by the event `notification`, so no handler and no `fallback` of the peer may take them.
 *
 * If the call fails, it is made again after 0 s, and then after 0.25 to 5 s. If the handler has thrown an `RpcError` with a code of its own,
 * outside -32768 to -32000, it is made again only after `lost` or `missed`. If a reducer throws, the peer emits `error`, and the state is loaded
 * again. If the peer closes, the store stays, and is not current. Throws a `TypeError` for bad options, for params without a JSON form, and
 * for a peer with a `fallback`, or with one of the methods of `reduce` in its `methods`.
 */
export function follow<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: FollowParams<S[K]>,
  options: FollowOptions<FollowedValue<S[K]>, C, S>,
): FollowedTopic<FollowedValue<S[K]>>;
export function follow(peer: AnyPeer, method: string, params: object, options: object): FollowedTopic<any> {
  const { reduce, leave } = checkOptions("options", options, {
    reduce: (given, name) => tableOf(given, name, anyFunction),
    leave: optional(anyString),
  });
  const { methods } = connectionOf(peer).config;
  for (const name of reduce.keys())
    if (methods.has(name)) throw mistake(`Expected no method \`${name}\`, ${WOULD_TAKE}`);
  // Throws for params without a JSON form.
  encodeNotification(method, params);
  const store = newStore<TopicState<any>>(peer, method, { value: undefined, isCurrent: false, error: undefined });
  /** The position of the state; `undefined` if the state must be loaded. */
  let since: string | undefined;

  /**
   * Returns how many publications there are from the state to `at`; NaN if `at` is in another log. If there are more than `most`, some
   * are missing, and the state must be loaded.
   */
  const stepsTo = (at: unknown, most: number): number => {
    const [there, here] = [positionOf(at), positionOf(since)];
    const steps = there !== undefined && there.epoch === here?.epoch ? there.offset - here.offset : NaN;
    if (steps > most) since = undefined;
    return steps;
  };

  const close = joinTopic(peer, method, store, {
    params: () => ({ ...params, since }),
    load: ({ outcome, at, value }) => {
      const isLoaded = outcome !== "complete";
      if (isLoaded) since = value !== undefined && positionOf(at) !== undefined ? at : undefined;
      if (since === undefined) return undefined;
      return isLoaded ? { value } : {};
    },
    apply: (name, publication) => {
      const at: string = publication.at;
      const steps = stepsTo(at, 1);
      // Each publication has the next offset. One that a limit or a handler of this side took is missing.
      if (steps > 1) return undefined;
      if (steps !== 1) return {};
      // If the reducer throws, the state must be loaded.
      since = undefined;
      const reducer = reduce.get(name);
      const changed = reducer === undefined ? {} : { value: reducer(store.get().value, publication) };
      since = at;
      return changed;
    },
    isBehind: (at) => stepsTo(at, 0) > 0,
    leave: [leave, params],
  });
  return { get: store.get, subscribe: store.subscribe, close, [Symbol.dispose]: close };
}
