/**
 * The messages of one connection on their way out, and the only place where they wait: for a socket, for `onOpen`, for a slow
 * reader, or for room in the replay log. A message that is not sent is here and nowhere else.
 */
import { Backlog } from "./backlog.js";
import { exceeds, sentForm, type MessageText } from "./codec.js";
import { clearDeadline, setDeadline, type Expiring } from "./deadlines.js";
import type { UnsentLimits } from "./limits.js";
import { NotificationHandle, QUEUED_COST, SendQueue } from "./send-queue.js";
import { unsentBytesOf, type EncodedMessage, type SendHandle, type Link } from "./transport.js";

/** The marks of the unsent bytes. */
export interface UnsentMarks {
  /** From here on, messages with a key wait, and volatile ones are dropped. */
  readonly low: number;
  /** Beyond it, streams pause, and no more broadcasts and messages with a key are queued. */
  readonly room: number;
  /** Beyond it, broadcasts are dropped, and no more is queued without a socket or while `onOpen` runs. */
  readonly queue: number;
  /** Beyond it for 10 s, the reader is too slow. `burstBytes` is the limit at any moment. */
  readonly most: number;
}

/** Returns the marks, which are parts of `maxUnsentBytes`. */
export function unsentMarks({ maxUnsentBytes: most }: UnsentLimits): UnsentMarks {
  return { low: most / 8, room: most / 4, queue: most / 2, most };
}

/** How often a slow reader is checked for whom messages with a key wait. */
const CHECK_MS = 20;

/** A message that is neither a broadcast nor replaced by a newer one. */
const ORDINARY = { isBroadcast: false, latest: undefined };

/** The connection of a flow. */
export interface FlowConnection {
  readonly transport: Link;
  readonly config: { readonly limits: UnsentLimits; readonly marks: UnsentMarks };
  /** Why it has ended; `undefined` while it has not. */
  readonly ended: Error | undefined;
  /** Ends the connection, or the session in it: the other side reads too slowly. */
  endSession(reason: string): void;
  /** Reports what a transport of an application has thrown. */
  report(error: unknown): void;
  /** Reports that a queued notification of that method is dropped. */
  dropped(method: string): void;
  /**
   * Returns the text to send for a message that was queued until `release`, now that it is known what the other side understands;
   * `undefined` if nothing is to be sent.
   */
  rewriteQueued(text: MessageText, handle: SendHandle): MessageText | undefined;
  /** Takes a queued message that the transport refused. */
  failUnsent(text: MessageText, handle: SendHandle): void;
}

/** Takes messages on their way out: the flow of a connection, its opening queue, or a batch. */
export interface Sink {
  /**
   * Sends an encoded message, or queues it. Returns false if it will not be sent. `handle`: the call, if the message is one.
   * `message`: the same message, if it goes to many peers.
   */
  send(text: MessageText, handle?: SendHandle, message?: EncodedMessage): boolean;
}

/** The outgoing messages of one connection. */
export class Flow implements Sink, Expiring {
  deadline = 0;
  readonly #connection: FlowConnection;
  /**
   * `open`: messages are sent at once. `slow`: messages with a key wait until the reader has caught up. `full`: the transport takes
   * no more until `drained`. `draining`: what was queued is being sent. `down`: there is no socket until `resumed`. `over`: the
   * connection has ended, or the session or the connection ends because the other side reads too slowly.
   */
  #state: "open" | "slow" | "full" | "draining" | "down" | "over";
  /** The messages that wait while the state is not `open`, in order. */
  #queue: SendQueue | undefined;
  /** The length of the calls that the transport refused, and that wait for the next connection. */
  #refusedLength = 0;
  /** The length of the ordinary messages that were queued when the socket was lost. Only those that come later count. */
  #carriedLength = 0;
  /** How many unsent bytes of the transport are broadcasts, at most. Only the others can end the connection. */
  #broadcastBytes = 0;
  #backlog: Backlog | undefined;

  /** `isDown`: there is no socket yet. */
  constructor(connection: FlowConnection, isDown: boolean) {
    this.#connection = connection;
    this.#state = isDown ? "down" : "open";
  }

