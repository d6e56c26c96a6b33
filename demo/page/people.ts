/** Shows the people who are present, their round trips and their pointers. */
import type { Person } from "../api.js";
import { byId, element } from "./dom.js";

const list = byId("people", HTMLElement);
const count = byId("count", HTMLElement);
const cursors = byId("cursors", HTMLElement);
const IDLE_MS = 5000;
const shown = new Map<string, { cursor: HTMLElement; idle: ReturnType<typeof setTimeout> | undefined }>();
let people: readonly Person[] = [];
let roundTrips = new Map<string, number>();

/** Replaces the list of people. `you` is marked. */
export function show(now: readonly Person[], you: string): void {
  people = now;
  count.textContent = `${people.filter(({ isAway }) => !isAway).length} here`;
  list.replaceChildren(
    ...people.map(({ id, name, color, isAway }) => {
      const item = element("li", isAway ? "person away" : "person");
      // A long name is cut off.
      item.title = isAway ? `${name} is reconnecting` : name;
      item.style.setProperty("--c", `var(--${color})`);
      item.dataset["id"] = id;
      item.classList.toggle("you", id === you);
      const label = element("span", "name");
      label.append(element("span", "given", name), id === you ? " (you)" : "");
      item.append(element("span", "dot"), label, element("span", "ms"));
      return item;
    }),
  );
  showRoundTrips();
  for (const [id, { cursor }] of shown) {
    const person = people.find((other) => other.id === id);
    if (person === undefined) {
      cursor.remove();
      shown.delete(id);
    } else dress(cursor, person);
  }
}

/** Returns the people who are present. */
export function here(): readonly Person[] {
  return people;
}

/** Moves a person's cursor. It fades when it stops. */
export function move({ id, x, y }: { id: string; x: number; y: number }): void {
  const person = people.find((other) => other.id === id);
  if (person === undefined) return;
  const one = shown.get(id) ?? { cursor: appear(person), idle: undefined };
  shown.set(id, one);
  one.cursor.style.setProperty("--x", String(x));
  one.cursor.style.setProperty("--y", String(y));
  one.cursor.classList.remove("idle");
  clearTimeout(one.idle);
  one.idle = setTimeout(() => one.cursor.classList.add("idle"), IDLE_MS);
}

/** Shows the newest round trips. */
export function measure(measured: readonly { id: string; ms: number }[]): void {
  roundTrips = new Map(measured.map(({ id, ms }) => [id, ms]));
  showRoundTrips();
}

function showRoundTrips(): void {
  for (const item of list.querySelectorAll<HTMLElement>(".person")) {
    const ms = roundTrips.get(item.dataset["id"]!);
    item.querySelector(".ms")!.textContent = ms === undefined ? "" : `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
  }
}

function appear(person: Person): HTMLElement {
  const cursor = element("div", "cursor");
  cursor.append(byId("arrow", HTMLTemplateElement).content.cloneNode(true), element("span", "name"));
  dress(cursor, person);
  cursors.append(cursor);
  return cursor;
}

function dress(cursor: HTMLElement, { name, color, isAway }: Person): void {
  if (isAway) cursor.classList.add("idle");
  cursor.style.setProperty("--c", `var(--${color})`);
  cursor.querySelector(".name")!.textContent = name;
}
