/**
 * The board's entries in a file, one JSON text a line, so that the board survives a restart of the server. An entry is in the file
 * before any page gets its message, also if the process is killed right after it. A crash of the machine may lose the last ones.
 */
import { closeSync, openSync, readFileSync, renameSync, rmSync, writeFileSync, writeSync } from "node:fs";
import type { BoardState, Entry } from "./state.js";

/** A file of this length is replaced with the fewest entries that make the same board. */
const MOST_BYTES = 4 * 2 ** 20;

export class Journal {
  readonly #path: string;
  readonly #state: BoardState;
  #file: number;
  #bytes: number;

  /** Applies the entries of the file at `path`, which need not exist, to an empty board. */
  constructor(path: string, state: BoardState) {
    this.#path = path;
    this.#state = state;
    restore(path, state);
    [this.#file, this.#bytes] = this.#rewrite();
  }

  /** Appends an entry that was applied to the board. */
  append(entry: Entry): void {
    this.#bytes += writeSync(this.#file, `${JSON.stringify(entry)}\n`);
    if (this.#bytes < MOST_BYTES) return;
    closeSync(this.#file);
    [this.#file, this.#bytes] = this.#rewrite();
  }

  /** Replaces the file. Returns it, open for appending, and its length. */
  #rewrite(): [file: number, bytes: number] {
    const text = this.#state
      .entries()
      .map((entry) => `${JSON.stringify(entry)}\n`)
      .join("");
    const next = `${this.#path}.next`;
    rmSync(next, { force: true });
    // Only its owner can read the chat. With `wx` it is a new file, and no link that another user of the machine has made.
    writeFileSync(next, text, { mode: 0o600, flag: "wx" });
    renameSync(next, this.#path);
    return [openSync(this.#path, "a"), Buffer.byteLength(text)];
  }
}

/**
 * Applies the entries up to the first line that is none: a killed process may have written a part of its last line, and another
 * version of the demo may have written other entries.
 */
function restore(path: string, state: BoardState): void {
  for (const line of contentOf(path).split("\n")) {
    try {
      state.apply(JSON.parse(line) as Entry);
    } catch {
      return;
    }
  }
}

function contentOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
