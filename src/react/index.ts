/** The entry for React 18 and 19: a provider that owns a peer, and hooks over it. The application brings the package `react`. */
import * as React from "react";
import type { FollowedValue, FollowOptions, FollowParams, TopicState } from "../client/follow.js";
import type { KeyedName, Mutation } from "../client/mutation.js";
import type { MemberState, Other, PresenceOptions, PresenceState, PresentParams } from "../client/presence.js";
import type { AnyMethods, Contract } from "../contract/contract.js";
import type { AnyPeer, Peer } from "../peer/peer.js";
import {
  followedOf,
  mutationOf,
  presentOf,
  providedPeerOf,
  streamOf,
  type ProvidedPeer,
  type Store,
} from "./stores.js";
import type { ConnectionState, ProviderProps, Reciproc, StreamOptions } from "./types.js";

export type * from "./types.js";

/**
 * Makes the provider and the hooks of one contract: the page calls a server that serves `S`, and serves `C` itself. Call it once,
 * in a module of its own, and import the hooks from there. So the contract is named once, and all hooks infer their types from it.
 */
export function createReciproc<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>() {
  const PeerContext = React.createContext<ProvidedPeer | undefined>(undefined);

  function Provider(props: ProviderProps<S, C>): React.ReactElement {
    const provided = React.useMemo(() => providedPeerOf(props as ProviderProps<any, any>), [String(props.url)]);
    React.useEffect(() => {
      const stops = [provided, provided.connection].map(({ subscribe }) => subscribe(() => {}));
      return () => stops.forEach((stop) => stop());
    }, [provided]);
    return React.createElement(PeerContext.Provider, { value: provided }, props.children);
  }

  function useProvided(): ProvidedPeer {
    const provided = React.useContext(PeerContext);
    if (provided === undefined) throw new Error("This hook needs the `Provider` of its `createReciproc`");
    return provided;
  }

  const usePeer = (): AnyPeer => useStore(useProvided());
  const useConnection = (): ConnectionState => useStore(useProvided().connection);

  function useStatus(): AnyPeer["state"] {
    const { subscribe, get } = useProvided();
    return React.useSyncExternalStore(
      subscribe,
      () => get().state,
      () => "connecting",
    );
  }

  function useNotification(method: string, listener: (params: any) => unknown): void {
    const peer = usePeer();
    const latest = useLatest(listener);
    React.useEffect(() => {
      const notified: (name: string, params: unknown) => unknown = async (name, params) => {
        if (name !== method) return;
        // The promise of a response calls back after the notifications that arrived with the response, so they wait for a tick.
        await new Promise((resolve) => setTimeout(resolve));
        if (isListening) await latest(params);
      };
      let isListening = true;
      peer.on("notification", notified);
      return () => {
        isListening = false;
        peer.off("notification", notified);
      };
    }, [peer, method]);
  }

  function useHandler(method: string, handler: (params: any, context: any) => unknown): void {
    const peer = usePeer();
    const latest = useLatest(handler);
    React.useEffect(() => peer.handle(method, latest), [peer, method]);
  }

  function useStream(method: string, params?: object, { keep = 1000, ...options }: StreamOptions = {}) {
    const peer = usePeer();
    const [round, restart] = React.useReducer((count: number) => count + 1, 0);
    const read = (signal: AbortSignal) => peer.stream(method, params, { ...options, signal });
    const store = React.useMemo(() => streamOf(read, keep), [peer, method, JSON.stringify(params), keep, round]);
    return { ...useStore(store), restart };
  }

  const made = { Provider, usePeer, useStatus, useConnection, useNotification, useHandler, useStream };
  // The hooks are written without the contract. `Reciproc` gives them its types.
  return made as unknown as Reciproc<S, C>;
}

/**
 * Follows a topic while a component shows it, as `follow` of `reciproc` does, and returns its state. `peer` is what `usePeer` returns. All
 * components with the same peer, method and params share one state, and the options of the first one. The state is forgotten a tick after the
 * last one was unmounted. If `leave` is given, the peer leaves the topic then. While a server renders the page, nothing is loaded.
 */
export function useTopic<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: FollowParams<S[K]>,
  options: FollowOptions<FollowedValue<S[K]>, C, S>,
): TopicState<FollowedValue<S[K]>> {
  return useStore(followedOf(peer, method, params, options));
}

/**
 * Joins a list of members while a component shows it, as `presence` of `reciproc` does, and returns what that shows, and `set`, which stays
 * the same. `peer` is what `usePeer` returns. All components with the same peer, method and params share one presence, which begins with each
 * option of the first one that has it. The list is left a tick after the last one was unmounted. While a server renders the page, nothing is
 * loaded.
 */
export function usePresence<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: PresentParams<S[K]>,
  options: PresenceOptions<Other<S[K]>, MemberState<S[K]>> = {},
): PresenceState<Other<S[K]>, MemberState<S[K]>> & { set: (state: MemberState<S[K]>) => void } {
  const store = presentOf(peer, method, params, options);
  // A `set` before the store starts changes `me`, and not the object that `useStore` returns.
  return { ...useStore(store), me: useStore(store, ({ me }) => me), set: store.set };
}

/** Returns the `others` of `usePresence`. A component that uses it renders again only if they change. */
export function useOthers<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: PresentParams<S[K]>,
  options: PresenceOptions<Other<S[K]>, MemberState<S[K]>> = {},
): readonly Other<S[K]>[] {
  return useStore(presentOf(peer, method, params, options), ({ others }) => others);
}

/** Returns the `me` and the `set` of `usePresence`. A component that uses it renders again only if the own state changes. */
export function useMyPresence<C extends Contract<C>, S extends Contract<S>, K extends keyof S & string>(
  peer: Peer<C, S, any>,
  method: K,
  params: PresentParams<S[K]>,
  options: PresenceOptions<Other<S[K]>, MemberState<S[K]>> = {},
): [me: MemberState<S[K]> | undefined, set: (state: MemberState<S[K]>) => void] {
  const store = presentOf(peer, method, params, options);
  return [useStore(store, ({ me }) => me), store.set];
}

/**
 * Makes changes, as `mutation` of `reciproc` does, and returns those that are `pending`, the one that `failed`, and `mutate`, which stays the same.
 * `peer` is what `usePeer` returns. All components with the same peer and method share one store. A change goes on if they are unmounted.
 */
export function useMutation<C extends Contract<C>, S extends Contract<S>, K extends KeyedName<S>>(
  peer: Peer<C, S, any>,
  method: K,
): ReturnType<Mutation<S[K]>["get"]> & Pick<Mutation<S[K]>, "mutate"> {
  const store = mutationOf<S[K]>(peer, method);
  return { ...useStore(store), mutate: store.mutate };
}

/** Returns the value of a store, or what `select` returns of it, which must be the same until it changes. */
function useStore<T, R = T>({ subscribe, get, initial }: Store<T>, select = (value: T) => value as unknown as R): R {
  const read = (): R => select(get());
  return React.useSyncExternalStore(subscribe, read, initial === undefined ? read : () => select(initial));
}

/** Returns a function that calls the function of the latest render that was committed. It stays the same. */
function useLatest<A extends unknown[]>(called: (...args: A) => unknown): (...args: A) => unknown {
  const latest = React.useRef(called);
  React.useInsertionEffect(() => void (latest.current = called));
  return React.useRef((...args: A) => latest.current(...args)).current;
}
