/** Emoji that float up over the board. */
import type { Profile } from "../api.js";
import { byId, element } from "./dom.js";

const MOST = 40;
const sky = byId("sky", HTMLElement);

/** Shows an emoji that rises, with the name of its sender. */
export function float({ name, color, emoji }: Profile & { emoji: string }): void {
  if (sky.childElementCount >= MOST) sky.firstElementChild!.remove();
  const balloon = element("div", "balloon");
  balloon.append(element("span", "emoji", emoji), element("span", "name", name));
  balloon.style.setProperty("--c", `var(--${color})`);
  balloon.style.setProperty("--x", (0.1 + Math.random() * 0.8).toFixed(2));
  balloon.style.setProperty("--sway", `${Math.round(Math.random() * 60 - 30)}px`);
  balloon.addEventListener("animationend", () => balloon.remove());
  sky.append(balloon);
}

/** Calls `react` with the emoji of each pressed button. */
export function onReact(react: (emoji: string) => void): void {
  for (const button of byId("emojis", HTMLElement).querySelectorAll("button")) {
    button.addEventListener("click", () => react(button.value));
  }
}
