/** Shows the state of the connection in a word, and the buttons that end it: beside the people, and in the split view in the header. */
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
const cuts = [byId("cut", HTMLButtonElement), byId("cut-seat", HTMLButtonElement)];
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
  for (const each of [...cuts, kill]) each.ariaDisabled = String(!isUp(now));
  if (now === "back") settling = setTimeout(() => show("live"), BACK_MS);
}

/** Returns the state that is shown. */
export function state(): State {
  return shown;
}

/** Calls `cut` when a button that cuts is pressed while a connection is open. Returns a function that presses it. */
export function onCut(cut: () => void): () => void {
  return whenUp(cuts, cut);
}

/** Calls `end` when the button that kills the node is pressed while a connection is open. */
export function onKill(end: () => void): void {
  whenUp([kill], end);
}

function whenUp(buttons: readonly HTMLButtonElement[], act: () => void): () => void {
  const press = (): void => {
    if (isUp(shown)) act();
  };
  for (const each of buttons) each.addEventListener("click", press);
  return press;
}

function isUp(now: State): boolean {
  return now === "live" || now === "back";
}
