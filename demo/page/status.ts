/** How it stands with the connection, in a word, and the switch that cuts it. */
import { byId } from "./dom.js";

/** `back` is `live` for those who waited for it. */
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

/** Shows it. */
export function show(state: State): void {
  clearTimeout(settling);
  status.textContent = WORDS[state];
  document.documentElement.dataset["connection"] = state;
  // It keeps the focus, which `disabled` would take away.
  cut.ariaDisabled = String(!isUp(state));
  if (state === "back") settling = setTimeout(() => show("live"), BACK_MS);
}

/** Calls `switchOff` when the switch is pressed and there is something to cut. */
export function onCut(switchOff: () => void): void {
  cut.addEventListener("click", () => {
    if (cut.ariaDisabled !== "true") switchOff();
  });
}

function isUp(state: State): boolean {
  return state === "live" || state === "back";
}
