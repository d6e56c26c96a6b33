/** Two short words for what every module does with the document. */

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
