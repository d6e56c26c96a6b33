/** Emitting events to listeners that may fail. */
import type { EventEmitter } from "eventemitter3";

/**
 * Tells every listener, and hands what one throws or rejects with to `failed`: a listener must break neither what told it
 * nor the listeners after it. What an `error` listener fails with has nobody left to take it, and surfaces as uncaught.
 */
export function tell(
  emitter: EventEmitter<any>,
  event: string,
  args: unknown[],
  failed: (error: unknown) => void = uncaught,
): void {
  // `emit` would stop at the first that throws, and drop the promises of those that are asynchronous.
  for (const listener of emitter.listeners(event)) {
    // Takes out only what `once` added.
    emitter.removeListener(event, listener, undefined, true);
    attempt(() => listener.apply(emitter, args), failed);
  }
}

/** Calls what somebody else wrote, and hands what it throws or rejects with to `failed`. */
export function attempt(call: () => unknown, failed: (error: unknown) => void): void {
  try {
    const result = call();
    if (result instanceof Promise) result.catch(failed);
  } catch (error) {
    failed(error);
  }
}

/** Nobody is left to take it. */
export function uncaught(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
