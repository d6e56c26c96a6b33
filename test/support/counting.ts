/** Counts the objects and listeners that a test allows. */
import { vi } from "vitest";

/** Returns a signal that counts its listeners. */
export function countedSignal(): { controller: AbortController; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  let count = 0;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...args: Parameters<typeof add>) => (count++, add(...args));
  signal.removeEventListener = (...args: Parameters<typeof remove>) => (count--, remove(...args));
  return { controller, listeners: () => count };
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
