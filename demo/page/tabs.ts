/** On a narrow screen the panels are tabs. On a wide screen all panels are visible, and these buttons are hidden. */
import { byId } from "./dom.js";

/** Makes the buttons select panels. */
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
