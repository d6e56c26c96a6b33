/**
 * When a node repeats what it has said last of a topic: some times after it, and not for ever. So a node that missed the last message of a
 * topic learns that, and a quiet topic costs nothing.
 */

/** How long after the last change. */
const DELAYS_MS = [1_000, 10_000, 60_000];

/** The topics of which a node repeats its digest. Times are in milliseconds. */
export class Digests {
  /** By how often it was repeated: when each topic is due, the earliest first. A topic is in one of them. */
  readonly #due = DELAYS_MS.map(() => new Map<string, number>());

  /** Whether nothing is due any more. */
  get isEmpty(): boolean {
    return this.#due.every(({ size }) => size === 0);
  }

  /** A topic was changed. */
  changed(topic: string, now: number): void {
    for (const due of this.#due) due.delete(topic);
    this.#due[0]!.set(topic, now + DELAYS_MS[0]!);
  }

  /** Yields the topics that are due, and whether each is repeated for the last time. */
  *take(now: number): Iterable<[topic: string, isLast: boolean]> {
    for (const [i, due] of this.#due.entries()) {
      const next = this.#due[i + 1];
      for (const [topic, at] of due) {
        if (at > now) break;
        due.delete(topic);
        next?.set(topic, at - DELAYS_MS[i]! + DELAYS_MS[i + 1]!);
        yield [topic, next === undefined];
      }
    }
  }
}
