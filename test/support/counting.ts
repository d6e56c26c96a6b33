/** Counts the listeners that a test allows. */
import { getEventListeners } from "node:events";

/** Returns a signal, and a function that counts its listeners. */
export function countedSignal(): { controller: AbortController; signal: AbortSignal; listeners: () => number } {
  const controller = new AbortController();
  const { signal } = controller;
  return { controller, signal, listeners: () => getEventListeners(signal, "abort").length };
}
