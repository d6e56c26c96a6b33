/**
 * Queues the messages of one connection: for a socket, for `onOpen`, for a slow reader, or while the replay log is full. A call with
 * `retry` that a link has refused stays in the table of calls, and a batch that is not sent in its feature.
 */
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { exceeds, sentForm, type MessageText } from "../message/codec.js";
import type { PeerLimits } from "../message/limits.js";
import { SendQueue } from "./send-queue.js";
import type { CloseInfo, EncodedMessage, Link, SendHandle } from "../message/transport.js";
import { TryAgainLater } from "../message/close-codes.js";

/** The marks of the unsent bytes. */
export interface UnsentMarks {
  /** From here on, messages with a key wait, and volatile ones are dropped. */
  readonly low: number;
  /** Beyond it, streams pause, and no more broadcasts and messages with a key are queued. */
  readonly room: number;
  /**
   * Beyond it, broadcasts are dropped. Without a socket, a message beyond it ends the session. Before the connection is open, it is
   * refused.
   */
  readonly queue: number;
  /** Beyond it for 10 s, the reader is too slow. */
  readonly limit: number;
  /** The limit at any moment: a burst of 8 times `maxUnsentBytes`, or of the longest reply. */
  readonly burst: number;
}

type UnsentLimits = Pick<PeerLimits, "maxUnsentBytes" | "maxReplyBytes">;

/** Returns the marks that follow from these limits. */
export function unsentMarks({ maxUnsentBytes: limit, maxReplyBytes }: UnsentLimits): UnsentMarks {
  return { low: limit / 8, room: limit / 4, queue: limit / 2, limit, burst: 8 * Math.max(limit, maxReplyBytes) };
}

/** What a flow uses of its connection. */
export interface FlowConnection {
  readonly transport: Link;
  readonly config: { readonly marks: UnsentMarks; readonly hasOnOpen: boolean };
  /** Why it has ended; `undefined` while it has not. */
  readonly ended: object | undefined;
  /** Ends it, for a reason of this side. */
  end(end: CloseInfo): void;
  /** Reports what a transport of an application has thrown. */
  report(error: unknown): void;
  readonly outgoing: {
    /** Takes a queued message with calls that the transport refused. */
    refused(text: MessageText, handle: SendHandle): void;
  };
}

/** Takes messages on their way out: the flow of a connection, its opening queue, or a batch. */
export interface Sink {
  /**
   * Sends an encoded message, or queues it. Returns false if it will not be sent. `handle`: the call, if the message is one.
   * `message`: the same message, if it goes to many peers.
   */
  send(text: MessageText, handle?: SendHandle, message?: EncodedMessage): boolean;
}

/**
 * The outgoing messages of one connection. `LiveFlow` (`features/live.ts`) adds messages that may be dropped: broadcasts, and those that
 * a newer one makes obsolete.
 */
export class Flow implements Sink {
  /** Takes the messages of the application: an `OpeningQueue` until `release`. Responses, and calls of `onOpen`, go to the flow itself. */
  sink: Sink;
  protected readonly connection: FlowConnection;
  /**
   * `open`: messages are sent at once. `full`: the transport takes no more until `drained`. `draining`: what was queued is being sent.
   * `down`: there is no socket until `resumed`. `ended`: the connection has ended, or it ends because too much is unsent or queued.
   * `slow`: messages with a key wait until the reader has caught up.
   */
  protected state: "open" | "full" | "draining" | "down" | "ended" | "slow";
  /** The messages that wait while the state is not `open`, in order. */
  protected queue: SendQueue | undefined = undefined;
  /** How many unsent bytes of the transport are broadcasts, at most. While there are some, `decide` sees each message. */
  protected broadcastBytes = 0;
  /** The length of the calls that the transport refused, and that wait for the next connection. */
  #refusedLength = 0;
  /** The length of the ordinary messages that were queued when the socket was lost. Only those that come later count. */
  #carriedLength = 0;
  #backlog: Backlog | undefined;

  /** `isDown`: there is no socket yet. */
  constructor(connection: FlowConnection, isDown: boolean) {
    this.connection = connection;
    this.state = isDown ? "down" : "open";
    const waits = isDown || connection.config.hasOnOpen;
    this.sink = waits ? new OpeningQueue(connection, this.makeQueue()) : this;
  }

  /** The queue of the messages of the application that wait until `release`; `undefined` afterwards. */
  get openingQueue(): SendQueue | undefined {
    return this.sink instanceof OpeningQueue ? this.sink.queue : undefined;
  }

  /** From `suspend` to `resume`, and while connecting: messages of the application wait for a socket, or for `release`. */
  get isSuspended(): boolean {
    return this.isDown || this.sink !== this;
  }

  /** The marks of the unsent bytes. */
  get marks(): UnsentMarks {
    return this.connection.config.marks;
  }

  /** Whether there is no socket. */
  get isDown(): boolean {
    return this.state === "down";
  }

