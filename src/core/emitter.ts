/** Events whose listeners may fail. */
import { expected } from "./errors.js";
import { attempt, uncaught } from "./tell.js";

/** The listeners of an emitter, by the name of the event. */
export type EventMap<E> = Record<keyof E, (...args: any[]) => unknown>;

interface Entry {
  readonly event: PropertyKey;
  readonly listener: (...args: any[]) => unknown;
  readonly isOnce: boolean;
}

/** Most emitters have no listener. */
const NONE: readonly Entry[] = [];

let takeDue: (emitter: EventEmitter<any>, event: PropertyKey) => readonly Entry[];

/**
 * Calls every listener, and passes its error or rejection to `failed`: a failing listener must break neither the emitting code
 * nor the listeners after it. By default, the error is uncaught.
 * Returns true if there was a listener.
 */
export function tell(
  emitter: EventEmitter<any>,
  event: PropertyKey,
  args: unknown[],
  failed: (error: unknown) => void = uncaught,
): boolean {
  const due = takeDue(emitter, event);
  for (const { listener } of due) attempt(() => listener.apply(emitter, args), failed);
  return due.length > 0;
}

/** Emits the events of `E`. Its functions are those of Node's `EventEmitter`, and a failing listener does not affect the others. */
export class EventEmitter<E extends EventMap<E>> {
  readonly #known: object;
  /** In the order in which they were added. Replaced at each change, so that the listeners of an event that is being emitted stay. */
  #entries = NONE;

  /** `known`: has a member for each event. A listener of any other event would never be called, so it is refused. */
  constructor(known: Record<keyof E, 0>) {
    this.#known = known;
  }

  /** Calls `listener` at each event. Throws a `TypeError` for an unknown event, and for what is no function. */
  on<K extends keyof E>(event: K, listener: (...args: Parameters<E[K]>) => unknown): this {
    return this.#add(event, listener, false);
  }

  /** As `on`. */
  addListener<K extends keyof E>(event: K, listener: (...args: Parameters<E[K]>) => unknown): this {
    return this.#add(event, listener, false);
  }

  /** As `on`, for the next event only. */
  once<K extends keyof E>(event: K, listener: (...args: Parameters<E[K]>) => unknown): this {
    return this.#add(event, listener, true);
  }

  /** Removes a listener. Does nothing if there is none. */
  off<K extends keyof E>(event: K, listener: (...args: Parameters<E[K]>) => unknown): this {
    return this.#keep((entry) => entry.event !== event || entry.listener !== listener);
  }

  /** As `off`. */
  removeListener<K extends keyof E>(event: K, listener: (...args: Parameters<E[K]>) => unknown): this {
    return this.off(event, listener);
  }

  /** Removes the listeners of an event; without `event`, of all events. */
  removeAllListeners(event?: keyof E): this {
    return this.#keep((entry) => event !== undefined && entry.event !== event);
  }

  /** Calls the listeners of an event. What one throws is uncaught. Returns whether there was one. Throws a `TypeError` for an unknown event. */
  emit<K extends keyof E>(event: K, ...args: Parameters<E[K]>): boolean {
    this.#check(event);
    return tell(this, event, args);
  }

  /** Returns the listeners of an event. */
  listeners<K extends keyof E>(event: K): ((...args: Parameters<E[K]>) => unknown)[] {
    return this.#entries.filter((entry) => entry.event === event).map(({ listener }) => listener);
  }

  /** Returns how many listeners an event has. */
  listenerCount(event: keyof E): number {
    return this.listeners(event).length;
  }

  /** Returns the events that have listeners. */
  eventNames(): (keyof E)[] {
    return [...new Set(this.#entries.map(({ event }) => event as keyof E))];
  }

  #add(event: PropertyKey, listener: Entry["listener"], isOnce: boolean): this {
    this.#check(event);
    if (typeof listener !== "function") throw expected("listener", "a function", listener);
    this.#entries = [...this.#entries, { event, listener, isOnce }];
    return this;
  }

  #keep(stays: (entry: Entry) => boolean): this {
    this.#entries = this.#entries.filter(stays);
    return this;
  }

  #check(event: PropertyKey): void {
    if (Object.hasOwn(this.#known, event)) return;
    const names = Object.keys(this.#known).join(", ");
    throw new TypeError(
      `Unknown event \`${String(event)}\`; known are ${names}. Methods are served in \`methods\`, and called by \`notify\``,
    );
  }

  static {
    takeDue = (emitter, event) => {
      const due = emitter.#entries.filter((entry) => entry.event === event);
      if (due.some(({ isOnce }) => isOnce)) emitter.#keep((entry) => entry.event !== event || !entry.isOnce);
      return due;
    };
  }
}
