/** Who you are here: a name and a colour, by chance at first, yours to change, and remembered. */
import type { Color, Profile } from "../api.js";
import { byId } from "./dom.js";

const ADJECTIVES = ["Brave", "Calm", "Dizzy", "Eager", "Fancy", "Jolly", "Lucky", "Quick", "Sunny", "Witty"];
const ANIMALS = ["Badger", "Falcon", "Gecko", "Heron", "Lynx", "Otter", "Panda", "Puffin", "Tapir", "Yak"];
const COLORS: Color[] = ["red", "orange", "green", "blue", "violet", "pink"];
const KEY = "reciproc-demo";

const field = byId("name", HTMLInputElement);
const colors = byId("colors", HTMLFormElement);

/** The name and colour chosen now. */
export function read(): Profile {
  return {
    name: field.value.trim() || field.placeholder,
    color: (new FormData(colors).get("color") ?? "ink") as Color,
  };
}

/** Calls `change` with each new choice. */
export function onChange(change: (profile: Profile) => void): void {
  const changed = (): void => {
    const profile = read();
    paint(profile);
    remember(profile);
    change(profile);
  };
  field.addEventListener("change", changed);
  colors.addEventListener("change", changed);
  byId("me", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    field.blur();
  });
}

function remembered(): Profile {
  const chance = { name: `${pick(ADJECTIVES)} ${pick(ANIMALS)}`, color: pick(COLORS) };
  try {
    const { name, color } = JSON.parse(localStorage.getItem(KEY) ?? "") as Profile;
    return { name: name.slice(0, 24), color };
  } catch {
    // The first visit, or storage is switched off, or holds something else under this key.
    return chance;
  }
}

function remember(profile: Profile): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(profile));
  } catch {
    // Storage is full or switched off: the name lasts as long as the page.
  }
}

function paint({ color }: Profile): void {
  document.documentElement.style.setProperty("--mine", `var(--${color})`);
}

function pick<T>(list: readonly T[]): T {
  return list[Math.floor(Math.random() * list.length)]!;
}

const first = remembered();
field.value = field.placeholder = first.name;
for (const choice of colors.querySelectorAll("input")) choice.checked = choice.value === first.color;
paint(read());
remember(read());
