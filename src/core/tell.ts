/** Emitting events to listeners that may throw. */
import type { EventEmitter } from "eventemitter3";

/**
 * Emits, and hands what a listener throws to `failed`: a listener must not break what told it. What an `error` listener
 * throws has nobody left to take it, and surfaces as an uncaught exception.
 */
export function tell(
  emitter: EventEmitter<any>,
  event: string,
  args: unknown[],
  failed: (error: unknown) => void = uncaught,
): void {
  try {
    emitter.emit(event, ...args);
  } catch (error) {
    failed(error);
  }
}

function uncaught(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
