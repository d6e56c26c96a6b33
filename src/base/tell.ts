/** Emitting events to listeners that may fail. */
import type { EventEmitter } from "./packages.js";
import { isThenable } from "./promises.js";

/**
 * Calls every listener, and passes its error or rejection to `failed`: a failing listener must break neither the emitting code
 * nor the listeners after it. By default, the error is uncaught.
 * Returns true if there was a listener.
 */
export function tell(
  emitter: EventEmitter<any>,
  event: string,
  args: unknown[],
  failed: (error: unknown) => void = uncaught,
): boolean {
  // `emit` would stop at the first that throws, and drop the promises of those that are asynchronous.
  const listeners = emitter.listeners(event);
  for (const listener of listeners) {
    // Removes only listeners that `once` added.
    emitter.removeListener(event, listener, undefined, true);
    runReporting(() => listener.apply(emitter, args), failed);
  }
  return listeners.length > 0;
}

/** Makes the emitters of a class throw a `TypeError` for an event that is not in `known`, whose listeners would never be called. */
export function refuseUnknownEvents(prototype: object, known: object): void {
  const methods = prototype as Record<string, (this: unknown, event: PropertyKey, ...rest: unknown[]) => unknown>;
  for (const name of ["on", "once", "addListener", "emit"]) {
    const inherited = methods[name]!;
    methods[name] = function (event, ...rest) {
      if (Object.hasOwn(known, event)) return inherited.call(this, event, ...rest);
      const names = Object.keys(known).join(", ");
      throw new TypeError(
        `Unknown event \`${String(event)}\`; known are ${names}. Methods are served in \`methods\`, and called by \`notify\``,
      );
    };
  }
}

/** A server may add and remove methods for as long as it lives. */
const MOST_WARNINGS = 1000;

/** The methods of each server, or other object, whose failure was reported as a warning. */
const warnings = new WeakMap<object, Set<string>>();

/** Warns, by the runtime's function, that the handler of `method` failed, unless it has done so for `source`, or too often. */
export function warnOnce(source: object, method: string, cause: unknown): void {
  const warned = warnings.get(source) ?? new Set<string>();
  warnings.set(source, warned);
  if (warned.has(method) || warned.size >= MOST_WARNINGS) return;
  warned.add(method);
  const warning = new Error(`"${method}" failed, and nothing listens for \`error\``, { cause });
  const { process, reportError } = globalThis as Runtime;
  if (process?.emitWarning) process.emitWarning(Object.assign(warning, { name: "reciproc", detail: stackOf(cause) }));
  else reportError?.(warning);
}

/** The functions that report errors: Node, Bun and Deno have `process.emitWarning`, browsers and workers `reportError`. */
interface Runtime {
  process?: { emitWarning?(warning: Error): void };
  reportError?: (error: Error) => void;
}

/** Returns the stack of a thrown value, and of its cause. Never throws. */
function stackOf(error: unknown): string {
  try {
    const { stack = String(error), cause } = Object(error) as Error;
    return cause instanceof Error ? `${stack}\n[cause] ${cause.stack}` : stack;
  } catch {
    return "an error that cannot be shown";
  }
}

/** Calls code of the application, and passes its error or rejection to `failed`. */
export function runReporting(call: () => unknown, failed: (error: unknown) => void): void {
  try {
    const result = call();
    // A promise of another realm is no `Promise` of this one, and ends the process as well if its rejection is not handled.
    if (isThenable(result)) Promise.resolve(result).catch(failed);
  } catch (error) {
    failed(error);
  }
}

const aborting = new WeakMap<AbortSignal, { readonly listeners: Set<() => void>; readonly run: () => void }>();

/**
 * Calls `listener` when `signal` aborts. Returns a function that removes the listener. However many listeners there are, the signal
 * itself has one, because Node warns of a leak when a signal has more than ten.
 */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  let entry = aborting.get(signal);
  if (entry === undefined) {
    const all = new Set<() => void>();
    entry = { listeners: all, run: () => all.forEach((one) => runReporting(one, uncaught)) };
    aborting.set(signal, entry);
  }
  const { listeners, run } = entry;
  if (listeners.add(listener).size === 1) signal.addEventListener("abort", run);
  return () => {
    if (listeners.delete(listener) && listeners.size === 0) signal.removeEventListener("abort", run);
  };
}

/** Lets an error surface as uncaught. */
export function uncaught(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}
