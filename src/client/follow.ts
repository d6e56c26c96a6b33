/** A followed topic: the state of a topic of the server, which this side keeps current by the publications of the topic. */
import { attempt } from "../base/tell.js";
import type { CallArgs, Contract, NotifyName, Params, Result } from "../contract/contract.js";
import { encodeNotification } from "../message/codec.js";
import { ProtocolError, RpcError } from "../message/errors.js";
import { anyFunction, checkOptions, must, optional, tableOf } from "../message/options.js";
import { positionOf, textOf, type Position } from "../message/position.js";
import { errorOfEnd, type CloseInfo } from "../message/transport.js";
import { connectionOf, type AnyPeer, type Peer } from "../peer/peer.js";
import { Backoff } from "./backoff.js";

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
   * Stops, and leaves the topic by `leave`, unless another store of the peer leaves by the same notification later. The state stays as it
   * is, and is not current. Does nothing the second time.
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
export type FollowParams<M> = CallArgs<M, []> extends [params?: infer P] ? Omit<NonNullable<P>, "since"> : never;

/** The state that a method returns as `value`. */
export type FollowedValue<M> = 0 extends 1 & Result<M>
  ? any
  : Result<M> extends { value?: infer T }
    ? Exclude<T, undefined>
    : never;

/**
 * `joining`: the server was asked. `ahead`: the publications that came since; `undefined` if some are missing, so that the peer joins again
 * after the reply. `following`: the state is that of the position. `failed`: the peer joins when `retry` fires, if that is set.
 */
type State =
  | { readonly kind: "joining"; ahead: [method: string, params: unknown][] | undefined }
  | { readonly kind: "following" | "closed" }
  | { readonly kind: "failed"; readonly retry: ReturnType<typeof setTimeout> | undefined };

/** Beyond so many publications during one join, the peer joins again. */
const MAX_AHEAD = 1_000;
/** The delays after a join that failed: those by which a client reconnects by default. */
const DELAYS = { minDelayMs: 250, maxDelayMs: 5_000 };

/** How many stores of a peer leave by the same notification. */
const leaving = new WeakMap<AnyPeer, Map<string, number>>();

