/** Detects a dead connection of a client: by its heartbeat, and by a check when the machine or the page wakes up. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { Heartbeat, type HeartbeatTimes } from "../link/heartbeat.js";
import type { PackedLink } from "../session/link.js";

/** The time in which the server must respond to the ping of a check. */
const CHECK_MS = 5_000;

/** Watches the link of one client while messages flow. */
export class Watch implements Expiring {
  deadline = 0;
  readonly #client: { readonly link: PackedLink };
  readonly #times: HeartbeatTimes;
  #heartbeat: Heartbeat | undefined;
  /** The time of the last check, and the number of frames received before it. */
  #checkedAt = 0;
  #heardBefore = 0;

  constructor(client: { readonly link: PackedLink }, times: HeartbeatTimes) {
    this.#client = client;
    this.#times = times;
  }

  /** Starts to watch the present socket. */
  start(): void {
    this.stop();
    const { link } = this.#client;
    if (link.canPing) this.#heartbeat = new Heartbeat(link, this.#times);
  }

  /** Stops to watch. */
  stop(): void {
    this.#heartbeat?.stop();
    this.#heartbeat = undefined;
    clearDeadline(this);
  }

  /** Checks the connection with a ping, after an event that may have ended it unnoticed. Passed time by itself never ends a connection. */
  check(): void {
    if (this.#heartbeat === undefined) return;
    this.#checkedAt = performance.now();
    this.#heardBefore = this.#client.link.heard;
    this.#client.link.ping();
    setDeadline(this, CHECK_MS);
  }

  /** Drops the socket if nothing has come since the check began. */
  expire(): void {
    // A pong of a WebSocket is no frame, and a clock may be coarse, so either is enough.
    const { heard, heardAt } = this.#client.link;
    if (heard > this.#heardBefore || (heardAt ?? Infinity) > this.#checkedAt) return;
    this.#client.link.giveUp(`no answer to a ping within ${CHECK_MS} ms`);
  }
}

type Listener = (event: { persisted?: boolean }) => void;

/** The part of a page that emits events. */
interface EventSource {
  addEventListener?(type: string, listener: Listener): void;
  removeEventListener?(type: string, listener: Listener): void;
}

/**
 * Calls `onWake` when the network is back or the page is shown again, `onOffline` when the network is lost, and `onPageClosed` when the
 * page is closed. Returns a function that removes the listeners. Does nothing in a runtime without such events.
 */
export function watchPage(onWake: () => void, onOffline: () => void, onPageClosed: () => void): () => void {
  const page = globalThis as EventSource & { document?: EventSource & { visibilityState?: string } };
  if (page.addEventListener === undefined) return () => {};
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
