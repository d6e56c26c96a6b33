/** Two sockets joined in memory. Frames arrive in a microtask and never inside `send`, as on a network. */
import { inMicrotask } from "../base/promises.js";
import type { CloseInfo } from "../message/transport.js";
import type { Socket } from "./socket.js";
import { Inbox } from "./inbox.js";

/** Returns two sockets, each of which receives the frames of the other. Closing one closes both, after earlier frames arrived. */
export function memorySockets(maxMessageBytesA: number, maxMessageBytesB: number): [Socket, Socket] {
  const a = new MemorySocket(maxMessageBytesA);
  const b = new MemorySocket(maxMessageBytesB);
  a.other = b;
  b.other = a;
  return [a, b];
}

class MemorySocket extends Inbox implements Socket {
  other!: MemorySocket;
  /** A memory socket is never full. */
  readonly unsentBytes = 0;
  readonly #underWay: (string | Uint8Array | CloseInfo)[] = [];
  #open = true;

  send(...frames: readonly (string | Uint8Array)[]): boolean {
    if (!this.#open) return false;
    // Bytes are copied, because the other side may change what it receives.
    for (const frame of frames) this.other.#arrive(typeof frame === "string" ? frame : new Uint8Array(frame));
    return true;
  }

  get open(): boolean {
    return this.#open;
  }

  close(code = 1000, reason = ""): void {
    if (!this.#open) return;
    this.#open = this.other.#open = false;
    this.#arrive({ code, reason });
    this.other.#arrive({ code, reason });
  }

  #arrive(item: string | Uint8Array | CloseInfo): void {
    if (this.#underWay.push(item) === 1) inMicrotask(() => this.#deliver());
  }

  #deliver(): void {
    for (const item of this.#underWay) {
      if (typeof item === "string" || item instanceof Uint8Array) this.receiveFrame(item);
      else this.end(item);
    }
    this.#underWay.length = 0;
  }
}
