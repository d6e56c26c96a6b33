/** Counts the objects and listeners that a test allows. */
import { getEventListeners } from "node:events";
import { vi } from "vitest";

/** Returns a signal, and a function that counts its listeners. */
export function countedSignal(): { controller: AbortController; signal: AbortSignal; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  return { controller, signal, listeners: () => getEventListeners(signal, "abort").length };
}

/** Counts the instances made of a class of this runtime, until `vi.unstubAllGlobals()`. */
export function countMade(name: "AbortController" | "DOMException" | "Error"): { count: number } {
  const made = { count: 0 };
  const Original = globalThis[name] as new (...args: unknown[]) => object;
  vi.stubGlobal(
    name,
    class extends Original {
      constructor(...args: unknown[]) {
        super(...args);
        made.count++;
      }
    },
  );
  return made;
}
