/** The chat: its lines and the field for a new line. A line that is not confirmed yet is shown in grey, at the end. */
import type { Line, Profile } from "../api.js";
import { byId, element, limit } from "./dom.js";
import { complain } from "./notice.js";

const MOST_LINES = 200;
const MOST_TEXT = 300;
const lines = byId("lines", HTMLElement);
const form = byId("say", HTMLFormElement);
const input = byId("text", HTMLInputElement);
/** The lines of this page that the server has not confirmed, by id, in order. */
const pending = new Map<string, HTMLElement>();
/** Names the lines of this page. */
const PAGE = crypto.getRandomValues(new Uint32Array(3)).join("-");
let newest = 0;
let atEnd = true;
let height = 0;

/** Replaces all confirmed lines. */
export function load(all: readonly Line[]): void {
  lines.replaceChildren(...pending.values());
  for (const line of all) show(line);
}

/** Adds a confirmed line before those that wait, and scrolls to it unless the reader is looking further up. */
export function show(line: Line): void {
  pending.get(line.id)?.remove();
  pending.delete(line.id);
  add(itemOf(line));
}

function add(item: HTMLElement): void {
  const [firstPending] = pending.values();
  lines.insertBefore(item, firstPending ?? null);
  if (lines.childElementCount > MOST_LINES) lines.firstElementChild!.remove();
  follow();
}

function itemOf({ name, color, text }: Profile & { text: string }): HTMLElement {
  const item = element("p", "line");
  item.style.setProperty("--c", `var(--${color})`);
  item.append(element("b", "name", name), element("span", "text", text));
  return item;
}

/** Shows a line of this page in grey, until the server has confirmed it. */
function showPending(id: string, line: Profile & { text: string }): void {
  const item = itemOf(line);
  item.classList.add("pending");
  item.title = "Waits for the server";
  item.append(element("span", "unseen", "(waits for the server)"));
  lines.append(item);
  pending.set(id, item);
  atEnd = true;
  follow();
}

/** The server has the line. The line itself comes back, usually before this, and takes its place. */
function confirm(id: string): void {
  const item = pending.get(id);
  item?.classList.remove("pending");
  item?.querySelector(".unseen")?.remove();
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

/**
 * Calls `say` with each line, which is shown at once under the name that `author` returns. Clears the field, and restores a line
 * whose call failed.
 */
export function onSay(author: () => Profile, say: (line: { id: string; text: string }) => Promise<unknown>): void {
  limit(input, MOST_TEXT);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    input.value = "";
    if (text === "") return;
    const id = `${PAGE}-${++newest}`;
    showPending(id, { ...author(), text });
    say({ id, text }).then(
      () => confirm(id),
      (error: unknown) => {
        pending.get(id)?.remove();
        pending.delete(id);
        input.value = `${text} ${input.value}`.trim();
        complain(error);
      },
    );
  });
}
