/** A followed topic: the state of a topic of the server, which this side keeps current by the publications of the topic. */
import type { Contract, GivenParams, NotifyName, Params, Result } from "../contract/contract.js";
import { encodeNotification } from "../message/codec.js";
import { isApplicationError, mistake, ProtocolError } from "../message/errors.js";
import { anyFunction, checkOptions, must, optional, tableOf } from "../message/options.js";
import { positionOf, textOf, type Position } from "../message/position.js";
import { errorOfEnd, type CloseInfo } from "../message/transport.js";
import { connectionOf, type AnyPeer, type Peer } from "../peer/peer.js";
import { Backoff } from "./backoff.js";
import { Listeners } from "./listeners.js";

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
   * Stops, and leaves the topic by `leave`, unless another store of the peer leaves by the same notification later. Another one of the same
   * topic with other params gets no publication any more. The state stays as it is, and is not current. Does nothing the second time.
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

type AnyReducer = (value: any, params: any) => unknown;

/** Publications that arrived before the reply to a join. */
type Ahead = [method: string, params: unknown][];

interface Joining {
  readonly kind: "joining";
  ahead: Ahead | undefined;
}

/**
 * `waiting`: the peer joins when it is open. `joining`: the server was asked. `ahead`: the publications that came since; `undefined` if some
 * are missing, so that the peer joins again after the reply and a delay. `following`: the state is that of the position. `failed`: the peer
 * joins when `retry` fires, if that is set.
 */
type State =
  | Joining
  | { readonly kind: "waiting" | "following" | "closed" }
  | { readonly kind: "failed"; readonly retry: ReturnType<typeof setTimeout> | undefined };

/** Beyond so many publications during one join, the peer joins again. */
const MAX_AHEAD = 1_000;

const WOULD_TAKE = "would take the publications: they come by the event `notification`";

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
    leave: optional(must<string>("a string", (given) => typeof given === "string")),
  });
  const { methods } = connectionOf(peer).config;
  for (const name of reduce.keys())
    if (methods.has(name)) throw mistake(`Expected the peer to have no method \`${name}\`, which ${WOULD_TAKE}`);
  // Throws for params without a JSON form.
  encodeNotification(method, params);
  return new Store(peer, {
    method,
    paramsAt: (since) => ({ ...params, since }),
    isState: (value) => value !== undefined,
    reducerOf: (name) => reduce.get(name),
    count: () => leaveLast(peer, leave, params),
  });
}

/** How a topic is followed. */
interface Source {
  /** The method that joins. */
  readonly method: string;
  /** Returns the params of a join. `since`: the position of the state that the store has. */
  paramsAt(since: string | undefined): object;
  /** Returns true if the `value` of a reply is a state. */
  isState(value: unknown): boolean;
  /** Returns the reducer for a notification that belongs to the topic. */
  reducerOf(method: string): AnyReducer | undefined;
  /** Counts a store that may make the peer a member. Returns what leaves the topic. */
  count(): () => void;
}

/** What `follow` returns. */
export class Store implements FollowedTopic<any> {
  readonly #peer: AnyPeer;
  readonly #source: Source;
  readonly #backoff = new Backoff();
  /** Those that are called when what is shown changes. */
  readonly listeners = new Listeners((cause) => this.report(cause));
  /** The place of `#value` in the log; `undefined` if the state must be loaded. */
  #position: Position | undefined;
  #value: unknown;
  #error: unknown;
  #state: State = { kind: "waiting" };
  #shown: TopicState<any> = { value: undefined, isCurrent: false, error: undefined };
  /** Resolves when the newest call has settled. */
  #reply = Promise.resolve();
  /** Leaves the topic; `undefined` until the server was asked. */
  #leave: (() => void) | undefined;

