/** What the hooks subscribe to: the peer of a provider, a stream, a topic, its members, changes. None of it needs React. */
import { follow, type TopicState } from "../client/follow.js";
import { mutation, type Mutation, type MutationState } from "../client/mutation.js";
import { presence, type Presence, type PresenceState } from "../client/presence.js";
import { open } from "../connect.js";
import { synchronous } from "../base/promises.js";
import { streams } from "../features/streams.js";
import { encodeNotification } from "../message/codec.js";
import { errorOfEnd } from "../message/transport.js";
import type { AnyPeer, Peer, PeerEvents } from "../peer/peer.js";
import type { ConnectionState, ProviderProps, StreamState } from "./types.js";

/** A value that changes, as `useSyncExternalStore` reads it. */
export interface Store<T> {
  readonly subscribe: (listener: () => void) => () => void;
  readonly get: () => T;
  /** What a page shows that a server has rendered, until it is hydrated. Default: what `get` returns. */
  readonly initial?: T;
}

/**
 * Returns a store whose value is `initial`, and after each call of `changed` what the function that `start` returned reads.
 *
 * Calls `start` for the first listener, and aborts its signal when there has been no listener for a tick. So nothing restarts if
 * StrictMode unmounts and mounts a component at once.
 */
function storeOf<T>(initial: T, start: (changed: () => void, signal: AbortSignal) => () => T): Store<T> {
  const listeners = new Set<() => void>();
  let value = initial;
  let running: AbortController | undefined;
  let stopping: ReturnType<typeof setTimeout> | undefined;
  const begin = (): void => {
    const { signal } = (running = new AbortController());
    const changed = (): void => {
      if (signal.aborted) return;
      value = read();
      listeners.forEach((listener) => listener());
    };
    const read = start(changed, signal);
  };
  const stop = (): void => {
    running!.abort();
    running = undefined;
    value = initial;
  };
  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    clearTimeout(stopping);
    if (running === undefined) begin();
    // A component that was hidden still shows the value of before.
    listener();
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) stopping = setTimeout(stop);
    };
  };
  return { subscribe, get: () => value, initial };
}

/** The peer of a provider, and its connection. */
export interface ProvidedPeer extends Store<AnyPeer> {
  readonly connection: Store<ConnectionState>;
}

/** A provider may suspend before it is mounted, and be rendered anew. After this time its peer closes. */
const UNMOUNTED_MS = 30_000;

/**
 * Returns the peer of a provider. It is opened when it is first read, and closed when it has no subscriber. Subscribers are notified
 * when the peer is another, and when its `state` changes. Where a server renders the page, the peer is closed.
 */
export function providedPeerOf(props: ProviderProps<any, any>): ProvidedPeer {
  const { url, open: openPeer = open as NonNullable<typeof props.open> } = props;
  const options = { reconnect: { initial: true }, ...props.options } as Parameters<typeof openPeer>[1];
  // `useStream` needs it.
  options.use = [streams, ...(options.use ?? [])];
  const { contract } = options;
  // A `useHandler` may serve the entries that have no handler yet.
  if (contract !== undefined)
    options.contract = { ...contract, fit: (given) => contract.fit({ ...given, fallback: true }) };
  const make = (...args: Parameters<typeof openPeer>): AnyPeer => synchronous(openPeer(...args), "`open`");
  let peer: AnyPeer | undefined;
  let closing: ReturnType<typeof setTimeout> | undefined;
  const close = (): void => {
    void peer?.close();
    peer = undefined;
  };
  const get = (): AnyPeer => {
    if (peer !== undefined) return peer;
    // On a server, a relative URL has no base, and a timer would keep the process alive.
    if (typeof window === "undefined")
      return (peer = make("ws://localhost", { ...options, signal: AbortSignal.abort() }));
    peer = make(url, options);
    closing = setTimeout(close, UNMOUNTED_MS);
    return peer;
  };
  const { subscribe } = storeOf<unknown>(undefined, (changed, signal) => {
    const { opened } = get().on("suspend", changed).on("resume", changed).on("close", changed);
    opened.then(changed, changed);
    clearTimeout(closing);
    signal.addEventListener("abort", close);
    return () => {};
  });
  return { subscribe, get, connection: connectionStateOf(get) };
}

/** Returns the state of the connection of a peer, with the seconds until its next attempt. */
function connectionStateOf(get: () => AnyPeer): Store<ConnectionState> {
  /** Tries to connect at once; `undefined` while there is no subscriber, because the peer is closed then. */
  let retry: (() => void) | undefined;
  const retryNow = (): void => retry?.();
  const initial: ConnectionState = { state: "connecting", cause: undefined, countdown: undefined, retryNow };
  return storeOf(initial, (changed, signal) => {
    const peer = get();
    let attemptAt = 0;
    let cause: Error | undefined;
    let counting: ReturnType<typeof setTimeout> | undefined;
    /** Shows the time that is left now, and again whenever a second has passed. */
    const count = (): void => {
      clearTimeout(counting);
      const leftMs = attemptAt - performance.now();
      if (leftMs > 0) counting = setTimeout(count, leftMs % 1000 || 1000);
      changed();
    };
    retry = () => {
      attemptAt = 0;
      count();
      peer.reconnect();
    };
    const waits: PeerEvents["attempt"] = ({ delayMs, error }) => {
      cause = error;
      attemptAt = performance.now() + delayMs;
      count();
    };
    peer.on("attempt", waits).on("suspend", changed).on("resume", changed);
    peer.opened.then(changed, changed);
    // It may have closed before.
    void peer.closed.then((end) => {
      cause = errorOfEnd("the connection ended", end);
      changed();
    });
    signal.addEventListener("abort", () => {
      clearTimeout(counting);
      peer.off("attempt", waits).off("suspend", changed).off("resume", changed);
      retry = undefined;
    });
    return () => {
      const { state } = peer;
      if (state === "open") return { ...initial, state };
      const leftMs = state === "closed" ? 0 : attemptAt - performance.now();
      return { state, cause, countdown: leftMs > 0 ? Math.ceil(leftMs / 1000) : undefined, retryNow };
    };
  });
}

