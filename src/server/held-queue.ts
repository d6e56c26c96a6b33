/** The queue of a server's session, and the broadcasts in it, which have a limit of their own. */
import { utf8Bytes, type MessageText } from "../core/codec.js";
import type { Connection } from "../core/connection.js";
import { LatestHandle, SendQueue } from "../core/send-queue.js";
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

/** A queue that counts its broadcasts apart. */
export class HeldQueue extends SendQueue {
  #broadcastLength = 0;

  override get ordinaryLength(): number {
    return this.length - this.#broadcastLength;
  }

  override replace(handle: SendHandle | undefined): SendHandle | undefined {
    const older = super.replace(handle);
    if (older instanceof BroadcastHandle && handle instanceof BroadcastHandle) handle.replacedBytes = older.unsentBytes;
    return older;
  }

  protected override grow(by: number, handle: SendHandle): void {
    super.grow(by, handle);
    if (handle instanceof BroadcastHandle) this.#broadcastLength += by;
  }
}
