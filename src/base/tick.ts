/** The microtasks of the runtime. Taken when this file is loaded, so that connections work under the fake timers of a test. */
export const { queueMicrotask } = globalThis;
