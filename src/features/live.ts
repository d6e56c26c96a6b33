/**
 * Messages that may be dropped: broadcasts, which end no connection, and notifications that a newer one makes obsolete. Their flow and
 * their queue take the place of those of the core.
 */
import type { MessageText } from "../message/codec.js";
import type { Connection } from "../peer/connection.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { expected } from "../message/errors.js";
import type { Feature, FeaturePart, NamedParts } from "../peer/feature.js";
import { Flow } from "../peer/flow.js";
import { checkOptions, must, oneOf, optional, type Checked } from "../message/options.js";
import { QUEUED_COST, SendQueue } from "../peer/send-queue.js";
import { unsentBytesOf, type EncodedMessage, type Link, type SendHandle } from "../message/transport.js";

const LONGEST_KEY = 256;
const isKey = (value: unknown): boolean => typeof value === "string" && value.length <= LONGEST_KEY;

/** The checks of these options. They are made when they run: a call at the top of a module would stay in a page that does not use it. */
export const LIVE_OPTIONS = {
  volatile: (value: unknown, name: string) => optional(oneOf(true, false))(value, name),
  latest: (value: unknown, name: string) =>
    optional(must<string>(`a string of at most ${LONGEST_KEY} characters`, isKey))(value, name),
};

/** Checks the options of `notify`. Throws a `TypeError` that names the option, the rule and the value. */
export function checkLive<T extends typeof LIVE_OPTIONS>(options: object | undefined, table: T): Checked<T> {
  const checked = checkOptions("options", options, table);
  if (checked.volatile !== true || checked.latest === undefined) return checked;
  throw expected("latest", "absent beside `volatile`", checked.latest);
}

/** The most keys of `latest` in one queue. */
const MOST_LATEST = 1024;

/** How often a slow reader is checked for whom messages with a key wait. */
const CHECK_MS = 20;

/**
 * The send handle of a broadcast, and of a notification of which only the newest is queued. The peers that get the same message
 * share it.
 */
export class NotificationHandle implements SendHandle {
  sent = false;
  /** The method. */
  readonly droppable: string;
  /** The method and the key. A queued message replaces an older one that has the same. `undefined`: it replaces none. */
  readonly latest: string | undefined;
  /** Whether the message goes to many peers. Broadcasts have limits of their own, and end no connection. */
  readonly isBroadcast: boolean;
  /** The connection that misses the message if it is dropped; `undefined` for that of the flow. */
  readonly part: Connection | undefined;

  constructor(method: string, key: string | undefined, isBroadcast: boolean, part?: Connection) {
    this.droppable = method;
    this.latest = key === undefined ? undefined : `${key.length}:${key}${method}`;
    this.isBroadcast = isBroadcast;
    this.part = part;
  }
}

function isOfMany(handle: SendHandle | undefined): handle is NotificationHandle {
  return handle instanceof NotificationHandle && handle.isBroadcast;
}

/** A queue in which a message replaces an older one with the same key. */
class LiveQueue extends SendQueue {
  /** The newest message of each method and key, in the order of the messages. Made with the first. */
  #latest: Map<string, NotificationHandle> | undefined;
  #broadcastLength = 0;
  readonly #dropped: (handle: NotificationHandle) => void;
  readonly #counter: Pick<Link, "keeps"> | undefined;

  /**
   * `dropped`: called with the handle of the oldest message with a key, if that is dropped because there were too many keys. `counter`:
   * counts what is queued.
   */
  constructor(dropped: (handle: NotificationHandle) => void, counter?: Pick<Link, "keeps">) {
    super();
    this.#dropped = dropped;
    this.#counter = counter;
  }

  override get ordinaryLength(): number {
    return this.length - this.#broadcastLength;
  }

  override add(text: MessageText, handle?: SendHandle): void {
    super.add(text, handle);
    if (!(handle instanceof NotificationHandle) || handle.latest === undefined) return;
    this.#latest = (this.#latest ?? new Map<string, NotificationHandle>()).set(handle.latest, handle);
    if (this.#latest.size <= MOST_LATEST) return;
    const [oldest] = this.#latest.values();
    this.remove(oldest!);
    this.#dropped(oldest!);
  }

  override replace(handle: SendHandle | undefined): void {
    const older = handle instanceof NotificationHandle ? this.#latest?.get(handle.latest!) : undefined;
    if (older !== undefined) this.remove(older);
  }

  override remove(handle: SendHandle): boolean {
    const isQueued = super.remove(handle);
    if (isQueued && handle instanceof NotificationHandle) this.#latest?.delete(handle.latest!);
    return isQueued;
  }

  protected override grow(by: number, handle: SendHandle): void {
    if (isOfMany(handle)) this.#broadcastLength += by;
    super.grow(by, handle);
    this.#counter?.keeps?.(by, isOfMany(handle));
  }
}

/** Counts a message that is dropped for a peer, and reports it to the other side and to the server. */
export function countDropped({ counts, transport, config, peer }: Connection, method: string): void {
  counts.dropped++;
  transport.reportMissed?.(1);
  config.hooks.missed?.(peer, method);
}

/** The flow of a peer that sends such messages. */
export class LiveFlow extends Flow implements Expiring {
  declare protected readonly connection: Connection;
  deadline = 0;

  /** Broadcasts do not end the connection. */
  override get ordinaryUnsentBytes(): number {
    const { unsentBytes = 0 } = this.connection.transport;
    const ordinary = unsentBytes - this.broadcastBytes;
    return this.isBehind ? ordinary + this.queue!.ordinaryLength : ordinary;
  }

