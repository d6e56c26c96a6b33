/** Whether a client's connection still lives: by its heartbeat, and at once when the machine or the page wakes up. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { Heartbeat, type HeartbeatTimes } from "../link/heartbeat.js";
import type { PackedLink } from "../session/link.js";

/** How long a connection that is doubted has to show that it lives. */
const DOUBT_MS = 5_000;

/** Looks after the link of one client, while it has a socket on which messages flow. */
export class Watch implements Expiring {
  deadline = 0;
  readonly #client: { readonly link: PackedLink };
  readonly #times: HeartbeatTimes;
  #heartbeat: Heartbeat | undefined;
  /** When the doubt began that is to be answered, and how many frames had come by then. */
  #doubtedAt = 0;
  #heardBefore = 0;

  constructor(client: { readonly link: PackedLink }, times: HeartbeatTimes) {
    this.#client = client;
    this.#times = times;
  }

  /** Messages flow. */
  start(): void {
    this.stop();
    const { link } = this.#client;
    if (link.canPing) this.#heartbeat = new Heartbeat(link, this.#times);
  }

  /** The socket is lost, or left. */
  stop(): void {
    this.#heartbeat?.stop();
    this.#heartbeat = undefined;
    clearDeadline(this);
  }

  /** Something happened after which a connection may be dead and not know it: asks, and waits a little. That time passed alone kills nobody. */
  doubt(): void {
    if (this.#heartbeat === undefined) return;
    this.#doubtedAt = performance.now();
    this.#heardBefore = this.#client.link.heard;
    this.#client.link.ping();
    setDeadline(this, DOUBT_MS);
  }

  /** The doubt is over. */
  expire(): void {
    // A pong of a WebSocket is no frame, and a clock may be coarse, so either is enough.
    const { heard, heardAt } = this.#client.link;
    if (heard > this.#heardBefore || (heardAt ?? Infinity) > this.#doubtedAt) return;
    this.#client.link.giveUp(`no answer to a ping within ${DOUBT_MS} ms`);
  }
}

type Listener = (event: { persisted?: boolean }) => void;

/** The part of a page that is listened to. */
interface EventSource {
  addEventListener?(type: string, listener: Listener): void;
  removeEventListener?(type: string, listener: Listener): void;
}

/**
 * Calls `woke` when the network comes back, or the page is shown again, and `left` when the page is left for good. Returns a
 * function that stops this. Does nothing in a runtime without such events.
 */
export function watchPage(woke: () => void, left?: () => void): () => void {
  const page = globalThis as EventSource & { document?: EventSource & { visibilityState?: string } };
  if (page.addEventListener === undefined) return () => {};
  const { document } = page;
  const listeners: [EventSource | undefined, string, Listener][] = [
    [page, "online", woke],
    [page, "pageshow", woke],
    [document, "visibilitychange", () => document!.visibilityState !== "hidden" && woke()],
    // A page that is only put aside may be shown again.
    [page, "pagehide", ({ persisted }) => persisted === true || left?.()],
  ];
  for (const [source, type, listener] of listeners) source?.addEventListener?.(type, listener);
  return () => {
    for (const [source, type, listener] of listeners) source?.removeEventListener?.(type, listener);
  };
}
