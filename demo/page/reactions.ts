/** Reactions that float up over the board, as pictures of the page. */
import type { Profile, Reaction } from "../api.js";
import { byId, element } from "./dom.js";

const MOST = 40;
const sky = byId("sky", HTMLElement);

/** Shows a reaction that rises, with the name of its sender. */
export function float({ name, color, reaction }: Profile & { reaction: Reaction }): void {
  if (sky.childElementCount >= MOST) sky.firstElementChild!.remove();
  const balloon = element("div", "balloon");
  balloon.dataset["reaction"] = reaction;
  balloon.append(pictureOf(reaction), element("span", "name", name));
  balloon.style.setProperty("--c", `var(--${color})`);
  balloon.style.setProperty("--x", (0.1 + Math.random() * 0.8).toFixed(2));
  balloon.style.setProperty("--sway", `${Math.round(Math.random() * 60 - 30)}px`);
  balloon.addEventListener("animationend", () => balloon.remove());
  sky.append(balloon);
}

/** Calls `react` with the reaction of each pressed button. */
export function onReact(react: (reaction: Reaction) => void): void {
  for (const button of byId("reactions", HTMLElement).querySelectorAll("button")) {
    button.addEventListener("click", () => react(button.value as Reaction));
  }
}

/** Returns a copy of the picture on the button, without the blanks of its source. */
function pictureOf(reaction: Reaction): Node {
  const picture = document.querySelector(`#reactions [value=${reaction}] svg`)!.cloneNode(true) as SVGElement;
  picture.replaceChildren(...picture.children);
  return picture;
}
