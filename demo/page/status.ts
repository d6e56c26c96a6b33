/** Shows the state of the connection in a word, and the switch that cuts it. */
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
let settling: ReturnType<typeof setTimeout> | undefined;

/** Shows a state. */
export function show(state: State): void {
  clearTimeout(settling);
  status.textContent = WORDS[state];
  document.documentElement.dataset["connection"] = state;
  // The button keeps the focus. With `disabled` it would lose it.
  cut.ariaDisabled = String(!isUp(state));
  if (state === "back") settling = setTimeout(() => show("live"), BACK_MS);
}

/** Calls `switchOff` when the switch is pressed while a connection is open. */
export function onCut(switchOff: () => void): void {
  cut.addEventListener("click", () => {
    if (cut.ariaDisabled !== "true") switchOff();
  });
}

function isUp(state: State): boolean {
  return state === "live" || state === "back";
}
