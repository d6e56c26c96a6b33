/** The documents of the editor on the server: the changes of all people in one order. */
import { randomUUID } from "node:crypto";
import { rebaseUpdates, type Update as Rebased } from "@codemirror/collab";
import { ChangeSet, Text } from "@codemirror/state";
import { RpcError } from "reciproc/node";
import type { Caret, Change, DocumentName, Moment, Opened, Selection, Update } from "./api.js";

/** The longest document. A language server reads it at each change, and each joining page gets all of it. */
const MOST_CHARACTERS = 20_000;
/** The most changes that are kept. A page that missed more gets the whole text again. */
const MOST_UPDATES = 1000;

/** One document. It exists as long as this process. */
export class SharedDocument {
  readonly #name: DocumentName;
  readonly #life = randomUUID();
  readonly #carets = new Map<string, Caret>();
  #text: Text;
  /** The newest changes. Older ones are dropped. */
  #updates: Rebased[] = [];
  #forgotten = 0;

  constructor(name: DocumentName, text: string) {
    this.#name = name;
    this.#text = Text.of(text.split("\n"));
  }

  get version(): number {
    return this.#forgotten + this.#updates.length;
  }

  /** Returns the changes since a version, or the whole text if that version is unknown or too old. */
  open(since: Moment | undefined): Opened {
    const missed = since?.life === this.#life ? this.#since(since.version) : undefined;
    return {
      life: this.#life,
      version: this.version,
      content: missed === undefined ? { text: this.#text.toString() } : { updates: missed.map(written) },
      carets: [...this.#carets.values()],
    };
  }

  /**
   * Makes changes to `version`. Returns them rebased onto the newest version, without those that a page sent again because it
   * missed the response. Throws an `RpcError` if they do not fit, and then makes none of them.
   */
  edit(version: number, page: string, changes: readonly Change[], by: string): Update[] {
    const over = this.#since(version);
    if (over === undefined) throw new RpcError(409, `There is no version ${version} of this document any more`);
    const { updates, text } = this.#rebase(changes, page, over);
    if (text.length > MOST_CHARACTERS && text.length > this.#text.length)
      throw new RpcError(413, `The document is full: ${MOST_CHARACTERS} characters is all it takes`);
    this.#text = text;
    this.#updates.push(...updates);
    for (const { changes: change } of updates) this.#moveCarets(change, by);
    this.#forgotten += this.#updates.splice(0, this.#updates.length - MOST_UPDATES).length;
    return updates.map(written);
  }

  /** Notes the selection of a person at `version`. Returns it in the newest version; `undefined` if `version` is too old. */
  point(id: string, version: number, { anchor, head }: Selection): Caret | undefined {
    const over = this.#since(version);
    if (over === undefined) return undefined;
    const now = (place: number): number => {
      const length = over[0]?.changes.length ?? this.#text.length;
      return over.reduce((at, { changes }) => changes.mapPos(at, -1), Math.min(place, length));
    };
    const caret = { id, document: this.#name, anchor: now(anchor), head: now(head) };
    this.#carets.set(id, caret);
    return caret;
  }

  /** Removes the caret of a person. */
  leave(id: string): void {
    this.#carets.delete(id);
  }

  #since(version: number): Rebased[] | undefined {
    const first = version - this.#forgotten;
    return first >= 0 && first <= this.#updates.length ? this.#updates.slice(first) : undefined;
  }

  #rebase(changes: readonly Change[], clientID: string, over: Rebased[]): { updates: readonly Rebased[]; text: Text } {
    try {
      const given = changes.map((change) => ({ clientID, changes: ChangeSet.fromJSON(change) }));
      const updates = rebaseUpdates(given, over);
      return { updates, text: updates.reduce((text, update) => update.changes.apply(text), this.#text) };
    } catch {
      // A `RangeError`: the changes were made for a text of another length.
      throw new RpcError(409, "These changes do not fit the document");
    }
  }

  /** Moves the carets. Text typed at a caret moves it only if its own person typed. The pages use the same rule. */
  #moveCarets(change: ChangeSet, by: string): void {
    for (const [id, { anchor, head, ...rest }] of this.#carets) {
      const side = id === by ? 1 : -1;
      this.#carets.set(id, { ...rest, anchor: change.mapPos(anchor, side), head: change.mapPos(head, side) });
    }
  }
}

function written({ clientID, changes }: Rebased): Update {
  return { page: clientID, change: changes.toJSON() as Change };
}
