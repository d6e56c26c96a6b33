/** Shows the state of the connection in a word, and the switches that cut it: beside the people, and in the split view in the header. */
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
const switches = [byId("cut", HTMLButtonElement), byId("cut-seat", HTMLButtonElement)];
let shown: State = "connecting";
let settling: ReturnType<typeof setTimeout> | undefined;

/** Shows a state. */
export function show(now: State): void {
  clearTimeout(settling);
  shown = now;
  status.textContent = WORDS[now];
  document.documentElement.dataset["connection"] = now;
  // The button keeps the focus. With `disabled` it would lose it.
  for (const each of switches) each.ariaDisabled = String(!isUp(now));
  if (now === "back") settling = setTimeout(() => show("live"), BACK_MS);
}

/** Returns the state that is shown. */
export function state(): State {
  return shown;
}

/** Calls `switchOff` when a switch is pressed while a connection is open. Returns a function that presses a switch. */
export function onCut(switchOff: () => void): () => void {
  const press = (): void => {
    if (isUp(shown)) switchOff();
  };
  for (const each of switches) each.addEventListener("click", press);
  return press;
}

function isUp(now: State): boolean {
  return now === "live" || now === "back";
}
