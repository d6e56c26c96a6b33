/**
 * The types of a contract: what one side serves and the other calls. Types only; nothing here exists at run time.
 *
 * A contract is an interface whose methods take nothing or one `params` (an array or an object, as it stands on the
 * wire: JSON-RPC 2.0, section 4.2) and return the result, plain or as a promise.
 */

/** Checks that `T` is a contract: each method takes nothing, or one `params`. An interface has no index signature, so the bound refers to itself. */
export type Contract<T> = {
  [K in keyof T]: NonNullable<T[K]> extends (...args: infer A) => unknown
    ? A extends [] | [params?: object | undefined]
      ? T[K]
      : "a method takes one `params`: an array or an object"
    : "a contract holds methods only";
};

/** The contract of untyped use: any method, any params. */
export type AnyMethods = Record<string, (params?: any) => any>;

type Args<M> = NonNullable<M> extends (...args: infer A) => unknown ? A : never;
type Return<M> = NonNullable<M> extends (...args: never) => infer R ? Awaited<R> : never;
type Frozen<P> = P extends readonly unknown[] ? Readonly<P> : P;
type Received<T> = unknown extends T ? T : [T] extends [void] ? void : T extends undefined ? null : T;

/** The `params` of method `M`, `undefined` when it takes none. */
export type Params<M> = 0 extends 1 & M ? any : Args<M> extends [] ? undefined : Args<M>[0];

/** What a caller of method `M` receives. `undefined` arrives as `null`, and this type says so. */
export type Result<M> = Received<Return<M>>;

/** The arguments after the method's name in a call of `M`: `params` where it takes some, then `Tail`. */
export type CallArgs<M, Tail extends unknown[] = [options?: CallOptions]> =
  Args<M> extends []
    ? [params?: undefined, ...Tail]
    : undefined extends Args<M>[0]
      ? [params?: Frozen<Args<M>[0]>, ...Tail]
      : [params: Frozen<Args<M>[0]>, ...Tail];

/** The methods that may be notified: those without a result. Notifying another would drop its answer unseen. */
export type NotifyName<T> = {
  [K in keyof T & string]-?: unknown extends Return<T[K]> ? K : [Return<T[K]>] extends [void] ? K : never;
}[keyof T & string];

declare const items: unique symbol;

/** A stream as it stands in a contract and in plain data: made by `peer.offer`, read by `peer.iterate`. Nominal on purpose. */
export interface Stream<T> {
  readonly [items]: T;
}

/** The methods whose result is a stream. */
export type StreamName<T> = {
  [K in keyof T & string]-?: unknown extends Return<T[K]> ? K : Return<T[K]> extends Stream<unknown> ? K : never;
}[keyof T & string];

/** What the stream that method `M` returns yields. */
export type Item<M> = unknown extends Return<M> ? any : Return<M> extends Stream<infer T> ? T : never;

type Served<T> = T extends Stream<infer I> ? Stream<I> | AsyncIterable<I> : T;

/** The function that serves method `M`: `(params, context)`, its result plain or as a promise. Where the contract says `Stream`, it may return the iterable itself. */
export type Handler<M, Ctx> = (
  this: void,
  params: Params<M>,
  context: Ctx,
) => Served<Return<M>> | Promise<Served<Return<M>>>;

/** A plain object with one handler for each method of contract `L`. */
export type Handlers<L, Ctx> = { [K in keyof L]: Handler<L[K], Ctx> };

/** The other side's methods as functions. An untyped remote is `any`: under `noUncheckedIndexedAccess` nothing else can be called. */
export type Remote<R> = string extends keyof R
  ? any
  : {
      readonly [K in keyof R as K extends "then" | "toJSON" | "toString" | "valueOf" ? never : K]-?: (
        ...args: CallArgs<R[K]>
      ) => Promise<Result<R[K]>>;
    };

type Said<T> = T extends AsyncIterable<infer I> ? Stream<I> : T;

/** The contract that a plain object of handlers fulfils: `type Mine = ApiOf<typeof handlers>`. */
export type ApiOf<H> = {
  [K in keyof H]: H[K] extends (...args: infer A) => infer R
    ? A extends []
      ? () => Said<Awaited<R>>
      : (params: A[0]) => Said<Awaited<R>>
    : never;
};

/** What one call may ask for. */
export interface CallOptions {
  /** How long to wait for the answer, in milliseconds; `Infinity` waits for ever. Default: the peer's `timeoutMs`, 60,000. Rejects with `TimeoutError`. */
  timeoutMs?: number | undefined;
  /** Aborting it rejects the call at once with `signal.reason`. One that is already aborted sends nothing. */
  signal?: AbortSignal | undefined;
  /**
   * Called with each progress report, in order, before the result and never after. Params must be by name or absent: they
   * carry the token that asks for reports, the call's id unless they hold one already; else the call rejects with `TypeError`.
   * Asking takes a dialect: on a plain link without one, reports come only where your params hold a token of their own. A call
   * made after `lost` asks when it leaves; only then is it known whether the next server is a reciproc peer.
   */
  onProgress?: ((value: any) => void) | undefined;
  /** Whether each report starts `timeoutMs` anew. Default false. */
  resetTimeoutOnProgress?: boolean | undefined;
  /** How long the call may take in all, in milliseconds, whatever is reported. Default `Infinity`. Rejects with `TimeoutError`. */
  maxTotalTimeoutMs?: number | undefined;
}
