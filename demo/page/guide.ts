/** "Try this": four steps. A button takes each step. The step is ticked off when it has happened, also without the button. */
import { byId } from "./dom.js";

export type Step = "draw" | "window" | "cut" | "clear";

const list = byId("steps", HTMLElement);

/** Ticks a step off. */
export function tickOff(step: Step): void {
  const item = list.querySelector<HTMLElement>(`[data-step=${step}]`)!;
  if (item.dataset["done"] !== undefined) return;
  item.dataset["done"] = "";
  item.querySelector(".unseen")!.textContent = " (done)";
}

/** Makes the steps act. The second step is a link. */
export function start(acts: Readonly<Record<Exclude<Step, "window">, () => void>>): void {
  for (const [step, act] of Object.entries(acts))
    list.querySelector(`[data-step=${step}] button`)!.addEventListener("click", act);
}
