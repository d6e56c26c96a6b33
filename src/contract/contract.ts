/**
 * The types of a contract: the methods that one side serves and the other calls. Nothing here exists at run time.
 *
 * A contract is an interface, or the type of what `contract()` makes of schemas. Its methods take nothing or one `params`, an
 * array or an object as on the wire (JSON-RPC 2.0, section 4.2), and return the result or a promise of it.
 */
import type { Bytes } from "../message/bytes.js";
import type { Carried, Jsonify } from "../message/jsonify.js";

/** Checks that `T` is a contract: each method takes nothing, or one `params`. An interface has no index signature, so the bound refers to itself. */
export type Contract<T> = {
  [K in keyof T]: NonNullable<T[K]> extends (...args: infer A) => unknown
    ? A extends [] | [params?: object | undefined]
      ? T[K]
      : "a method takes one `params`: an array or an object"
    : "a contract holds methods only";
};

/**
 * The types that an application declares once, for all its peers. It is empty until the application adds members:
 *
 * ```ts
 * declare module "reciproc" {
 *   interface AppTypes {
 *     data: { room?: string }; // `peer.data`
 *     as: { name: string }; // the `as` of the members of topics
 *     meta: { role: "viewer" | "editor" }; // the `meta` of the entries of contracts
 *     context: { trace: string }; // what wrappers add to the context of handlers
 *   }
 * }
 * ```
 *
 * Without them, the members of `peer.data` and of `meta`, and the `as` of members, are `any`, and wrappers add nothing.
 */
export interface AppTypes {}

/** The type of `peer.data`. */
export type PeerData = AppTypes extends { data: infer D extends object } ? D : Record<string, any>;

/** The type of a member's `as`, as `join` takes it. */
export type MemberAs = AppTypes extends { as: infer T } ? T | undefined : any;

/** What the wrappers of an application add to the context of each handler. */
export type AppContext = AppTypes extends { context: infer C extends object } ? C : {};

/** A rate of calls: a bucket of `calls` tokens, full at first, which gets a token each `perMs / calls` ms. A call takes one. */
export interface CallRate {
  /** The most calls at once, after a quiet time; a whole number. */
  readonly calls: number;
  /** In this time, in milliseconds, an empty bucket becomes full. */
  readonly perMs: number;
}

/** The limits of one method, which `limits()` of `reciproc/node` applies. There is no limit without its member. */
export interface MethodLimits {
  /** The rate of each peer. A client that begins another session has another peer, which counts from 0. So has each POST. */
  readonly peerRate?: CallRate | undefined;
  /** The rate of each principal, over all its peers on this server. Needs the option `principal` of `serve`. */
  readonly principalRate?: CallRate | undefined;
  /** Most calls that run at once, of all peers; a whole number. A call runs until its handler has ended, also if that is late; not until a stream that it returned has ended. */
  readonly maxRunning?: number | undefined;
  /** How long its handler may take, in milliseconds. Then the caller gets -32013, and `context.signal` aborts. */
  readonly timeoutMs?: number | undefined;
}

/** What an entry of a contract says of its method besides the schemas, for wrappers. Both sides have it, and it is never sent. */
export type MethodMeta = (AppTypes extends { meta: infer M extends object } ? M : Record<string, any>) & {
  /** The limits of the method, which `limits()` applies. */
  readonly limits?: MethodLimits | undefined;
};

/** What `join` of a topic has done, and so the result of a method that `follow` calls. `T`: the state of the topic. */
export interface Joined<T = unknown> {
  /** The position of the log from which live publications continue, also while the log has no entry. `undefined` without a log. */
  readonly at?: string | undefined;
  /** Whether the peer has every publication since `since`. `undefined` if the topic has no log. */
  readonly outcome?: "complete" | "gap" | undefined;
  /** What `load` returned; absent if it was not called. */
  readonly value?: T | undefined;
}

/** What `presence` of a client adds to the params of its method. `S`: the state of a member. */
export interface PresenceParams<S = unknown> {
  /**
   * `"join"`: the peer joins the list, or reads it again. `"set"`: the state of the member is another. `"leave"`, in a notification: the
   * peer leaves the list.
   */
  presence: "join" | "set" | "leave";
  /** The state that the page has set; absent until then, and if the peer leaves. */
  state?: S | undefined;
}

/** A list of members, as `present` of a topic sends it to one of them. `A`: their `as`. */
export interface People<A = any> {
  /** The id of the peer that gets the list. */
  readonly id: string;
  /** The members on all nodes, each once. The peer is one of them, if it has an `as`. */
  readonly members: readonly { readonly id: string; readonly as: A }[];
}

