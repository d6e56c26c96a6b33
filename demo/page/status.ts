/** Shows the state of the connection in a word, and the buttons that end it. */
import { byId } from "./dom.js";

/** `back` is `live` after `reconnecting`. */
export type State = "connecting" | "live" | "reconnecting" | "back" | "closed";

const WORDS: Readonly<Record<State, string>> = {
  connecting: "Connecting",
  live: "Live",
  reconnecting: "Reconnecting",
  back: "Back",
  closed: "Closed",
};
const BACK_MS = 3000;

const status = byId("status", HTMLElement);
const cut = byId("cut", HTMLButtonElement);
const kill = byId("kill", HTMLButtonElement);
let shown: State = "connecting";
let settling: ReturnType<typeof setTimeout> | undefined;

/** Shows a state. */
export function show(now: State): void {
  clearTimeout(settling);
  shown = now;
  status.textContent = WORDS[now];
  document.documentElement.dataset["connection"] = now;
  // The button keeps the focus. With `disabled` it would lose it.
  for (const each of [cut, kill]) each.ariaDisabled = String(!isUp(now));
  if (now === "back") settling = setTimeout(() => show("live"), BACK_MS);
}

/** Returns the state that is shown. */
export function state(): State {
  return shown;
}

/** Calls `act` when the button that cuts is pressed while a connection is open. Returns a function that presses it. */
export function onCut(act: () => void): () => void {
  return whenUp(cut, act);
}

/** Calls `end` when the button that kills the node is pressed while a connection is open. */
export function onKill(end: () => void): void {
  whenUp(kill, end);
}

function whenUp(button: HTMLButtonElement, act: () => void): () => void {
  const press = (): void => {
    if (isUp(shown)) act();
  };
  button.addEventListener("click", press);
  return press;
}

function isUp(now: State): boolean {
  return now === "live" || now === "back";
}
