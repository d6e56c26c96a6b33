/**
 * A list whose members hold its links, for what comes and goes with every call.
 *
 * Not a Set: V8 gives a Set another table whenever members that were deleted have filled it, and each table points to the one
 * after it. Once one of them is old, all that follow survive every young collection, with whatever was in them: a fourth of
 * the time of many calls in flight went there (docs/PERFORMANCE.md).
 */

/** What is in one list at a time. The links belong to the list. */
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

  /** Adds one that is in no list. */
  add(member: T): void {
    member.before = this.before;
    member.after = this;
    this.before.after = member;
    this.before = member;
  }

  /** All members at this moment. */
  toArray(): T[] {
    const members: T[] = [];
    for (let member = this.after; member !== this; member = member.after!) members.push(member as T);
    return members;
  }
}

/** Takes a member out of its list; false when it was in none. A link that stayed would keep what is gone from being collected. */
export function unlink(member: Linked): boolean {
  const { before, after } = member;
  if (before === undefined) return false;
  before.after = after;
  after!.before = before;
  member.before = member.after = undefined;
  return true;
}