/** What members are notified of by the rule `members` of a topic. `A`: the `as` of members. */
export interface MemberChange<A = any> {
  /** `"joined"`: a peer joined, or a member has another `as`. `"left"`: a member left. */
  readonly event: "joined" | "left";
  /** The id of the peer. */
  readonly id: string;
  /** The `as` of the member; the last one if it left. */
  readonly as: A;
  /** Names the list: each change of a list has the same, and so has what `present` returned. */
  readonly at: string;
}

/** The contract of untyped use: any method, any params. */
export type AnyMethods = Record<string, (params?: any) => any>;

type Args<M> = NonNullable<M> extends (...args: infer A) => unknown ? A : never;
type Return<M> = NonNullable<M> extends (...args: never) => infer R ? Awaited<R> : never;
type Frozen<P> = P extends readonly unknown[] ? Readonly<P> : P;
type Received<T> = unknown extends T ? T : [T] extends [void] ? void : T extends undefined ? null : T;

declare const checked: unique symbol;

/**
 * A method of a contract that `contract()` made. `A` has the type of its params for the caller, and `P` is their type for the
 * handler, as the schema returns them. `G` is the type of its progress values.
 */
export interface CheckedMethod<A extends unknown[], P, R, G> {
  (...args: A): R;
  readonly [checked]?: { readonly params: P; readonly progress: G };
}

type CheckedPart<M> = M extends { readonly [checked]?: infer C } ? NonNullable<C> : unknown;

/** The `params` of method `M` as its handler gets them; `undefined` if it takes none. A `Date` arrives as a string. */
export type Params<M> = 0 extends 1 & M
  ? any
  : CheckedPart<M> extends { readonly params: infer P }
    ? P
    : Args<M> extends []
      ? undefined
      : Jsonify<Args<M>[0]>;

/** The result of method `M` for its caller. `undefined` arrives as `null`, and a `Date` as a string. */
export type Result<M> = Received<Jsonify<Return<M>>>;

/** The progress values of method `M` for its handler: `unknown` if the contract says nothing about them. */
export type Progress<M> = CheckedPart<M> extends { readonly progress: infer G } ? G : unknown;

/** The progress values of method `M` for its caller: `any` if the contract says nothing about them. */
type ReceivedProgress<M> = unknown extends Progress<M> ? any : Received<Jsonify<Progress<M>>>;

/** The arguments after the method's name in a call of `M`: `params` if it takes any, then `Tail`. */
export type CallArgs<M, Tail extends unknown[] = [options?: CallOptions<ReceivedProgress<M>>]> =
  Args<M> extends []
    ? [params?: undefined, ...Tail]
    : undefined extends Args<M>[0]
      ? [params?: Frozen<Args<M>[0]>, ...Tail]
      : [params: Frozen<Args<M>[0]>, ...Tail];

/** The params of method `M` as its caller gives them, if it gives any. */
export type GivenParams<M> = 0 extends 1 & M
  ? any
  : CallArgs<M, []> extends [params?: infer P]
    ? NonNullable<P>
    : never;

/** The methods that may be notified: those without a result. Notifying another method would drop its result. */
export type NotifyName<T> = {
  [K in keyof T & string]-?: unknown extends Return<T[K]> ? K : [Return<T[K]>] extends [void] ? K : never;
}[keyof T & string];

declare const items: unique symbol;

/** A stream in a contract and in plain data: made by `peer.offer`, read by `peer.iterate`. Nominal on purpose. */
export interface Stream<T> extends Carried {
  readonly [items]: T;
}

/** The methods whose result is a stream. */
export type StreamName<T> = {
  [K in keyof T & string]-?: unknown extends Return<T[K]> ? K : Return<T[K]> extends Stream<unknown> ? K : never;
}[keyof T & string];

/** The values of the stream that method `M` returns, as the reader gets them. */
export type Item<M> =
  unknown extends Return<M> ? any : Return<M> extends Stream<infer T> ? Received<Jsonify<T>> : never;

/** A web stream, such as `blob.stream()`. It need not be an async iterable: not every browser and not every DOM library makes it one. */
export interface WebStream<T> {
  getReader(): unknown;
  /** Its chunks have the type of the stream's values. The types of `getReader` cannot show that: they have three signatures. */
  pipeTo(destination: { getWriter(): { write(chunk?: T): unknown } }): unknown;
}

