/** Short words for what every module does with the document. */

/** The element of that id, which must be there and of that type. */
export function byId<T extends Element>(id: string, type: abstract new () => T): T {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${type.name} with the id "${id}"`);
}

/** A new element with a class and a text. Text, never HTML: names and chat lines come from other people. */
export function element(tag: string, className: string, text = ""): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

const characters = new Intl.Segmenter();

/** As much of `text` as is at most `most` long, in whole characters: a flag or a family is several code units. */
export function cut(text: string, most: number): string {
  let end = 0;
  for (const { index, segment } of characters.segment(text)) {
    if (index + segment.length > most) break;
    end = index + segment.length;
  }
  return text.slice(0, end);
}

/** Keeps a field within `most`. What `maxlength` does, which would cut through a character. */
export function limit(field: HTMLInputElement, most: number): void {
  const shorten = (event: Event): void => {
    if ((event as InputEvent).isComposing || field.value.length <= most) return;
    // What was typed or pasted last stands before the caret, and it is that which does not fit.
    const caret = field.selectionEnd ?? field.value.length;
    const rest = field.value.slice(caret);
    const kept = cut(field.value.slice(0, caret), most - rest.length);
    field.value = kept + rest;
    field.setSelectionRange(kept.length, kept.length);
  };
  field.addEventListener("input", shorten);
  field.addEventListener("compositionend", shorten);
}
