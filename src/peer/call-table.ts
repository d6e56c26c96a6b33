/**
 * Pending calls by id. A Map is reallocated as entries come and go. This table is reallocated only if more calls are pending than it has
 * places, and after a burst.
 */
import type { OutgoingCall } from "./outgoing-call.js";

const FEWEST_PLACES = 16;
/** A table that a burst made larger is not kept. */
const MOST_KEPT = 256;

/** A hash table with chaining. Ids count up, so few calls share a place. */
export class CallTable {
  size = 0;
  #places: (OutgoingCall | undefined)[] = places(FEWEST_PLACES);

  /** Returns the call of an id, which may be any value: `"1"` is not 1. */
  get(id: unknown): OutgoingCall | undefined {
    if (typeof id !== "number") return undefined;
    let call = this.#places[id & (this.#places.length - 1)];
    while (call !== undefined && call.id !== id) call = call.nextInPlace;
    return call;
  }

  /** Adds a call that is in no table. */
  add(call: OutgoingCall): void {
    if (this.size === this.#places.length) this.#resize(this.size * 2);
    const place = call.id & (this.#places.length - 1);
    call.nextInPlace = this.#places[place];
    this.#places[place] = call;
    this.size++;
  }

  /** Removes the call of an id, which may be any value. Returns the call; `undefined` if there is none. */
  remove(id: unknown): OutgoingCall | undefined {
    if (typeof id !== "number") return undefined;
    const place = id & (this.#places.length - 1);
    let previous: OutgoingCall | undefined;
    let call = this.#places[place];
    while (call !== undefined && call.id !== id) {
      previous = call;
      call = call.nextInPlace;
    }
    if (call === undefined) return undefined;
    if (previous === undefined) this.#places[place] = call.nextInPlace;
    else previous.nextInPlace = call.nextInPlace;
    call.nextInPlace = undefined;
    if (--this.size === 0 && this.#places.length > MOST_KEPT) this.#places = places(FEWEST_PLACES);
    return call;
  }

  /** Returns all calls, in the order they were made. */
  toArray(): OutgoingCall[] {
    const calls = this.#unordered();
    // oxlint-disable-next-line unicorn/no-array-sort -- made here, and `toSorted` is younger than some runtimes.
    return calls.sort((a, b) => a.id - b.id);
  }

  #unordered(): OutgoingCall[] {
    const calls: OutgoingCall[] = [];
    for (const first of this.#places)
      for (let call = first; call !== undefined; call = call.nextInPlace) calls.push(call);
    return calls;
  }

  #resize(length: number): void {
    const calls = this.#unordered();
    this.#places = places(length);
    this.size = 0;
    for (const call of calls) this.add(call);
  }
}

function places(length: number): undefined[] {
  return Array.from({ length }, () => undefined);
}
