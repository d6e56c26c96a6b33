/** The carets of the other people in a text, with names and colours, and their selections. */
import {
  StateEffect,
  StateField,
  type EditorState,
  type Extension,
  type Range,
  type Transaction,
} from "@codemirror/state";
import { Decoration, EditorView, WidgetType, type DecorationSet } from "@codemirror/view";
import type { Color, Person, Selection } from "../../api.js";
import { element } from "../dom.js";

/** The selection of a person, and the number of its moves. The name is shown again at each move. */
interface Place extends Selection {
  moves: number;
}

interface Carets {
  people: ReadonlyMap<string, Person>;
  places: ReadonlyMap<string, Place>;
}

/** Moves the selection of another person. */
export const moved = StateEffect.define<Selection & { id: string }>();
/** Replaces the selections of all other people in this text. */
export const found = StateEffect.define<readonly (Selection & { id: string })[]>();
/** Removes the selection of a person who has left this text. */
export const left = StateEffect.define<string>();
/** Replaces the list of the other people. A person who is not in it has left. */
export const met = StateEffect.define<ReadonlyMap<string, Person>>();
/** The person whose changes come with the transaction. */
export const edited = StateEffect.define<string>();

const field = StateField.define<Carets>({
  create: () => ({ people: new Map(), places: new Map() }),
  update(carets, transaction) {
    let { people, places } = carets;
    if (transaction.docChanged) places = carried(places, transaction);
    for (const effect of transaction.effects) {
      if (effect.is(met)) {
        people = effect.value;
        places = new Map([...places].filter(([id]) => people.has(id)));
      }
      if (effect.is(left)) places = new Map([...places].filter(([id]) => id !== effect.value));
      if (effect.is(found)) places = new Map(effect.value.map((place) => moveTo(place, places)));
      if (effect.is(moved)) places = new Map([...places, moveTo(effect.value, places)]);
    }
    return people === carets.people && places === carets.places ? carets : { people, places };
  },
  provide: (carets) => EditorView.decorations.from(carets, decorations),
});

/** The extension that shows the carets. */
export const carets: Extension = field;

/** Returns the other people who are in a text. */
export function whoIsIn(state: EditorState): Person[] {
  const { people, places } = state.field(field);
  return [...people.values()].filter(({ id }) => places.has(id));
}

function moveTo({ id, anchor, head }: Selection & { id: string }, places: Carets["places"]): [string, Place] {
  return [id, { anchor, head, moves: (places.get(id)?.moves ?? 0) + 1 }];
}

/** Moves a caret. Text typed at a caret moves it only if its own person typed. The server uses the same rule. */
function carried(places: Carets["places"], { changes, effects }: Transaction): Carets["places"] {
  const authors = new Set(effects.flatMap((effect) => (effect.is(edited) ? effect.value : [])));
  const entries = [...places].map(([id, { anchor, head, moves }]): [string, Place] => {
    const isAuthor = authors.has(id);
    const side = isAuthor ? 1 : -1;
    const at = (place: number): number => changes.mapPos(place, side);
    return [id, { anchor: at(anchor), head: at(head), moves: moves + Number(isAuthor) }];
  });
  return new Map(entries);
}

function decorations({ people, places }: Carets): DecorationSet {
  const ranges: Range<Decoration>[] = [];
  for (const [id, { anchor, head, moves }] of places) {
    const person = people.get(id);
    if (person === undefined) continue;
    const [from, to] = [Math.min(anchor, head), Math.max(anchor, head)];
    const attributes = { style: `--c: var(--${person.color})` };
    if (from < to) ranges.push(Decoration.mark({ class: "theirs", attributes }).range(from, to));
    // On the side of the selection, because a caret at the end of a line must not move to the next line.
    const side = head < anchor ? 1 : -1;
    ranges.push(Decoration.widget({ widget: new Caret(person.name, person.color, moves), side }).range(head));
  }
  return Decoration.set(ranges, true);
}

class Caret extends WidgetType {
  readonly #name: string;
  readonly #color: Color;
  readonly #moves: number;

  constructor(name: string, color: Color, moves: number) {
    super();
    this.#name = name;
    this.#color = color;
    this.#moves = moves;
  }

  override eq(other: Caret): boolean {
    return this.#name === other.#name && this.#color === other.#color && this.#moves === other.#moves;
  }

  override toDOM(): HTMLElement {
    const caret = element("span", "caret");
    caret.style.setProperty("--c", `var(--${this.#color})`);
    caret.append(element("span", "name", this.#name));
    return caret;
  }
}
