/**
 * The person's name and colour, random at first, and editable. Each window has its own, which a reload keeps. The last choice
 * is stored for the next window.
 */
import type { Color, Profile } from "../api.js";
import { byId, cut, limit } from "./dom.js";

const ADJECTIVES = ["Brave", "Calm", "Dizzy", "Eager", "Fancy", "Jolly", "Lucky", "Quick", "Sunny", "Witty"];
const ANIMALS = ["Badger", "Falcon", "Gecko", "Heron", "Lynx", "Otter", "Panda", "Puffin", "Tapir", "Yak"];
const COLORS: Color[] = ["red", "orange", "green", "blue", "violet", "pink"];
/** In the split view, the second person has a name and a colour of their own. */
const isSecond = new URLSearchParams(location.search).get("seat") === "2";
const KEY = isSecond ? "reciproc-demo-2" : "reciproc-demo";
const MOST_NAME = 24;

const field = byId("name", HTMLInputElement);
const colors = byId("colors", HTMLFormElement);
const choices = [...colors.querySelectorAll("input")];

/** Returns the current name and colour. */
export function read(): Profile {
  return chosen;
}

/** Calls `change` with each new choice. */
export function onChange(change: (profile: Profile) => void): void {
  const changed = (): void => {
    choose({ name: field.value.trim() || chosen.name, color: new FormData(colors).get("color") as Color });
    store(() => localStorage);
    change(chosen);
  };
  field.addEventListener("change", changed);
  colors.addEventListener("change", changed);
  byId("me", HTMLFormElement).addEventListener("submit", (event) => {
    event.preventDefault();
    field.blur();
  });
}

/** Adopts the profile that the server assigned to this window. */
export function adopt(profile: Profile): void {
  // A name that is being typed stays in the field.
  if (profile.name !== chosen.name || profile.color !== chosen.color) choose(profile);
}

function choose(profile: Profile): void {
  chosen = profile;
  field.value = profile.name;
  for (const choice of choices) choice.checked = choice.value === profile.color;
  document.documentElement.style.setProperty("--mine", `var(--${profile.color})`);
  store(() => sessionStorage);
}

function store(storage: () => Storage): void {
  try {
    storage().setItem(KEY, JSON.stringify(chosen));
  } catch {
    // Storage is full or switched off: the name lasts as long as the page.
  }
}

/** Reads the stored profile. Checks each part, because other code can write to the storage. */
function remembered(): Partial<Profile> {
  try {
    const stored = sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "{}";
    const { name, color } = JSON.parse(stored) as Record<string, unknown>;
    const kept = typeof name === "string" ? cut(name.trim(), MOST_NAME) : "";
    const known = choices.find(({ value }) => value === color);
    return {
      ...(kept && { name: kept }),
      ...(known && { color: known.value as Color }),
    };
  } catch {
    // Storage is switched off, or holds something else under this key.
    return {};
  }
}

function pick<T>(list: readonly T[]): T {
  return list[Math.floor(Math.random() * list.length)]!;
}

let chosen: Profile = { name: `${pick(ADJECTIVES)} ${pick(ANIMALS)}`, color: pick(COLORS), ...remembered() };
limit(field, MOST_NAME);
choose(chosen);
