/** Tabs for mouse, finger and keyboard. One tab is in the tab order, and the arrow keys select the others. */

const STEPS = new Map<string, (at: number, count: number) => number>([
  ["ArrowRight", (at, count) => (at + 1) % count],
  ["ArrowLeft", (at, count) => (at + count - 1) % count],
  ["Home", () => 0],
  ["End", (_at, count) => count - 1],
]);

/** Makes tabs of a list's buttons. Calls `chosen` with `first` at once, and with each selected tab. Returns a function that selects a tab. */
export function tablist(
  list: HTMLElement,
  first: HTMLButtonElement,
  chosen: (tab: HTMLButtonElement) => void,
): (tab: HTMLButtonElement) => void {
  const tabs = [...list.querySelectorAll("button")];
  const choose = (tab: HTMLButtonElement): void => {
    for (const each of tabs) {
      each.ariaSelected = String(each === tab);
      each.tabIndex = each === tab ? 0 : -1;
    }
    panelOf(tab)?.setAttribute("aria-labelledby", tab.id);
    chosen(tab);
  };
  for (const [at, tab] of tabs.entries()) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const next = STEPS.get(event.key)?.(at, tabs.length);
      if (next === undefined) return;
      event.preventDefault();
      tabs[next]!.focus();
      choose(tabs[next]!);
    });
  }
  choose(first);
  return choose;
}

function panelOf(tab: Element): Element | null {
  return document.getElementById(tab.getAttribute("aria-controls") ?? "");
}
