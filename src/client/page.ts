/** The events by which a page shows that a connection may be dead, or is to end. */
type Listener = (event: { persisted?: boolean }) => void;
type Task = () => void;

/** The part of a page that emits events. */
interface EventSource {
  addEventListener?(type: string, listener: Listener): void;
  removeEventListener?(type: string, listener: Listener): void;
}

/**
 * Calls `onWake` when the network is back or the page is shown again, `onOffline` when the network is lost, and `onPageClosed` when the
 * page is closed. Returns a function that removes the listeners. Returns `undefined` in a runtime without such events, where a function
 * would keep the listeners in memory.
 */
export function watchPage(onWake: Task, onOffline: Task, onPageClosed: Task): Task | undefined {
  const page = globalThis as EventSource & { document?: EventSource & { visibilityState?: string } };
  if (page.addEventListener === undefined) return undefined;
  const { document } = page;
  const listeners: [EventSource | undefined, string, Listener][] = [
    [page, "online", onWake],
    [page, "offline", onOffline],
    [page, "pageshow", onWake],
    [document, "visibilitychange", () => document!.visibilityState !== "hidden" && onWake()],
    // The browser may show a cached page again.
    [page, "pagehide", ({ persisted }) => persisted === true || onPageClosed()],
  ];
  for (const [source, type, listener] of listeners) source?.addEventListener?.(type, listener);
  return () => {
    for (const [source, type, listener] of listeners) source?.removeEventListener?.(type, listener);
  };
}
