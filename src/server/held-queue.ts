/** The queue of a server's session. Texts of `latest` that many sessions queue are in memory once, and are counted once. */
import { utf8Bytes, type MessageText } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { LatestHandle, QUEUED_COST, SendQueue } from "../core/send-queue.js";
import { EncodedMessage, type SendHandle } from "../core/transport.js";

/** The send handle of a broadcast. Broadcasts have a limit of their own, apart from that of ordinary messages. */
export class BroadcastHandle extends LatestHandle {
  /** At most so many unsent bytes are its message. Set when a transport takes it. */
  unsentBytes = 0;
  /** The `unsentBytes` of the broadcast that its message replaced in the last queue that took it; 0 if it replaced none. */
  replacedBytes = 0;

  override sendKept(connection: Connection, text: MessageText): void {
    // The transport may drop a broadcast: if it has a session, this may be suspended by now.
    if (connection.send(text, this, new EncodedMessage(text))) connection.broadcastBytes += utf8Bytes(text);
    else connection.dropped(this.method);
  }
}

/** The texts of `latest` broadcasts that suspended sessions share. */
export class SharedTexts {
  /** The number of queues that have each message, and its length. */
  readonly #texts = new Map<SendHandle, { users: number; readonly length: number }>();
  /** The length of all texts, each counted once, in UTF-16 code units. */
  length = 0;

  has(handle: SendHandle): boolean {
    return this.#texts.has(handle);
  }

  /** Adds a queue that has the message of `handle`, or removes one. */
  count(handle: SendHandle, textLength: number, isAdded: boolean): void {
    let text = this.#texts.get(handle);
    if (text === undefined) {
      this.#texts.set(handle, (text = { users: 0, length: textLength }));
      this.length += textLength;
    }
    text.users += isAdded ? 1 : -1;
    if (text.users > 0) return;
    this.#texts.delete(handle);
    // A message with bytes is longer for peers that get text.
    this.length -= text.length;
  }
}

/** A queue that counts its shared texts in a `SharedTexts` while its session is suspended. */
export class HeldQueue extends SendQueue {
  /** The part of `broadcastLength` that belongs to the texts of `latest` broadcasts. */
  sharedLength = 0;
  #broadcastLength = 0;
  #texts: SharedTexts | undefined;

  /** The part of `length` that belongs to broadcasts. */
  get broadcastLength(): number {
    return this.#broadcastLength;
  }

  override get ordinaryLength(): number {
    return this.length - this.broadcastLength;
  }

  /** Counts the shared texts in `texts` from now on. `undefined`: counts them no longer. */
  countIn(texts: SharedTexts | undefined): void {
    const before = this.#texts;
    this.#texts = texts;
    if (before === texts) return;
    for (const [handle, text] of this) {
      if (!isShared(handle)) continue;
      before?.count(handle, text.length, false);
      texts?.count(handle, text.length, true);
    }
  }

  override replace(handle: SendHandle | undefined): SendHandle | undefined {
    const older = super.replace(handle);
    if (older instanceof BroadcastHandle && handle instanceof BroadcastHandle) handle.replacedBytes = older.unsentBytes;
    return older;
  }

  protected override grow(by: number, handle: SendHandle): void {
    super.grow(by, handle);
    if (handle instanceof BroadcastHandle) this.#broadcastLength += by;
    if (!isShared(handle)) return;
    const textLength = Math.abs(by) - QUEUED_COST;
    this.sharedLength += by > 0 ? textLength : -textLength;
    this.#texts?.count(handle, textLength, by > 0);
  }
}

/** Returns true if other queues may have the same message. */
export function isShared(handle: SendHandle | undefined): boolean {
  return handle instanceof BroadcastHandle && handle.latest !== undefined;
}
