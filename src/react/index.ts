/** The entry for React 18 and 19: a provider that owns a peer, and hooks over it. The application brings the package `react`. */
import {
  createContext,
  createElement,
  useContext,
  useEffect,
  useInsertionEffect,
  useMemo,
  useReducer,
  useRef,
  useSyncExternalStore,
  type ReactElement,
} from "react";
import { open } from "../connect.js";
import type { AnyMethods, Contract } from "../core/contract.js";
import type { AnyPeer } from "../peer/peer.js";
import { connectionOf, isPage, streamOf, topicOf, type Connection, type Store } from "./stores.js";
import type { ProviderOptions, ProviderProps, Reciproc, StreamOptions } from "./types.js";

export type * from "./types.js";

type Opener<S extends Contract<S>, C extends Contract<C>> = NonNullable<ProviderProps<S, C>["open"]>;

const ignore = (): void => {};

/**
 * Makes the provider and the hooks of one contract: the page calls a server that serves `S`, and serves `C` itself. Call it once,
 * in a module of its own, and import the hooks from there. So the contract is named once, and all hooks infer their types from it.
 */
export function createReciproc<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(): Reciproc<
  S,
  C
> {
  const ConnectionContext = createContext<Connection | undefined>(undefined);

  function Provider({
    url,
    options,
    open: openPeer = open as Opener<S, C>,
    children,
  }: ProviderProps<S, C>): ReactElement {
    const address = String(url);
    const connection = useMemo(
      () =>
        connectionOf(() => {
          const given = { reconnect: { initial: true }, ...options } as ProviderOptions<S, C>;
          // Where a server renders the page, a relative URL has no base, and nothing may connect.
          return isPage()
            ? openPeer(url, given)
            : openPeer("ws://localhost", { ...given, signal: AbortSignal.abort() });
        }),
      [address],
    );
    useEffect(() => connection.subscribe(ignore), [connection]);
    return createElement(ConnectionContext.Provider, { value: connection }, children);
  }

  function useConnection(): Connection {
    const connection = useContext(ConnectionContext);
    if (connection === undefined) throw new Error("This hook needs the `Provider` of its `createReciproc`");
    return connection;
  }

  const usePeer = (): AnyPeer => useStore(useConnection());

  function useStatus(): AnyPeer["state"] {
    const { subscribe, get } = useConnection();
    const stateOf = () => get().state;
    return useSyncExternalStore(subscribe, stateOf, () => "connecting");
  }

  function useNotification(method: string, listener: (params: any) => unknown): void {
    const peer = usePeer();
    const latest = useLatest(listener);
    useEffect(() => {
      const notified = (name: string, params: unknown) => (name === method ? latest.current(params) : undefined);
      peer.on("notification", notified);
      return () => void peer.off("notification", notified);
    }, [peer, method, latest]);
  }

  function useHandler(method: string, handler: (params: any, context: any) => unknown): void {
    const peer = usePeer();
    const latest = useLatest(handler);
    useEffect(
      () => peer.handle(method, (params: unknown, context: unknown) => latest.current(params, context)),
      [peer, method, latest],
    );
  }

  function useStream(method: string, params?: object, { keep = 1000, ...options }: StreamOptions = {}) {
    const peer = usePeer();
    const [round, restart] = useReducer((count: number) => count + 1, 0);
    const store = useMemo(
      () => streamOf((signal) => peer.stream(method, params, { ...options, signal }), keep),
      [peer, method, JSON.stringify(params), keep, round],
    );
    return { ...useStore(store), restart };
  }

  function useTopicMembers(topic: string) {
    const connection = useConnection();
    const { topics } = connection;
    if (!topics.has(topic)) topics.set(topic, topicOf(connection, topic));
    return useStore(topics.get(topic)!);
  }

  const made = { Provider, usePeer, useStatus, useNotification, useHandler, useStream, useTopicMembers };
  // The hooks are written without the contract. `Reciproc` gives them its types.
  return made as unknown as Reciproc<S, C>;
}

function useStore<T>({ subscribe, get }: Store<T>): T {
  return useSyncExternalStore(subscribe, get, get);
}

/** Returns a reference to the value of the latest render that was committed. */
function useLatest<T>(value: T): { readonly current: T } {
  const latest = useRef(value);
  useInsertionEffect(() => {
    latest.current = value;
  });
  return latest;
}
