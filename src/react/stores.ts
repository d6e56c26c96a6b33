/** What the hooks subscribe to: the peer of a provider, a stream, the members of a topic. None of it needs React. */
import { ConnectionLostError } from "../core/errors.js";
import type { AnyPeer } from "../peer/peer.js";
import type { Member, StreamState, TopicMembers } from "./types.js";

/** A value that changes, as `useSyncExternalStore` reads it. */
export interface Store<T> {
  readonly subscribe: (listener: () => void) => () => void;
  readonly get: () => T;
}

/** A provider may suspend before it is mounted, and be rendered anew. After this time its peer closes. */
const UNMOUNTED_MS = 30_000;

/**
 * Returns the `subscribe` of a store. Calls `start` for the first listener, and what `start` returned when there has been no
 * listener for a tick. So nothing restarts if StrictMode unmounts and mounts a component at once.
 */
function shared(start: (changed: () => void) => () => void): Store<unknown>["subscribe"] {
  const listeners = new Set<() => void>();
  let stop: (() => void) | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const changed = (): void => listeners.forEach((listener) => listener());
  const end = (): void => {
    stop!();
    stop = undefined;
  };
  return (listener) => {
    listeners.add(listener);
    clearTimeout(timer);
    stop ??= start(changed);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) timer = setTimeout(end);
    };
  };
}

/** The peer of a provider, and the topics that its components show, by name. */
export interface Connection extends Store<AnyPeer> {
  readonly topics: Map<string, Store<TopicMembers<Member>>>;
}

/**
 * Returns the peer of a provider. It is opened when it is first read, and closed when it has no subscriber. Subscribers are notified
 * when the peer is another, and when its `state` changes.
 */
export function connectionOf(open: () => AnyPeer): Connection {
  let peer: AnyPeer | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const close = (): void => {
    void peer?.close();
    peer = undefined;
  };
  const get = (): AnyPeer => {
    if (peer !== undefined) return peer;
    // The timer of a rendering server would keep its process alive.
    if (isPage()) timer = setTimeout(close, UNMOUNTED_MS);
    return (peer = open());
  };
  const subscribe = shared((changed) => {
    const { opened } = get().on("suspend", changed).on("resume", changed).on("close", changed);
    opened.then(changed, changed);
    clearTimeout(timer);
    return close;
  });
  return { subscribe, get, topics: new Map() };
}

/** Returns false where a server renders the page. */
export function isPage(): boolean {
  return typeof window !== "undefined";
}

type Shown<T> = Omit<StreamState<T>, "restart">;
const EMPTY = { items: [], done: false } as unknown as Shown<never>;

/** Returns the newest `keep` values of a stream, which is read while there is a subscriber. */
export function streamOf<T>(read: (signal: AbortSignal) => AsyncIterable<T>, keep: number): Store<Shown<T>> {
  let state: Shown<T> = EMPTY;
  const subscribe = shared((changed) => {
    const reading = new AbortController();
    const items: T[] = [];
    let done = false;
    let error: unknown;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      timer = undefined;
      state = { items: [...items], last: items.at(-1), done, error };
      changed();
    };
    // React renders at once whenever a store changes, so one change shows all values of a tick.
    const showSoon = (): void => {
      if (!reading.signal.aborted) timer ??= setTimeout(show);
    };
    const readAll = async (): Promise<void> => {
      for await (const item of read(reading.signal)) {
        items.push(item);
        if (items.length > keep) items.shift();
        showSoon();
      }
    };
    const failed = (cause: unknown): void => void (error = cause);
    const ended = (): void => {
      done = true;
      showSoon();
    };
    // A component that was hidden shows the values of before.
    if (state !== EMPTY) showSoon();
    void readAll().catch(failed).then(ended);
    return () => {
      reading.abort();
      clearTimeout(timer);
    };
  });
  return { subscribe, get: () => state };
}

const UNKNOWN = {} as TopicMembers<never>;

/** Returns the members of a topic, which the peer joins while there is a subscriber. */
export function topicOf(connection: Store<AnyPeer>, topic: string): Store<TopicMembers<Member>> {
  let state: TopicMembers<Member> = UNKNOWN;
  const subscribe = shared((changed) => {
    const peer = connection.get();
    let byId: Map<string, Member> | undefined;
    const show = (error?: unknown): void => {
      state = { members: byId && [...byId.values()], error };
      changed();
    };
    const joined = (members: Member[]): void => {
      byId = new Map(members.map((member) => [member.id, member]));
      show();
    };
    const failed = (error: unknown): void => {
      // After `lost`, the peer joins again.
      if (!(error instanceof ConnectionLostError) || peer.state === "closed") show(error);
    };
    const join = (): void => {
      // The call is queued while the server is away, so it has no timeout.
      peer.request("topic/join", { topic }, { timeoutMs: Infinity }).then(joined as never, failed);
    };
    const notified = (method: string, params: any): void => {
      // Without a list, the server has not answered yet. Its answer will have the members of that moment.
      if (byId === undefined || params?.topic !== topic) return;
      if (method === "topic/joined") byId.set(params.member.id, params.member);
      else if (method === "topic/left") byId.delete(params.id);
      else return;
      show();
    };
    peer.on("notification", notified).on("lost", join);
    join();
    return () => {
      peer.off("notification", notified).off("lost", join).notify("topic/leave", { topic });
      state = UNKNOWN;
    };
  });
  return { subscribe, get: () => state };
}
