/** Short functions for the document, which every module uses. */

/** Returns the element of an id. Throws unless it exists and has that type. */
export function byId<T extends Element>(id: string, type: abstract new () => T): T {
  const found = document.getElementById(id);
  if (found instanceof type) return found;
  throw new Error(`the page has no ${type.name} with the id "${id}"`);
}

/** Makes an element with a class and a text. The text is never HTML: names and chat lines come from other people. */
export function element(tag: string, className: string, text = ""): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

const characters = new Intl.Segmenter();

/** Returns `text` cut to `most` UTF-16 units, in whole characters: a flag or a family has several code units. */
export function cut(text: string, most: number): string {
  let end = 0;
  for (const { index, segment } of characters.segment(text)) {
    if (index + segment.length > most) break;
    end = index + segment.length;
  }
  return text.slice(0, end);
}

/** Limits a field to `most` UTF-16 units, as `maxlength` does, but without cutting a character in two. */
export function limit(field: HTMLInputElement, most: number): void {
  const shorten = (event: Event): void => {
    if ((event as InputEvent).isComposing || field.value.length <= most) return;
    // Cuts before the caret, where the newest text is.
    const caret = field.selectionEnd ?? field.value.length;
    const rest = field.value.slice(caret);
    const kept = cut(field.value.slice(0, caret), most - rest.length);
    field.value = kept + rest;
    field.setSelectionRange(kept.length, kept.length);
  };
  field.addEventListener("input", shorten);
  field.addEventListener("compositionend", shorten);
}
