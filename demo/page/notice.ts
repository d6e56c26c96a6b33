/** A short message over the board. */
import { byId } from "./dom.js";

const SHOWN_MS = 6000;
const notice = byId("notice", HTMLElement);
let fading: ReturnType<typeof setTimeout> | undefined;

/** Shows a message for some seconds. */
export function show(text: string): void {
  notice.textContent = text;
  notice.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => (notice.hidden = true), SHOWN_MS);
}

/** Shows an error. */
export function complain(error: unknown): void {
  show(error instanceof Error ? error.message : String(error));
}
