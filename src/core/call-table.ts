/** The calls that wait, by id. Like `list.ts` this makes no table anew while calls come and go, as a Map would. */
import type { PendingCall } from "./pending.js";

const FEWEST_PLACES = 16;
/** What a burst needed beyond this is not kept. */
const MOST_KEPT = 256;

/** Each call in a place that its id names, and behind it those of the same place. Ids count up, so few share one. */
export class CallTable {
  size = 0;
  #places: (PendingCall | undefined)[] = places(FEWEST_PLACES);

  /** The call of that id, which may be anything: `"1"` is not 1. */
  get(id: unknown): PendingCall | undefined {
    if (typeof id !== "number") return undefined;
    let call = this.#places[this.#placeOf(id)];
    while (call !== undefined && call.id !== id) call = call.beside;
    return call;
  }

  /** Adds one that is in no table. */
  add(call: PendingCall): void {
    if (this.size === this.#places.length) this.#resize(this.size * 2);
    this.#put(call);
    this.size++;
  }

  /** Takes out one that is in it. */
  delete(call: PendingCall): void {
    const place = this.#placeOf(call.id);
    const first = this.#places[place]!;
    if (first === call) this.#places[place] = call.beside;
    else before(call, first).beside = call.beside;
    call.beside = undefined;
    if (--this.size === 0 && this.#places.length > MOST_KEPT) this.#places = places(FEWEST_PLACES);
  }

  /** All of them, in the order they were made. */
  toArray(): PendingCall[] {
    const calls = this.#unordered();
    // oxlint-disable-next-line unicorn/no-array-sort -- made here, and `toSorted` is younger than some runtimes.
    return calls.sort((a, b) => a.id - b.id);
  }

  #unordered(): PendingCall[] {
    const calls: PendingCall[] = [];
    for (const first of this.#places) for (let call = first; call !== undefined; call = call.beside) calls.push(call);
    return calls;
  }

  #placeOf(id: number): number {
    return id & (this.#places.length - 1);
  }

  #put(call: PendingCall): void {
    const place = this.#placeOf(call.id);
    call.beside = this.#places[place];
    this.#places[place] = call;
  }

  #resize(length: number): void {
    const calls = this.#unordered();
    this.#places = places(length);
    for (const call of calls) this.#put(call);
  }
}

function places(length: number): undefined[] {
  return Array.from({ length }, () => undefined);
}

function before(call: PendingCall, first: PendingCall): PendingCall {
  let other = first;
  while (other.beside !== call) other = other.beside!;
  return other;
}