  /** Bytes that wait for the reader. Without a socket, queued messages do not count, because no slow reader causes them. */
  get unsentBytes(): number {
    const { unsentBytes = 0 } = this.connection.transport;
    return this.isBehind ? unsentBytes + this.queue!.length : unsentBytes;
  }

  /** Those that count against the connection. */
  get ordinaryUnsentBytes(): number {
    return this.unsentBytes;
  }

  /** Whether messages are queued because the transport is full. */
  protected get isBehind(): boolean {
    return this.queue !== undefined && (this.state === "full" || this.state === "draining");
  }

  protected get hasEnded(): boolean {
    return this.state === "ended";
  }

  /** Returns a queue for messages of this connection. `counter`: may count its length. */
  makeQueue(_counter?: Pick<Link, "keeps">): SendQueue {
    return new SendQueue();
  }

  /** As `Sink.send`. If the other side reads too slowly, ends the connection instead. */
  send(text: MessageText, handle?: SendHandle, message?: EncodedMessage): boolean {
    const { transport, config } = this.connection;
    const isFree = this.state === "open" && this.broadcastBytes === 0 && handle?.droppable === undefined;
    if (!isFree || (transport.unsentBytes ?? 0) > config.marks.limit) {
      const isQueued = this.decide(text, handle);
      if (isQueued !== undefined) return isQueued;
    }
    const taken = this.offer(text, handle, message);
    return taken === "full" ? this.enqueue(text, handle) : taken;
  }

  /** Returns `undefined` if a message is sent now. Otherwise queues it, or returns false. */
  protected decide(text: MessageText, handle: SendHandle | undefined): boolean | undefined {
    this.check();
    if (this.hasEnded) return false;
    return this.state === "open" ? undefined : this.enqueue(text, handle);
  }

  /** Queues a message that the transport does not take now. Returns false if it is too long, is dropped, or ends the session. */
  protected enqueue(text: MessageText, handle: SendHandle | undefined): boolean {
    if (this.isTooLong(text)) return false;
    const queue = (this.queue ??= this.makeQueue(this.connection.transport));
    const { queue: most } = this.connection.config.marks;
    if (this.isDown && queue.ordinaryLength + text.length > this.#carriedLength + most) {
      this.endSession("more than half of `maxUnsentBytes` was queued without a socket");
      return false;
    }
    queue.add(text, handle);
    return true;
  }

  protected isTooLong(text: MessageText): boolean {
    const { maxMessageBytes = Infinity, takesBytes } = this.connection.transport;
    return exceeds(sentForm(text, takesBytes), maxMessageBytes);
  }

  /**
   * Gives a message to the transport. Returns false if it will not be sent, and `"full"` if the transport does not take it now. A
   * transport that throws breaks its promise: the error is reported, and stops no loop over many peers.
   */
  protected offer(text: MessageText, handle: SendHandle | undefined, message?: EncodedMessage): boolean | "full" {
    const { transport } = this.connection;
    // Set before the bytes are sent: the connection may end inside `send` after the other side has read them.
    if (handle !== undefined) handle.sent = true;
    let taken: unknown = false;
    try {
      taken =
        message === undefined || transport.sendEncoded === undefined
          ? transport.send(sentForm(text, transport.takesBytes))
          : transport.sendEncoded(message);
    } catch (error) {
      this.connection.report(error);
    }
    if (taken !== false && taken !== "full") {
      if (handle?.droppable !== undefined) this.sent(text, handle, message);
      // A transport of an application may return nothing for what it has sent.
      return true;
    }
    if (handle !== undefined) handle.sent = false;
    if (taken === "full" && this.state === "open") this.state = "full";
    return taken;
  }

  /** Notes that the transport has taken a message that might have been dropped. */
  protected sent(_text: MessageText, _handle: SendHandle, _message: EncodedMessage | undefined): void {}

  /** Sends what is queued, in order, until the transport takes no more. */
  protected drain(): void {
    if (this.hasEnded) return;
    const { connection, queue } = this;
    this.state = "draining";
    for (const [handle, text] of queue ?? []) {
      const taken = this.offer(text, handle);
      if (taken !== "full") queue!.remove(handle);
      if (connection.ended !== undefined) return;
      if (taken === false) this.refused(text, handle);
      // The socket may be lost meanwhile.
      if (this.state !== "draining") return;
      if (taken === "full") return void (this.state = "full");
    }
    this.queue = undefined;
    this.state = "open";
  }

  /** The transport takes messages again after it was full. */
  drained(): void {
    if (this.state === "full") this.drain();
  }

  /** The socket is lost. Messages are queued until `resumed`. */
  suspended(): void {
    if (this.hasEnded) return;
    this.state = "down";
    this.#carriedLength = this.queue?.ordinaryLength ?? 0;
  }

  /** There is a socket. Sends the queue of the flow. `release` sends the opening queue. */
  resumed(): void {
    this.drain();
    // Messages that waited for a socket wait for its reader now.
    this.check();
  }

