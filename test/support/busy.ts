/** Blocks the event loop, as a long computation does. */
export function busyFor(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}