  constructor(peer: AnyPeer, source: Source) {
    if (connectionOf(peer).config.fallback !== undefined)
      throw mistake(`Expected the peer to have no \`fallback\`, which ${WOULD_TAKE}`);
    this.#peer = peer;
    this.#source = source;
    this.#begin();
    peer.on("notification", this.#receive).on("lost", this.#join).on("missed", this.#join);
    peer.on("suspend", this.#show).on("resume", this.#wake).on("close", this.#end);
    // The first connection emits no `resume`.
    peer.opened.then(this.#wake, this.#wake);
  }

  readonly get = (): TopicState<any> => this.#shown;

  readonly subscribe = this.listeners.add;

  readonly close = (): void => {
    if (this.#state.kind === "closed") return;
    this.#enter({ kind: "closed" });
    const peer = this.#peer;
    peer.off("notification", this.#receive).off("lost", this.#join).off("missed", this.#join);
    peer.off("suspend", this.#show).off("resume", this.#wake).off("close", this.#end);
    // A handler may still join the peer: it must not do so after the peer has left.
    void this.#reply.then(this.#leave);
  };

  [Symbol.dispose](): void {
    this.close();
  }

  /** Shows what has changed. */
  readonly #show = (): void => {
    const isCurrent = this.#state.kind === "following" && this.#peer.state === "open";
    const [value, error] = [this.#value, this.#error];
    const shown = this.#shown;
    if (value === shown.value && isCurrent === shown.isCurrent && error === shown.error) return;
    this.#shown = { value, isCurrent, error };
    this.listeners.notify();
  };

  /** Emits `error` of the peer. */
  report(cause: unknown, method = this.#source.method): void {
    connectionOf(this.#peer).report(cause, undefined, method);
  }

  #enter(state: State): void {
    if (this.#state.kind === "failed") clearTimeout(this.#state.retry);
    this.#state = state;
    this.#show();
  }

  /** Joins again, because publications may be missing. If a join is pending, does so after its reply and a delay. */
  readonly #join = (): void => {
    if (this.#state.kind === "joining") this.#state.ahead = undefined;
    else this.#begin();
  };

  /** The peer is open, or closed. */
  readonly #wake = (): void => {
    if (this.#state.kind === "waiting") this.#begin();
    else this.#show();
  };

  /** Calls the method that joins, when the peer is open: a page that shows many topics while it is offline queues nothing. */
  readonly #begin = (): void => {
    const { state } = this.#peer;
    if (state !== "open" && state !== "closed") return this.#enter({ kind: "waiting" });
    this.#leave ??= this.#source.count();
    const joining: Joining = { kind: "joining", ahead: [] };
    this.#enter(joining);
    const settle = (act: (ahead: Ahead) => void): void => {
      if (this.#state !== joining) return;
      if (joining.ahead !== undefined) act(joining.ahead);
      // The call of a closed peer rejects at once, which shows why.
      else if (this.#peer.state === "closed") this.#begin();
      else this.#beginLater();
    };
    const params = this.#source.paramsAt(this.#position && textOf(this.#position));
    // The network may be lost for long before the reply comes, so the call has no timeout.
    const reply = (this.#peer as Peer).request(this.#source.method, params, { timeoutMs: Infinity });
    this.#reply = reply.then(
      (joined) => settle((ahead) => this.#follow(joined, ahead)),
      (cause: unknown) => settle(() => this.#fail(cause)),
    );
  };

  /** Loads the state again. */
  #reload(): void {
    this.#position = undefined;
    this.#begin();
  }

  /** Takes the reply to the join, and the publications that arrived before it. */
  #follow(joined: unknown, ahead: Ahead): void {
    const { outcome, at, value } = Object(joined) as Record<string, unknown>;
    const isLoaded = outcome !== "complete";
    const end = positionOf(at);
    if (isLoaded) this.#position = this.#source.isState(value) ? end : undefined;
    if (this.#position === undefined) {
      const rule = `Expected "${this.#source.method}" to return what \`topic.join\` with \`load\` or \`topic.present\` returns`;
      return this.#fail(new ProtocolError(rule, joined));
    }
    if (isLoaded) this.#value = value;
    this.#backoff.succeeded();
    this.#error = undefined;
    this.#enter({ kind: "following" });
    for (const [method, params] of ahead) this.#receive(method, params);
    // What was replayed may have been dropped on its way.
    if (this.#state.kind === "following" && end?.epoch === this.#position.epoch && end.offset > this.#position.offset)
      this.#reload();
  }

  #fail(cause: unknown): void {
    this.#error = cause;
    if (isApplicationError(cause) || this.#peer.state === "closed") this.#enter({ kind: "failed", retry: undefined });
    else this.#beginLater();
  }

  #beginLater(): void {
    this.#enter({ kind: "failed", retry: setTimeout(this.#begin, this.#backoff.nextDelayMs()) });
  }

  /**
   * Takes a notification. Only publications and changes of lists have a position. Those of other topics have another epoch. The changes of
   * a list have the offset 0: a newer one replaces an older one, so they are not counted.
   */
  readonly #receive = (method: string, params: any): void => {
    const at = positionOf(params?.at);
    if (at === undefined) return;
    const [state, position] = [this.#state, this.#position];
    if (state.kind === "joining" && state.ahead !== undefined && state.ahead.push([method, params]) > MAX_AHEAD)
      state.ahead = undefined;
    if (state.kind !== "following" || at.epoch !== position!.epoch) return;
    if (at.offset !== 0 && at.offset <= position!.offset) return;
    // Each publication has the next offset. One that a limit or a handler of this side took is missing.
    if (at.offset > position!.offset + 1) return this.#reload();
    this.#position = at;
    try {
      const reducer = this.#source.reducerOf(method);
      if (reducer !== undefined) this.#value = reducer(this.#value, params);
      this.#show();
    } catch (cause) {
      this.report(cause, method);
      this.#position = undefined;
      this.#fail(cause);
    }
  };

  /** The peer is closed. A call that joins rejects by itself. */
  readonly #end = (info: CloseInfo): void => {
    if (this.#state.kind !== "joining") this.#fail(errorOfEnd("the connection ended", info));
  };
}

/** Counts a store. Returns a function that notifies `leave`, unless another one with the same `leave` and params is still to be called. */
export function leaveLast(peer: AnyPeer, leave: string | undefined, params: object): () => void {
  const key = JSON.stringify([leave, params]);
  const counts = leaving.get(peer) ?? new Map<string, number>();
  leaving.set(peer, counts.set(key, (counts.get(key) ?? 0) + 1));
  return () => {
    const others = counts.get(key)! - 1;
    if (others > 0) counts.set(key, others);
    else counts.delete(key);
    if (others === 0 && leave !== undefined) (peer as Peer).notify(leave, params);
  };
}
