/** What `follow`, `presence` and `mutation` show, and the functions that are called when it changes. */
import { inMicrotask } from "../base/promises.js";
import { runReporting } from "../base/tell.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";

/** A store of a peer. `T`: what it shows. Its functions need no `this`. */
export interface Store<T> {
  /** Returns what is shown. The object is the same until a member of it changes. */
  readonly get: () => T;
  /** Adds a listener. Returns a function that removes it. */
  readonly subscribe: (listener: () => void) => () => void;
  /** Replaces members of what is shown. Calls the listeners if one of them has changed, once for all changes of one microtask. */
  readonly show: (changed: Partial<T>) => void;
  /** Emits `error` of the peer. `name`: the method that the error came from, by default that of the store. */
  readonly report: (cause: unknown, name?: string) => void;
}

/** Returns a store of what is got by `method`. What a listener throws is emitted as `error` of the peer. */
export function newStore<T extends object>(peer: AnyPeer, method: string, initial: T): Store<T> {
  const listeners = new Set<() => void>();
  let shown = initial;
  let isNotifying = false;
  const report = (cause: unknown, name = method): void => connectionOf(peer).report(cause, undefined, name);
  const notify = (): void => {
    isNotifying = false;
    for (const listener of Array.from(listeners)) runReporting(listener, report);
  };
  return {
    get: () => shown,
    subscribe: (listener) => {
      // The same function may be added twice.
      const one = (): void => listener();
      listeners.add(one);
      return () => void listeners.delete(one);
    },
    show: (changed) => {
      if (Object.entries(changed).every(([name, value]) => value === shown[name as keyof T])) return;
      shown = { ...shown, ...changed };
      if (isNotifying) return;
      isNotifying = true;
      inMicrotask(notify);
    },
    report,
  };
}
