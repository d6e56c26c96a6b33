/** Changes by calls of one method, which a page shows before the server has answered, and which are safe to repeat. */
import { nanoid } from "../base/packages.js";
import { observed } from "../base/promises.js";
import type { CallOptions, Contract, GivenParams, Result } from "../contract/contract.js";
import type { AnyPeer, Peer } from "../peer/peer.js";
import { newStore } from "./store.js";

type KeyOf<P> = P extends { readonly key?: infer T } ? ("key" extends keyof P ? T : never) : never;

/** The methods whose params have a `key`, which may be any string. */
export type KeyedName<S> = {
  [K in keyof S & string]-?: string extends KeyOf<GivenParams<S[K]>> ? K : never;
}[keyof S & string];

type Unkeyed<P> = P extends unknown ? Omit<P, "key"> & { readonly key?: string | undefined } : never;

/** The params of a change, as `mutate` takes them. */
export type MutationParams<M> = 0 extends 1 & GivenParams<M> ? any : Unkeyed<GivenParams<M>>;

/** What a mutation shows. `P`: the params of a change, with its `key`. */
export interface MutationState<P> {
  /** The params of the changes whose calls are pending, the oldest first. The array is the same until it changes. */
  readonly pending: readonly P[];
  /**
   * The change that failed last, and why; `undefined` if none has failed since `mutate` was called last. Unless the server has refused it,
   * which an `RpcError` with a code of the application says, it may have been made: `mutate(params)` repeats it, with the same key.
   */
  readonly failed: { readonly params: P; readonly error: unknown } | undefined;
}

/** A store of the changes by one method, as `useSyncExternalStore` and the stores of other frameworks read it. Its functions need no `this`. */
export interface Mutation<M> {
  /** Returns what is shown at present. The object is the same until something changes. */
  readonly get: () => MutationState<GivenParams<M> & { readonly key: string }>;
  /**
   * Calls `listener` after changes: once for all changes of one microtask. Returns a function that ends that. What the listener throws
   * is emitted as `error` of the peer.
   */
  readonly subscribe: (listener: () => void) => () => void;
  /**
   * Makes a change: calls the method with `params` and a `key`, which is a new random one unless `params` have one. The change is pending
   * until the call settles. The promise settles as the call does, and may be dropped, because `failed` has the error too.
   *
   * `options`: those of a call, whose default for `retry` is `"always"`, with the same key. A repeat ends with the `timeoutMs` of the call.
   */
  readonly mutate: (params: MutationParams<M>, options?: CallOptions) => Promise<Result<M>>;
}

/**
 * Returns a store of the changes that this side makes by `method`. If the handler does not pass each change to `server.runOnce`, a
 * change may be made twice. The store sends nothing by itself, and need not be closed. If the peer closes, what is pending fails.
 */
export function mutation<C extends Contract<C>, S extends Contract<S>, K extends KeyedName<S>>(
  peer: Peer<C, S, any>,
  method: K,
): Mutation<S[K]>;
export function mutation(peer: AnyPeer, method: string): Mutation<any> {
  const { get, subscribe, show } = newStore<MutationState<object>>(peer, method, { pending: [], failed: undefined });
  const make = async (change: object, options?: CallOptions): Promise<unknown> => {
    show({ pending: [...get().pending, change], failed: undefined });
    try {
      return await (peer as Peer).request(method, change, { retry: "always", ...options });
    } catch (error) {
      show({ failed: { params: change, error } });
      throw error;
    } finally {
      show({ pending: get().pending.filter((one) => one !== change) });
    }
  };
  return {
    get: get as () => MutationState<any>,
    subscribe,
    mutate: (params, options) => observed(make({ ...params, key: params?.key ?? nanoid() }, options)),
  };
}
