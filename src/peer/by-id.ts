/** Members by the id of their call. A caller may use one id for several calls, so each id has a set of them. */
import type { Id } from "../message/message.js";

const NONE: readonly never[] = [];

/** `"1"` is not 1. */
export class ById<T> {
  readonly #sets = new Map<Id, Set<T>>();

  /** Adds `member`, once. */
  add(id: Id, member: T): void {
    const set = this.#sets.get(id);
    if (set === undefined) this.#sets.set(id, new Set([member]));
    else set.add(member);
  }

  /** Removes `member`, if it is there. */
  delete(id: Id, member: T): void {
    const set = this.#sets.get(id);
    if (set?.delete(member) && set.size === 0) this.#sets.delete(id);
  }

  /** The members of `id`. */
  get(id: Id): Iterable<T> {
    return this.#sets.get(id) ?? NONE;
  }

  /** Removes the members of `id`, and returns them. */
  take(id: Id): Iterable<T> {
    const members = this.get(id);
    this.#sets.delete(id);
    return members;
  }
}
