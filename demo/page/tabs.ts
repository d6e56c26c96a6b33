/** On a narrow screen the panels are tabs. On a wide screen all panels are visible, and these buttons are hidden. */
import { byId } from "./dom.js";

/** Makes the buttons select panels. */
export function start(): void {
  const parts = byId("parts", HTMLElement);
  const buttons = [...byId("tabs", HTMLElement).querySelectorAll("button")];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      parts.dataset["tab"] = button.value;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    });
  }
  // In the split view there is little room, and the visitor has found the steps already. The traffic shows what happens.
  if (!new URLSearchParams(location.search).has("seat")) return;
  document.documentElement.dataset["view"] = "split";
  buttons.find(({ value }) => value === "traffic")!.click();
}
