/** The chat: its lines and the field for a new line. */
import type { Line } from "../api.js";
import { byId, element, limit } from "./dom.js";
import { complain } from "./notice.js";

const MOST_LINES = 200;
const MOST_TEXT = 300;
const lines = byId("lines", HTMLElement);
const form = byId("say", HTMLFormElement);
const input = byId("text", HTMLInputElement);
let atEnd = true;
let height = 0;

/** Replaces all lines. */
export function load(all: readonly Line[]): void {
  lines.replaceChildren();
  for (const line of all) show(line);
}

/** Adds a line, and scrolls to it unless the reader is looking further up. */
export function show({ name, color, text }: Line): void {
  const item = element("li", "line");
  item.style.setProperty("--c", `var(--${color})`);
  item.append(element("b", "name", name), element("span", "text", text));
  lines.append(item);
  if (lines.childElementCount > MOST_LINES) lines.firstElementChild!.remove();
  follow();
}

function follow(): void {
  if (atEnd) lines.scrollTop = lines.scrollHeight;
}

lines.addEventListener("scroll", () => {
  // If the height has changed, the event is not from the reader.
  if (lines.clientHeight === height) atEnd = lines.scrollHeight - lines.scrollTop - height < 20;
});
// The panel above may take some of its height.
new ResizeObserver(() => {
  height = lines.clientHeight;
  follow();
}).observe(lines);

/** Calls `say` with each line. Clears the field at once, and restores a line whose call failed. */
export function onSay(say: (text: string) => Promise<unknown>): void {
  limit(input, MOST_TEXT);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    input.value = "";
    if (text === "") return;
    say(text).catch((error: unknown) => {
      input.value = `${text} ${input.value}`.trim();
      complain(error);
    });
  });
}
