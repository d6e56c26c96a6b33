/** Counts the numbered messages of each page, so that the page can show how many of them arrived, and how often. */

/** The most pages that are remembered, and the most messages of each. Older ones are forgotten. */
const MOST_PAGES = 200;
const MOST_NUMBERS = 20_000;

export class Receipts {
  /** How often each number arrived, by page. */
  readonly #pages = new Map<string, Map<number, number>>();

  /** Notes a message. Its number is the member `n` of its params. A message without a number is not counted. */
  note(page: string, params: unknown): void {
    const n = (params as { n?: unknown } | undefined | null)?.n;
    if (typeof n !== "number") return;
    const numbers = this.#pages.get(page) ?? new Map<number, number>();
    numbers.set(n, (numbers.get(n) ?? 0) + 1);
    if (numbers.size > MOST_NUMBERS) numbers.delete(numbers.keys().next().value!);
    // The page becomes the newest.
    this.#pages.delete(page);
    this.#pages.set(page, numbers);
    if (this.#pages.size > MOST_PAGES) this.#pages.delete(this.#pages.keys().next().value!);
  }

  /** Returns how many of the numbers `from` to `to` arrived, and how many more than once. */
  count(page: string, from: number, to: number): { arrived: number; repeated: number } {
    const counts = [...(this.#pages.get(page) ?? [])].filter(([n]) => n >= from && n <= to);
    return { arrived: counts.length, repeated: counts.filter(([, times]) => times > 1).length };
  }
}
