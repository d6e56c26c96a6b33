/** The calls that wait, by id. Unlike a Map, and like `list.ts`, it allocates no new table while calls come and go. */

/** What the table needs of a call. `beside` belongs to the table. */
interface Entry {
  readonly id: number;
  /** The next call in the same place. */
  beside: Entry | undefined;
}

const FEWEST_PLACES = 16;
/** What a burst needed beyond this is not kept. */
const MOST_KEPT = 256;

/** Each call in a place that its id names, and behind it those of the same place. Ids count up, so few share one. */
export class CallTable<T extends Entry> {
  size = 0;
  #places: (T | undefined)[] = places(FEWEST_PLACES);

  /** The call of that id, which may be anything: `"1"` is not 1. */
  get(id: unknown): T | undefined {
    if (typeof id !== "number") return undefined;
    let call = this.#places[this.#placeOf(id)];
    while (call !== undefined && call.id !== id) call = call.beside as T | undefined;
    return call;
  }

  /** Adds one that is in no table. */
  add(call: T): void {
    if (this.size === this.#places.length) this.#resize(this.size * 2);
    this.#put(call);
    this.size++;
  }

  /** Takes out one that is in it. */
  delete(call: T): void {
    const place = this.#placeOf(call.id);
    const first = this.#places[place]!;
    if (first === call) this.#places[place] = call.beside as T | undefined;
    else before(call, first).beside = call.beside;
    call.beside = undefined;
    if (--this.size === 0 && this.#places.length > MOST_KEPT) this.#places = places(FEWEST_PLACES);
  }

  /** All of them, in the order they were made. */
  toArray(): T[] {
    const calls = this.#unordered();
    // oxlint-disable-next-line unicorn/no-array-sort -- made here, and `toSorted` is younger than some runtimes.
    return calls.sort((a, b) => a.id - b.id);
  }

  #unordered(): T[] {
    const calls: T[] = [];
    for (const first of this.#places)
      for (let call = first; call !== undefined; call = call.beside as T | undefined) calls.push(call);
    return calls;
  }

  #placeOf(id: number): number {
    return id & (this.#places.length - 1);
  }

  #put(call: T): void {
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

function before(call: Entry, first: Entry): Entry {
  let other = first;
  while (other.beside !== call) other = other.beside!;
  return other;
}