/**
 * Joins a topic of the server, loads its state, and applies the publications of the topic to it, each once and in order. Calls `method` with
 * `params` and with `since`, the position of the state; the handler returns what `topic.join(peer, { since, load })` resolves with. It
 * decides who may join. Calls it again after `lost` and `missed`, and loads the state if a publication may be missing.
 *
 * The topic must have a log. Its publications come by the event `notification`, so no handler and no `fallback` of the peer may take them.
 *
 * If the call fails, it is made again after 0 s, and then after 0.25 to 5 s. If the handler has thrown an `RpcError` with a code of its own,
 * outside -32768 to -32000, it is made again only after `lost` or `missed`. If a reducer throws, the peer emits `error`, and the state is loaded
 * again. If the peer closes, the store stays, and is not current. Throws a `TypeError` for bad options, and for params without a JSON form.
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
    leave: optional(must<string>("a string", (given) => typeof given === "string")),
  });
  // Throws for params without a JSON form.
  encodeNotification(method, params);
  const key = JSON.stringify([leave, params]);
  const counts = leaving.get(peer) ?? new Map<string, number>();
  leaving.set(peer, counts.set(key, (counts.get(key) ?? 0) + 1));

  const backoff = new Backoff(DELAYS);
  const listeners = new Set<() => void>();
  let isNotifying = false;
  /** The place of `value` in the log; `undefined` if the state must be loaded. */
  let position: Position | undefined;
  let value: unknown;
  let error: unknown;
  let state: State = { kind: "failed", retry: undefined };
  let shown: TopicState<unknown> = { value: undefined, isCurrent: false, error: undefined };
  let settled: Promise<void>;

  const report = (cause: unknown, name = method): void => connectionOf(peer).report(cause, undefined, name);

  const changed = (): void => {
    const isCurrent = state.kind === "following" && peer.state === "open";
    if (value === shown.value && isCurrent === shown.isCurrent && error === shown.error) return;
    shown = { value, isCurrent, error };
    if (isNotifying) return;
    isNotifying = true;
    queueMicrotask(() => {
      isNotifying = false;
      for (const listener of Array.from(listeners)) attempt(listener, report);
    });
  };

  const change = (next: State): void => {
    if (state.kind === "failed") clearTimeout(state.retry);
    state = next;
    changed();
  };

  const begin = (): void => {
    const joining = { kind: "joining", ahead: [] } as State & { kind: "joining" };
    change(joining);
    const settle = (act: (ahead: [string, unknown][]) => void): void => {
      if (state !== joining) return;
      if (joining.ahead === undefined) begin();
      else act(joining.ahead);
    };
    const since = position && textOf(position);
    // The call is queued while the server is away, so it has no timeout.
    settled = (peer as Peer).request(method, { ...params, since }, { timeoutMs: Infinity }).then(
      (joined) => settle((ahead) => enter(joined, ahead)),
      (cause: unknown) => settle(() => fail(cause)),
    );
  };

  /** What the peer has may miss publications. */
  const join = (): void => {
    if (state.kind === "joining") state.ahead = undefined;
    else begin();
  };

  const enter = (joined: unknown, ahead: [string, unknown][]): void => {
    const { outcome, at, value: loaded } = Object(joined) as Record<string, unknown>;
    const isLoaded = outcome !== "complete";
    if (isLoaded) position = loaded === undefined ? undefined : positionOf(at);
    if (position === undefined)
      return fail(
        new ProtocolError(`Expected "${method}" to return what \`topic.join\` with \`load\` returns`, joined),
      );
    if (isLoaded) value = loaded;
    backoff.opened();
    error = undefined;
    change({ kind: "following" });
    for (const [name, publication] of ahead) take(name, publication);
    // What was replayed may have been dropped on its way. Then the position says so, and only the state helps.
    const end = positionOf(at);
    if (state.kind !== "following" || end === undefined || end.epoch !== position?.epoch) return;
    if (position.offset >= end.offset) return;
    position = undefined;
    begin();
  };

  const fail = (cause: unknown): void => {
    error = cause;
    const isFinal = cause instanceof RpcError && (cause.code < -32768 || cause.code > -32000);
    const isOver = isFinal || peer.state === "closed";
    change({ kind: "failed", retry: isOver ? undefined : setTimeout(begin, backoff.nextDelayMs()) });
  };

  /** Takes a notification. Only publications have a position. Those of other topics have another epoch. */
  const take = (name: string, publication: any): void => {
    const at = positionOf(publication?.at);
    if (at === undefined) return;
    if (state.kind === "joining") {
      if (state.ahead !== undefined && state.ahead.push([name, publication]) > MAX_AHEAD) state.ahead = undefined;
      return;
    }
    if (state.kind !== "following" || at.epoch !== position!.epoch || at.offset <= position!.offset) return;
    // Each publication has the next offset. One that a limit or a handler of this side took is missing.
    if (at.offset > position!.offset + 1) {
      position = undefined;
      return begin();
    }
    position = at;
    try {
      const reducer = reduce.get(name);
      if (reducer === undefined) return;
      value = reducer(value, publication);
      changed();
    } catch (cause) {
      report(cause, name);
      position = undefined;
      fail(cause);
    }
  };

  /** The peer is closed. Its calls reject. */
  const closed = (info: CloseInfo): void => {
    if (state.kind !== "joining") fail(errorOfEnd("the connection ended", info));
  };

  const close = (): void => {
    if (state.kind === "closed") return;
    change({ kind: "closed" });
    peer.off("notification", take).off("lost", join).off("missed", join);
    peer.off("suspend", changed).off("resume", changed).off("close", closed);
    // A handler may still be joining: it must not do so after `leave`.
    void settled.then(() => {
      const others = counts.get(key)! - 1;
      if (others > 0) counts.set(key, others);
      else counts.delete(key);
      if (others === 0 && leave !== undefined) (peer as Peer).notify(leave, params);
    });
  };

  begin();
  peer.on("notification", take).on("lost", join).on("missed", join);
  peer.on("suspend", changed).on("resume", changed).on("close", closed);
  const subscribe = (listener: () => void) => {
    const one = (): void => listener();
    listeners.add(one);
    return () => void listeners.delete(one);
  };
  return { get: () => shown, subscribe, close, [Symbol.dispose]: close };
}
