/** Emitting events to listeners that may fail. */
import { attempt, uncaught } from "./tell.js";

/** One added listener. */
interface Entry {
  readonly event: PropertyKey;
  readonly listener: (...args: any[]) => void;
  readonly isOnce: boolean;
}

/** Each event has the type of its listeners. */
type Events<E> = { [K in keyof E]: (...args: any[]) => void };
type Listener<E extends Events<E>, K extends keyof E> = (...args: Parameters<E[K]>) => void;

/** Most emitters of a server have no listener. */
const NONE: readonly Entry[] = [];

/**
 * Emits the events `E` to listeners, with the functions of Node's `EventEmitter` of the same names. `on`, `once`, `addListener` and `emit`
 * throw a `TypeError` for an event that is not known, whose listeners would never be called.
 */
export class Emitter<E extends Events<E>> {
  readonly #known: object;
  /** Replaced by each change, so a change does not affect an event that is being emitted. */
  #entries = NONE;

  /** `known`: has the names of the events. */
  constructor(known: Record<keyof E, 0>) {
    this.#known = known;
  }

  /** Calls `listener` at each event, after the listeners that were added before. */
  on<K extends keyof E>(event: K, listener: Listener<E, K>): this {
    return this.#add(event, listener, false);
  }

  /** As `on`. */
  addListener<K extends keyof E>(event: K, listener: Listener<E, K>): this {
    return this.on(event, listener);
  }

  /** Calls `listener` at the next event only. */
  once<K extends keyof E>(event: K, listener: Listener<E, K>): this {
    return this.#add(event, listener, true);
  }

  #add(event: keyof E, listener: (...args: any[]) => void, isOnce: boolean): this {
    this.#check(event);
    if (typeof listener !== "function") throw new TypeError("The listener must be a function");
    this.#entries = [...this.#entries, { event, listener, isOnce }];
    return this;
  }

  /** Removes a listener, however it was added. Does nothing if there is none. */
  off<K extends keyof E>(event: K, listener: Listener<E, K>): this {
    return this.#keep((entry) => entry.event !== event || entry.listener !== listener);
  }

  /** As `off`. */
  removeListener<K extends keyof E>(event: K, listener: Listener<E, K>): this {
    return this.off(event, listener);
  }

  /** Removes all listeners of `event`, or of all events. */
  removeAllListeners(event?: keyof E): this {
    return this.#keep((entry) => event !== undefined && entry.event !== event);
  }

  #keep(isKept: (entry: Entry) => boolean): this {
    this.#entries = this.#entries.filter(isKept);
    return this;
  }

  /** Returns the listeners of `event`, in the order they were added. */
  listeners<K extends keyof E>(event: K): Listener<E, K>[] {
    return this.#entries.flatMap((entry) => (entry.event === event ? [entry.listener] : []));
  }

  /** Returns the number of listeners of `event`. */
  listenerCount(event: keyof E): number {
    return this.listeners(event).length;
  }

  /** Calls the listeners of `event`. Throws what a listener throws. Returns true if there was a listener. */
  emit<K extends keyof E>(event: K, ...args: Parameters<E[K]>): boolean {
    this.#check(event);
    return this.tell(event, args, (error) => {
      throw error;
    });
  }

  /**
   * As `emit`, and passes the error or rejection of a listener to `failed`: a failing listener must break neither the emitting code nor the
   * listeners after it. By default, the error is uncaught. @internal
   */
  tell<K extends keyof E>(event: K, args: Parameters<E[K]>, failed: (error: unknown) => void = uncaught): boolean {
    const listeners = this.listeners(event);
    if (listeners.length === 0) return false;
    this.#keep((entry) => !entry.isOnce || entry.event !== event);
    for (const listener of listeners) attempt(() => listener.apply(this, args), failed);
    return true;
  }

  #check(event: keyof E): void {
    if (Object.hasOwn(this.#known, event)) return;
    const names = Object.keys(this.#known).join(", ");
    throw new TypeError(
      `Unknown event \`${String(event)}\`; known are ${names}. Methods are served in \`methods\`, and called by \`notify\``,
    );
  }
}
