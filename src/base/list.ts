/**
 * A list whose members hold its links, for objects that come and go with every call.
 *
 * It is not a Set: V8 gives a Set a new table whenever deleted members have filled the old one, and each table points to the
 * next. Once one table is old, all later tables survive every young collection, with all their members. That took a fourth of
 * the time of many calls in flight (docs/PERFORMANCE.md).
 */

/** A member of a list. It is in one list at a time. The links belong to the list. */
export interface Linked {
  before?: Linked | undefined;
  after?: Linked | undefined;
}

/** Members in the order they were added. */
export class List<T extends Linked> implements Linked {
  before: Linked = this;
  after: Linked = this;

  get first(): T | undefined {
    return this.after === this ? undefined : (this.after as T);
  }

  /** Adds a member that is in no list. */
  add(member: T): void {
    member.before = this.before;
    member.after = this;
    this.before.after = member;
    this.before = member;
  }

  /** The members at this moment, of which `isWanted` may choose some. */
  toArray(isWanted?: (member: T) => boolean): T[] {
    const members: T[] = [];
    for (let member = this.after; member !== this; member = member.after!)
      if (isWanted?.(member as T) !== false) members.push(member as T);
    return members;
  }
}

/** Removes a member from its list. Returns false if it was in none. A link that stayed would keep the member from being collected. */
export function unlink(member: Linked): boolean {
  const { before, after } = member;
  if (before === undefined) return false;
  before.after = after;
  after!.before = before;
  member.before = member.after = undefined;
  return true;
}