  /**
   * Sends what the application has queued until now, and what it sends meanwhile after that. `rewrite` returns the text to send for a queued
   * message, now that it is known what the other side understands. What it returns for a message that it has cancelled is ignored.
   */
  release(rewrite: (text: MessageText, handle: SendHandle) => MessageText): void {
    const { openingQueue } = this;
    for (const [handle, queued] of openingQueue ?? []) {
      const text = rewrite(queued, handle);
      if (openingQueue!.remove(handle) && !this.send(text, handle)) this.refused(text, handle);
    }
    this.sink = this;
  }

  /** Reports a queued message that the transport has refused. */
  protected refused(text: MessageText, handle: SendHandle): void {
    this.connection.outgoing.refused(text, handle);
  }

  /** Notes that a call waits for the next connection, because the transport refused it. Returns false if too many do. */
  keepRefused({ length }: MessageText): boolean {
    const isKept = this.sink === this && this.#refusedLength + length <= this.connection.config.marks.queue;
    if (isKept) this.#refusedLength += length;
    return isKept;
  }

  /** Cancels a queued message. Returns false if it is not queued. */
  cancel(handle: SendHandle): boolean {
    return this.openingQueue?.remove(handle) === true || this.queue?.remove(handle) === true;
  }

  /** Sends the messages that wait only for a reader to catch up: the connection is about to close. */
  flush(): void {}

  /** The connection has ended: nothing is sent, and no timer runs any more. Returns the messages that a full transport has not taken. */
  stop(): Iterable<[SendHandle, MessageText]> {
    this.#backlog?.stop();
    if (this.state !== "full") this.queue = undefined;
    this.state = "ended";
    return this.queue ?? [];
  }

  /** As `Link.afterRead`, for all messages that were sent before. */
  afterRead(then: () => void): boolean {
    return this.state === "open" && this.connection.transport.afterRead?.(then) === true;
  }

  /** Ends the session, or the connection: too much is unsent or queued. */
  endSession(reason: string): void {
    this.state = "ended";
    this.queue = undefined;
    const { connection } = this;
    if (connection.transport.endSession?.(reason) !== true) connection.end({ code: TryAgainLater, reason });
  }

  /** Watches the unsent bytes while they are above `maxUnsentBytes`. */
  protected check(): void {
    if (!this.hasEnded && this.unsentBytes > this.connection.config.marks.limit)
      (this.#backlog ??= new Backlog(this)).exceeded();
  }
}

/** The messages of a connection that is not open yet: `onOpen` runs, or it is not known what the other side understands. */
class OpeningQueue implements Sink {
  readonly queue: SendQueue;
  readonly #connection: FlowConnection;

  /** `queue`: an empty one, of the connection's flow. */
  constructor(connection: FlowConnection, queue: SendQueue) {
    this.#connection = connection;
    this.queue = queue;
  }

  /** Calls that are made again may fill as much again as all others. */
  send(text: MessageText, handle?: SendHandle): boolean {
    const connection = this.#connection;
    const { queue } = this;
    queue.replace(handle);
    const most = connection.config.marks.queue * (handle?.hasRetry === true ? 2 : 1);
    if (connection.ended !== undefined || queue.length + text.length > most) return false;
    queue.add(text, handle);
    return true;
  }
}

/**
 * How often an unsent backlog is checked, and how many checks in a row must find it above the limit. A number of checks, not
 * one deadline: a process that stalls for a minute has given its reader no time to read.
 */
const CHECK_MS = 1_000;
const CHECKS = 10;

/**
 * Watches the backlog of one connection, from when it exceeds `maxUnsentBytes` until it no longer does: a burst, which a reader takes in a
 * moment, is no slow reader.
 */
class Backlog implements Expiring {
  deadline = 0;
  readonly #flow: Flow;
  /** How many checks in a row found the backlog above the limit; `undefined` while it is not watched. */
  #found: number | undefined;

  constructor(flow: Flow) {
    this.#flow = flow;
  }

  /** Starts to watch: the backlog exceeds `maxUnsentBytes`. Above the hard limit, acts at once. */
  exceeded(): void {
    const { marks, ordinaryUnsentBytes } = this.#flow;
    if (ordinaryUnsentBytes > marks.burst)
      return this.#flow.endSession(`more than ${marks.burst} bytes wait to be read`);
    if (this.#found !== undefined) return;
    this.#found = 0;
    setDeadline(this, CHECK_MS);
  }

  /** Stops watching. */
  stop(): void {
    this.#found = undefined;
    clearDeadline(this);
  }

  expire(): void {
    const { marks, ordinaryUnsentBytes } = this.#flow;
    if (ordinaryUnsentBytes <= marks.limit) return this.stop();
    this.#found! += 1;
    setDeadline(this, CHECK_MS);
    if (this.#found! < CHECKS) return;
    this.#flow.endSession(`more than ${marks.limit} bytes unread for ${(CHECKS * CHECK_MS) / 1000} s`);
  }
}