  /** The limits of the unsent bytes. */
  get limits(): UnsentLimits {
    return this.#connection.config.limits;
  }

  /** Whether there is no socket. */
  get isDown(): boolean {
    return this.#state === "down";
  }

  /** Whether a message is sent at once, with few unsent bytes before it. */
  get isReady(): boolean {
    return this.#state === "open" && this.#isLow;
  }

  /** Whether data that can wait, such as values of streams, may be sent now. */
  get hasRoom(): boolean {
    return !this.isDown && this.unsentBytes <= this.#marks.room;
  }

  /** Bytes that wait for the reader. Without a socket, queued messages do not count, because no slow reader causes them. */
  get unsentBytes(): number {
    const { unsentBytes = 0 } = this.#connection.transport;
    return this.#isBehind ? unsentBytes + this.#queue!.length : unsentBytes;
  }

  /** The same without broadcasts. */
  get ordinaryUnsentBytes(): number {
    const { unsentBytes = 0 } = this.#connection.transport;
    const ordinary = unsentBytes - this.#broadcastBytes;
    return this.#isBehind ? ordinary + this.#queue!.ordinaryLength : ordinary;
  }

  /** Whether messages are queued because the transport is full. */
  get #isBehind(): boolean {
    return this.#queue !== undefined && (this.#state === "full" || this.#state === "draining");
  }

  get #isOver(): boolean {
    return this.#state === "over";
  }

  get #isLow(): boolean {
    return this.unsentBytes < this.#marks.low;
  }

  get #marks(): UnsentMarks {
    return this.#connection.config.marks;
  }

  /** First ends the connection if its other side reads too slowly, and then sends nothing. */
  send(text: MessageText, handle?: SendHandle, message?: EncodedMessage): boolean {
    if (this.#state !== "open" || handle instanceof NotificationHandle) return this.#sendInOrder(text, handle, message);
    const { transport, config } = this.#connection;
    if (this.#broadcastBytes > 0 || (transport.unsentBytes ?? 0) > config.marks.most) {
      this.#check();
      if (this.#isOver) return false;
    }
    const isTaken = this.#offer(text, handle, message);
    return isTaken === "full" ? this.#enqueue(text, handle) : isTaken;
  }

  /** Sends a message behind those that wait, or a notification that a newer one makes obsolete, or a broadcast. */
  #sendInOrder(text: MessageText, handle: SendHandle | undefined, message: EncodedMessage | undefined): boolean {
    const { unsentBytes } = this;
    this.#check();
    if (this.#isOver) return false;
    const { isBroadcast, latest } = handle instanceof NotificationHandle ? handle : ORDINARY;
    // First: the older message is obsolete, also if the newer one is dropped.
    this.#queue?.replace(handle);
    const isTooLate = isBroadcast && unsentBytes > this.#marks.queue;
    if (this.#state !== "open" && this.#state !== "slow")
      return isTooLate && latest === undefined ? false : this.#enqueue(text, handle);
    if (latest !== undefined && !this.#isLow && this.#fits(text)) {
      this.#state = "slow";
      setDeadline(this, CHECK_MS);
      return this.#add((this.#queue ??= this.#newQueue()), text, handle);
    }
    if (isTooLate) return false;
    if (this.#state === "slow") this.#drain();
    // What was sent may have ended the connection, or filled the transport.
    if (this.#isOver) return false;
    const isTaken = this.#state === "open" ? this.#offer(text, handle, message) : "full";
    return isTaken === "full" ? this.#enqueue(text, handle) : isTaken;
  }

  /** Queues a message that the transport does not take now. Returns false if it is too long, is dropped, or ends the session. */
  #enqueue(text: MessageText, handle: SendHandle | undefined): boolean {
    const queue = (this.#queue ??= this.#newQueue());
    const { transport } = this.#connection;
    const { maxMessageBytes = Infinity, takesBytes } = transport;
    if (exceeds(sentForm(text, takesBytes), maxMessageBytes)) return false;
    if (handle instanceof NotificationHandle && handle.isBroadcast) {
      const mayQueue = !this.isDown || transport.acceptsBroadcast?.(QUEUED_COST + text.length) !== false;
      return mayQueue && this.#fits(text) && this.#add(queue, text, handle);
    }
    if (this.isDown && queue.ordinaryLength + text.length > this.#carriedLength + this.#marks.queue) {
      this.endSession("more than half of `maxUnsentBytes` was queued without a socket");
      return false;
    }
    return this.#add(queue, text, handle);
  }

  /** Whether a message may be queued that may be dropped: it takes no room from ordinary messages. */
  #fits({ length }: MessageText): boolean {
    return (this.#queue?.length ?? 0) + length <= this.#marks.room;
  }

  #add(queue: SendQueue, text: MessageText, handle: SendHandle | undefined): true {
    addTo(queue, text, handle, this.#connection);
    return true;
  }

  /** Returns a queue whose length the transport counts. */
  #newQueue(): SendQueue {
    return new SendQueue(this.#connection.transport);
  }

  /**
   * Gives a message to the transport. Returns false if it will not be sent, and `"full"` if the transport does not take it now. A
   * transport that throws breaks its promise: the error is reported, and stops no loop over many peers.
   */
  #offer(text: MessageText, handle: SendHandle | undefined, message?: EncodedMessage): boolean | "full" {
    const { transport } = this.#connection;
    // Set before the bytes are sent: the connection may end inside `send` after the other side has read them.
    if (handle !== undefined) handle.sent = true;
    let isTaken: unknown = false;
    try {
      isTaken =
        message === undefined || transport.sendEncoded === undefined
          ? transport.send(sentForm(text, transport.takesBytes))
          : transport.sendEncoded(message);
    } catch (error) {
      this.#connection.report(error);
    }
    if (isTaken === false || isTaken === "full") {
      if (handle !== undefined) handle.sent = false;
      if (isTaken === "full" && this.#state === "open") this.#state = "full";
      return isTaken;
    }
    if (handle instanceof NotificationHandle && handle.isBroadcast)
      this.#broadcastBytes += message?.unsentBytes ?? unsentBytesOf(text);
    // A transport of an application may return nothing for what it has sent.
    return true;
  }

  /** Sends what is queued, in order, until the transport takes no more. */
  #drain(): void {
    if (this.#isOver) return;
    const connection = this.#connection;
    const queue = this.#queue;
    clearDeadline(this);
    this.#state = "draining";
    for (const [handle, text] of queue ?? []) {
      const isTaken = this.#offer(text, handle);
      if (isTaken !== "full") queue!.remove(handle);
      if (connection.ended !== undefined) return;
      if (isTaken === false) failUnsent(connection, text, handle);
      // The socket may be lost meanwhile.
      if (this.#state !== "draining") return;
      if (isTaken === "full") return void (this.#state = "full");
    }
    this.#queue = undefined;
    this.#state = "open";
  }

  /** The transport takes messages again after it was full. */
  drained(): void {
    if (this.#state === "full") this.#drain();
  }

  /** Checks a slow reader. */
  expire(): void {
    if (this.#isLow) this.#drain();
    else setDeadline(this, CHECK_MS);
  }

  /** The socket is lost. Messages are queued until `resumed`. */
  suspended(): void {
    if (this.#isOver) return;
    clearDeadline(this);
    this.#state = "down";
    const queue = this.#queue;
    this.#carriedLength = queue?.ordinaryLength ?? 0;
    if (queue === undefined) return;
    const broadcastLength = queue.length - queue.ordinaryLength;
    if (broadcastLength > 0 && this.#connection.transport.acceptsBroadcast?.(broadcastLength) === false)
      this.#dropBroadcasts(queue);
  }

  #dropBroadcasts(queue: SendQueue): void {
    const dropped: string[] = [];
    for (const [handle] of queue) {
      if (!(handle instanceof NotificationHandle && handle.isBroadcast)) continue;
      queue.remove(handle);
      dropped.push(handle.method);
    }
    // Listeners may close the peer.
    for (const method of dropped) this.#connection.dropped(method);
  }

  /** There is a socket. Sends what was queued without one. */
  resumed(): void {
    this.#drain();
    // Messages that waited for a socket wait for its reader now.
    this.#check();
  }

  /** Notes that a call waits for the next connection, because the transport refused it. Returns false if too many do. */
  keepRefused({ length }: MessageText): boolean {
    const isKept = this.#refusedLength + length <= this.#marks.queue;
    if (isKept) this.#refusedLength += length;
    return isKept;
  }

  /** Cancels a queued message. Returns false if it is not queued. */
  cancel(handle: SendHandle): boolean {
    return this.#queue?.remove(handle) ?? false;
  }

  /** Sends the messages for a slow reader, or ends the connection: it is about to close. */
  flush(): void {
    if (this.#state !== "slow") return;
    // Ending the connection calls this again.
    this.#state = "draining";
    this.#check();
    if (!this.#isOver) this.#drain();
  }

  /** The connection has ended: nothing is sent, and no timer runs any more. Returns the messages that a full transport has not taken. */
  stop(): Iterable<[SendHandle, MessageText]> {
    clearDeadline(this);
    this.#backlog?.stop();
    if (this.#state !== "full" && !this.#isOver) this.#queue = undefined;
    this.#state = "over";
    return this.#queue ?? [];
  }

  /** As `Link.afterRead`, for all messages that were sent before. */
  afterRead(then: () => void): boolean {
    return this.#state === "open" && this.#connection.transport.afterRead?.(then) === true;
  }

  /** Ends the session, or the connection: the other side reads too slowly. */
  endSession(reason: string): void {
    clearDeadline(this);
    this.#state = "over";
    this.#queue = undefined;
    this.#connection.endSession(reason);
  }

  /** Watches the unsent bytes while they are above `maxUnsentBytes`. */
  #check(): void {
    const { transport } = this.#connection;
    // Other broadcasts were sent. Without a socket, those in the replay log are not among the unsent bytes.
    if (!this.isDown) this.#broadcastBytes = Math.min(this.#broadcastBytes, transport.unsentBytes ?? 0);
    if (!this.#isOver && this.unsentBytes > this.#marks.most) (this.#backlog ??= new Backlog(this)).exceeded();
  }
}

/** The messages of a connection that is not open yet: `onOpen` runs, or it is not known what the other side understands. */
export class OpeningQueue implements Sink {
  readonly #connection: FlowConnection;
  readonly #queue = new SendQueue();

  constructor(connection: FlowConnection) {
    this.#connection = connection;
  }

  /** Calls that are made again may fill as much again as all others. */
  send(text: MessageText, handle?: SendHandle): boolean {
    const connection = this.#connection;
    const queue = this.#queue;
    queue.replace(handle);
    const most = connection.config.marks.queue * (handle?.isRetried === true ? 2 : 1);
    if (connection.ended !== undefined || queue.length + text.length > most) return false;
    addTo(queue, text, handle, connection);
    return true;
  }

  cancel(handle: SendHandle): void {
    this.#queue.remove(handle);
  }

  /** Gives the messages to `flow`, and those that are sent meanwhile behind them. */
  release(flow: Flow): void {
    const connection = this.#connection;
    for (const [handle, queued] of this.#queue) {
      this.#queue.remove(handle);
      const text = connection.rewriteQueued(queued, handle);
      if (text !== undefined && !flow.send(text, handle)) failUnsent(connection, text, handle);
    }
  }

  [Symbol.iterator](): Iterator<[SendHandle, MessageText]> {
    return this.#queue[Symbol.iterator]();
  }
}

function addTo(queue: SendQueue, text: MessageText, handle: SendHandle | undefined, connection: FlowConnection): void {
  const oldest = queue.add(text, handle);
  if (oldest !== undefined) connection.dropped(oldest.method);
}

/** Drops a queued message that the transport refuses. */
function failUnsent(connection: FlowConnection, text: MessageText, handle: SendHandle): void {
  if (handle instanceof NotificationHandle) connection.dropped(handle.method);
  else connection.failUnsent(text, handle);
}