/** The values of a stream whose source yields `T`: views are sent as bytes. */
export type Streamed<T> = T extends ArrayBufferView ? Bytes : T;

/** What the source of a stream of `T` may yield. */
type Yielded<T> = Bytes extends T ? T | ArrayBufferView : T;

type Served<T> = T extends Stream<infer I> ? Stream<I> | AsyncIterable<Yielded<I>> | IterableIterator<Yielded<I>> : T;

/** The context of a handler, whose `progress` takes the values that the contract names. */
type ContextOf<M, Ctx> =
  unknown extends Progress<M> ? Ctx : Omit<Ctx, "progress"> & { readonly progress: (value: Progress<M>) => void };

/** The function that serves method `M`. Returns the result or a promise of it. If the contract says `Stream`, it may return an async iterable or a generator. */
export type Handler<M, Ctx> = (
  this: void,
  params: Params<M>,
  context: ContextOf<M, Ctx>,
) => Served<Return<M>> | Promise<Served<Return<M>>>;

/** A plain object with one handler for each method of contract `L`. */
export type Handlers<L, Ctx> = { [K in keyof L]: Handler<L[K], Ctx> };

/** The other side's methods as functions. An untyped remote is `any`, because `noUncheckedIndexedAccess` forbids calls otherwise. */
export type Remote<R> = string extends keyof R
  ? any
  : {
      readonly [K in keyof R as K extends "then" | "toJSON" | "toString" | "valueOf" ? never : K]-?: (
        ...args: CallArgs<R[K]>
      ) => Promise<Result<R[K]>>;
    };

type Said<T> = T extends AsyncIterable<infer I> | IterableIterator<infer I> ? Stream<Streamed<I>> : T;

/** The contract that a plain object of handlers fulfils: `type Mine = ApiOf<typeof handlers>`. */
export type ApiOf<H> = {
  [K in keyof H]: H[K] extends (...args: infer A) => infer R
    ? A extends []
      ? () => Said<Awaited<R>>
      : (params: A[0]) => Said<Awaited<R>>
    : never;
};

/** Options of one call. `G` is the type of its progress values. */
export interface CallOptions<G = any> {
  /** How long to wait for the response, in milliseconds; `Infinity` waits for ever. Default: the peer's `timeoutMs`, 60,000. Rejects with `TimeoutError`. */
  timeoutMs?: number | undefined;
  /** Aborting it rejects the call at once with `signal.reason`. If it is already aborted, nothing is sent. */
  signal?: AbortSignal | undefined;
  /**
   * Called with each progress report, in order, and never after the result. Params must be by name or absent, else the call
   * rejects with `TypeError`: they carry the token that asks for reports, by default a number that this side chooses. On a plain link without a
   * dialect, reports come only if your params hold a token. A call made after `lost` asks when it is sent, because only then it
   * is known whether the next server is a reciproc peer.
   */
  onProgress?: ((value: G) => void) | undefined;
  /** Whether each report restarts `timeoutMs`. Default false. */
  resetTimeoutOnProgress?: boolean | undefined;
  /**
   * `"not-sent"`: if the connection is lost before the call was sent, or the queue is full, the call is made again on the next
   * connection, within its own timeout. Its params are encoded again, so do not change them meanwhile. A call that may have run is
   * never repeated. `"always"`: it is, for a method that may run twice. Without effect in a batch, on `peer.stream`, and in `onOpen`; a call whose params hold an offered stream is
   * rejected as without it. Default: the `retry` of the peer, which is `false`.
   */
  retry?: "not-sent" | "always" | false | undefined;
  /** How long the call may take in total, in milliseconds, even with reports. Default `Infinity`. Rejects with `TimeoutError`. */
  maxTotalTimeoutMs?: number | undefined;
}

/**
 * The options of `notify`, for a message that a newer one makes obsolete. At most one of the two may be given. On a page, they need the
 * feature `live`.
 */
export interface LiveOptions {
  /**
   * Sends the message only if the peer has a socket, nothing is queued for it, and less than an eighth of `limits.maxUnsentBytes`
   * is unsent. Drops the message otherwise. No statistic counts it as a loss, and no `missed` reports it. Default false.
   */
  volatile?: boolean | undefined;
  /**
   * A key of at most 256 characters. While the peer cannot be sent to, because it is suspended or reads too slowly, only the
   * newest message of each method and key is queued, at its own place in the order of messages. At most 1,024 keys are queued for
   * a peer: beyond that, the oldest message is dropped, and reported as `missed`. Default: every message is queued.
   */
  latest?: string | undefined;
}