  get #isLow(): boolean {
    return this.unsentBytes < this.connection.config.marks.low;
  }

  /** Whether a message is sent at once, with few unsent bytes before it. */
  get isReady(): boolean {
    return this.openingQueue === undefined && this.state === "open" && this.#isLow;
  }

  override makeQueue(counter?: Pick<Link, "keeps">): SendQueue {
    return new LiveQueue((handle) => this.#dropped(handle), counter);
  }

  protected override decide(text: MessageText, handle: SendHandle | undefined): boolean | undefined {
    const { unsentBytes } = this;
    this.check();
    if (this.hasEnded) return false;
    const latest = handle instanceof NotificationHandle ? handle.latest : undefined;
    // First: the older message is obsolete, also if the newer one is dropped.
    this.queue?.replace(handle);
    const isTooLate = isOfMany(handle) && unsentBytes > this.connection.config.marks.queue;
    if (this.state !== "open" && this.state !== "slow")
      return isTooLate && latest === undefined ? false : this.enqueue(text, handle);
    if (latest !== undefined && !this.#isLow && this.#fits(text)) {
      this.state = "slow";
      setDeadline(this, CHECK_MS);
      (this.queue ??= this.makeQueue(this.connection.transport)).add(text, handle);
      return true;
    }
    if (isTooLate) return false;
    if (this.state === "slow") {
      this.drain();
      // A listener that was called meanwhile may have sent one with the same key.
      this.queue?.replace(handle);
    }
    // What was sent may have ended the connection, or filled the transport.
    if (this.hasEnded) return false;
    return this.state === "open" ? undefined : this.enqueue(text, handle);
  }

  protected override enqueue(text: MessageText, handle: SendHandle | undefined): boolean {
    if (!isOfMany(handle)) return super.enqueue(text, handle);
    const { transport } = this.connection;
    const mayQueue = !this.isDown || transport.acceptsBroadcast?.(QUEUED_COST + text.length) !== false;
    if (this.isTooLong(text) || !mayQueue || !this.#fits(text)) return false;
    (this.queue ??= this.makeQueue(transport)).add(text, handle);
    return true;
  }

  /** Whether a message may be queued that may be dropped: it takes no room from ordinary messages. */
  #fits({ length }: MessageText): boolean {
    return (this.queue?.length ?? 0) + length <= this.connection.config.marks.room;
  }

  protected override sent(text: MessageText, handle: SendHandle, message: EncodedMessage | undefined): void {
    if (isOfMany(handle)) this.broadcastBytes += message?.unsentBytes ?? unsentBytesOf(text);
  }

  protected override check(): void {
    // Other broadcasts were sent. Without a socket, those in the replay log are not among the unsent bytes.
    if (!this.isDown) this.broadcastBytes = Math.min(this.broadcastBytes, this.connection.transport.unsentBytes ?? 0);
    super.check();
  }

  /** Checks a slow reader. */
  expire(): void {
    if (this.state !== "slow") return;
    if (this.#isLow) this.drain();
    else setDeadline(this, CHECK_MS);
  }

  override suspended(): void {
    if (this.hasEnded) return;
    super.suspended();
    const { queue } = this;
    const broadcastLength = queue === undefined ? 0 : queue.length - queue.ordinaryLength;
    if (broadcastLength > 0 && this.connection.transport.acceptsBroadcast?.(broadcastLength) === false)
      this.#dropBroadcasts(queue!);
  }

  #dropBroadcasts(queue: SendQueue): void {
    const dropped: NotificationHandle[] = [];
    for (const [handle] of queue) {
      if (!isOfMany(handle)) continue;
      queue.remove(handle);
      dropped.push(handle);
    }
    // Listeners may close the peer.
    for (const handle of dropped) this.#dropped(handle);
  }

  #dropped({ part = this.connection, droppable }: NotificationHandle): void {
    part.counts.notificationsSent--;
    countDropped(part, droppable);
  }

  protected override refused(text: MessageText, handle: SendHandle): void {
    if (handle instanceof NotificationHandle) this.#dropped(handle);
    else super.refused(text, handle);
  }

  /** Sends the messages for a slow reader, or ends the connection. */
  override flush(): void {
    if (this.state !== "slow") return;
    // Ending the connection calls this again.
    this.state = "draining";
    this.check();
    if (!this.hasEnded) this.drain();
  }

  override stop(): Iterable<[SendHandle, MessageText]> {
    clearDeadline(this);
    return super.stop();
  }

  override endSession(reason: string): void {
    clearDeadline(this);
    super.endSession(reason);
  }
}

/** Returns true if a message would be sent at once, with few unsent bytes before it. */
export function isReady({ flow }: Connection): boolean {
  return (flow as LiveFlow).isReady;
}

/**
 * The feature behind the options `latest` and `volatile` of `notify`, for the option `use` of a page: `connect(url, { use: [live] })`. The
 * entries for Node and for tests have it. Without it, these options throw a `TypeError`. A message with a key that waits for
 * a slow peer is sent when this side closes the connection.
 */
export const live: Feature = {
  name: "live",
  methods: () => [],
  create: (connection): FeaturePart & NamedParts["live"] => ({
    check(method, options) {
      const { volatile, latest } = checkLive(options, LIVE_OPTIONS);
      return {
        handle: latest === undefined ? undefined : new NotificationHandle(method, latest, false),
        maySend: () => volatile !== true || isReady(connection as Connection),
      };
    },
  }),
  Flow: LiveFlow,
};
