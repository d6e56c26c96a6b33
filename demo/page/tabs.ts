/** On a narrow screen the panels are tabs; on a wide one all are seen and these buttons are not. */
import { byId } from "./dom.js";

/** Lets the buttons choose. */
export function start(): void {
  const panels = byId("panels", HTMLElement);
  const buttons = [...byId("tabs", HTMLElement).querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      panels.dataset["tab"] = button.value;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    });
  }
}