type Shown<T> = Omit<StreamState<T>, "restart">;
const EMPTY: Shown<never> = { items: [], last: undefined, done: false, error: undefined };

/** Returns the newest `keep` values of a stream, which is read while there is a subscriber. */
export function streamOf<T>(read: (signal: AbortSignal) => AsyncIterable<T>, keep: number): Store<Shown<T>> {
  return storeOf<Shown<T>>(EMPTY, (changed, signal) => {
    const items: T[] = [];
    let state = { done: false, error: undefined as unknown };
    let showing: unknown;
    // React renders at once when a store changes. So it renders once for the values of a tick.
    const show = (): void => {
      showing ??= setTimeout(() => {
        showing = undefined;
        changed();
      });
    };
    const readAll = async (): Promise<void> => {
      for await (const item of read(signal)) {
        items.push(item);
        if (items.length > keep) items.shift();
        show();
      }
    };
    const finish = (error?: unknown): void => {
      state = { done: true, error };
      show();
    };
    readAll().then(finish, finish);
    return () => ({ ...state, items: [...items], last: items.at(-1) });
  });
}

/** The stores that components share, by peer, and then by kind, method and params. */
const shared = new WeakMap<AnyPeer, Map<string, unknown>>();

/** Returns the store of that name, which `make` makes for the first component. After `forget`, the next component is the first one. */
function sharedOf<T>(peer: AnyPeer, name: unknown[], make: (forget: () => void) => T): T {
  const stores = shared.get(peer) ?? new Map<string, unknown>();
  shared.set(peer, stores);
  const key = JSON.stringify(name);
  if (!stores.has(key)) {
    const made: T = make(() => {
      // A component that was hidden may still use a store that was forgotten before.
      if (stores.get(key) === made) stores.delete(key);
    });
    stores.set(key, made);
  }
  return stores.get(key) as T;
}

/** Returns the state of a topic, which the peer follows while there is a subscriber. All components of a peer share it. */
export function followedOf(peer: AnyPeer, method: string, params: object, options: object): Store<TopicState<any>> {
  const initial = { value: undefined, isCurrent: false, error: undefined };
  return sharedOf(peer, ["topic", method, params], (forget) =>
    storeOf<TopicState<any>>(initial, (changed, signal) => {
      const topic = follow(peer as Peer, method, params, options as { reduce: {} });
      topic.subscribe(changed);
      signal.addEventListener("abort", topic.close);
      signal.addEventListener("abort", forget);
      return topic.get;
    }),
  );
}

/** What components see of a list of members, and the function that sets the state of this side. */
interface PresentStore extends Required<Store<PresenceState<any, any>>> {
  readonly set: (state: unknown) => void;
  /** The options with which the presence begins. `state` is the newest one. */
  readonly options: Record<string, unknown>;
}

/**
 * Returns the presence of a peer, which is in the list while there is a subscriber. All components of a peer share it. It begins with each
 * option of the first one that has it.
 */
export function presentOf(peer: AnyPeer, method: string, params: object, options: object): PresentStore {
  const store = sharedOf<PresentStore>(peer, ["presence", method, params], (forget) => {
    const given: PresentStore["options"] = {};
    let current: Presence<any, any> | undefined;
    const set = (state: unknown): void => {
      // Throws for a state without a JSON form.
      if (current === undefined) encodeNotification(method, { state });
      else current.set(state);
      given["state"] = state;
    };
    const initial: PresenceState<any, any> = {
      others: [],
      get me() {
        return given["state"];
      },
      isCurrent: false,
      error: undefined,
    };
    const present = storeOf(initial, (changed, signal) => {
      const started = (current = presence(peer as Peer, method, params, given));
      started.subscribe(changed);
      signal.addEventListener("abort", () => {
        started.close();
        current = undefined;
        forget();
      });
      return started.get;
    });
    return { ...present, initial, set, options: given };
  });
  for (const [name, value] of Object.entries(options)) store.options[name] ??= value;
  return store;
}

/** Returns the changes of a peer by a method. All components of the peer share them, also those that are mounted later. */
export function mutationOf<M>(peer: AnyPeer, method: string): Mutation<M> & { readonly initial: MutationState<any> } {
  return sharedOf(peer, ["mutation", method], () => {
    const store: Mutation<M> = mutation(peer, method);
    return { ...store, initial: store.get() };
  });
}
