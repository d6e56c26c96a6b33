/**
 * The board as the sum of its entries: drawing and chat. The same entries in the same order make the same board, in a restarted
 * server or in another process. So this file knows neither peers nor files.
 */
import type { Line, Stroke } from "./api.js";
import { Strokes } from "./strokes.js";

/** One event of the board, as JSON. */
export type Entry = { drew: Stroke } | { erased: string } | { said: Line } | { cleared: true };

const MOST_LINES = 100;

export class BoardState {
  readonly #strokes = new Strokes();
  #chat: Line[] = [];

  get strokes(): Stroke[] {
    return this.#strokes.all();
  }

  get chat(): readonly Line[] {
    return this.#chat;
  }

  /** Applies an entry. Returns the ids of old strokes that were deleted because the board was full. Throws if it is no entry. */
  apply(entry: Entry): string[] {
    if ("drew" in entry) return this.#strokes.extend(entry.drew);
    if ("erased" in entry) this.#strokes.delete(entry.erased);
    else if ("said" in entry) this.#chat = [...this.#chat, entry.said].slice(-MOST_LINES);
    else if ("cleared" in entry) this.#strokes.clear();
    else throw new TypeError(`Expected an entry of the board, got \`${JSON.stringify(entry)}\``);
    return [];
  }

  /** Returns the newest stroke whose id begins with `prefix`. */
  newestStroke(prefix: string): string | undefined {
    return this.#strokes.newest(prefix);
  }

  /** Returns true if the line is among the newest. */
  hasLine(id: string): boolean {
    return this.#chat.some((line) => line.id === id);
  }

  /** Returns the fewest entries that make this board. */
  entries(): Entry[] {
    return [...this.strokes.map((drew) => ({ drew })), ...this.#chat.map((said) => ({ said }))];
  }
}
