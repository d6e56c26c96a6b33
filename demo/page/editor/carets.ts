/** Where the others are in a text: their carets, with their names and colours, and what they have selected. */
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

/** Somebody's selection, and how often they moved it: at each move their name appears again. */
interface Place extends Selection {
  moves: number;
}

interface Carets {
  people: ReadonlyMap<string, Person>;
  places: ReadonlyMap<string, Place>;
}

/** Somebody else is there now, and nowhere else. */
export const moved = StateEffect.define<Selection & { id: string }>();
/** Where everybody else is who is in this text. */
export const found = StateEffect.define<readonly (Selection & { id: string })[]>();
/** Somebody is no longer in this text. */
export const left = StateEffect.define<string>();
/** Who the others are; whoever is not among them has gone. */
export const met = StateEffect.define<ReadonlyMap<string, Person>>();
/** Whose changes come with it. */
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

/** Their part of the editor. */
export const carets: Extension = field;

/** Who of the others is in a text. */
export function whoIsIn(state: EditorState): Person[] {
  const { people, places } = state.field(field);
  return [...people.values()].filter(({ id }) => places.has(id));
}

function moveTo({ id, anchor, head }: Selection & { id: string }, places: Carets["places"]): [string, Place] {
  return [id, { anchor, head, moves: (places.get(id)?.moves ?? 0) + 1 }];
}

/** A caret goes along with what its own person types there, and stays before what others do. The server reckons the same. */
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
    // On the side of the selection: at a line's end a caret must not slip onto the next line.
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
