/** The incoming half of every socket: keeps frames until a handler is attached, reports the end once, and nothing after it. */
import { Abnormal, MessageTooBig, TOO_LARGE } from "../message/close-codes.js";
import { exceeds } from "../message/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../base/deadlines.js";
import { endOf, type CloseInfo } from "../message/transport.js";
import { CLOSE_TIMEOUT_MS, type SocketHandler } from "./socket.js";
import { inMicrotask } from "../base/promises.js";

/** A frame, or the end of a socket. */
export type QueuedItem = string | Uint8Array | CloseInfo;

/** The incoming half of every socket. */
export abstract class Inbox implements Expiring {
  /** When the close that this side has started must be complete. */
  declare deadline: number;
  /** Maximum length of an incoming frame, in bytes of UTF-8. */
  declare maxFrameBytes: number;
  #handler: SocketHandler | undefined;
  /** Frames and the end that came before `start`. Undefined once they are being delivered. */
  #queued: QueuedItem[] | undefined = [];
  /** Called with the first of `#queued`. */
  #onFirst: ((first: string | CloseInfo) => boolean) | undefined;
  #hasEnded = false;
  /** How the socket ended, or the close that was sent for a frame that was too long or by `discard`. Once set, no frame is delivered. */
  #ending: CloseInfo | undefined;

  constructor(maxFrameBytes: number) {
    this.deadline = 0;
    this.maxFrameBytes = maxFrameBytes;
  }

  abstract close(code?: number, reason?: string): void;

  /** Delivers the queued frames to `handler` in a microtask, and then each frame as it comes. A later call replaces the handler. */
  start(handler: SocketHandler): void {
    const isFirst = this.#handler === undefined;
    this.#handler = handler;
    if (!isFirst) return;
    const queued = this.#queued!;
    if (queued.length === 0) this.#queued = undefined;
    else
      inMicrotask(() => {
        this.#queued = undefined;
        this.deliver(queued);
      });
  }

  /** Calls `listener` with the first frame that comes before `start`, or with the end. Unless it returns true, the frame is queued for `start`. */
  onFirstFrame(listener: (first: string | CloseInfo) => boolean): void {
    const [first] = this.#queued!;
    if (first === undefined) this.#onFirst = listener;
    else if (listener(textOf(first))) this.#queued!.shift();
  }

  /**
   * Takes a text or binary frame. Closes the socket with 1009 if the frame is too long. A queued frame is measured when it is delivered,
   * because `maxFrameBytes` may have been raised meanwhile.
   */
  receiveFrame(frame: string | Uint8Array): void {
    if (this.#ending !== undefined) return;
    if (this.#queued !== undefined) this.#enqueue(frame);
    else if (typeof frame === "string" ? exceeds(frame, this.maxFrameBytes) : frame.length > this.maxFrameBytes) {
      this.#ending = { code: MessageTooBig, reason: TOO_LARGE };
      this.close(MessageTooBig, TOO_LARGE);
    } else if (typeof frame === "string") this.#handler!.receiveFrame(frame);
    else if (this.#handler!.receiveBinary?.(frame) !== true) this.#handler!.receiveFrame(decodeFrame(frame));
  }

  /** Reports the end of the socket. Later calls do nothing. */
  end(info: CloseInfo): void {
    if (this.#hasEnded) return;
    this.#finish();
    if (this.#queued === undefined) this.#reportEnd(info);
    else this.#enqueue(info);
  }

  #reportEnd(info: CloseInfo): void {
    this.#ending = this.#ending === undefined ? info : endOf(info, this.#ending);
    this.#handler?.closed(this.#ending);
  }

  #enqueue(item: QueuedItem): void {
    const isTaken = this.#onFirst?.(textOf(item));
    this.#onFirst = undefined;
    if (isTaken !== true) this.#queued!.push(item);
  }

  /** Closes the socket, and reports nothing more. */
  discard(code: number, reason: string): void {
    this.#ending = { code, reason };
    this.#finish();
    this.close(code, reason);
    // An end may be queued.
    this.#handler = undefined;
  }

  /** Makes the handler send its coalesced frames before a close. */
  flushHandler(): void {
    this.#handler?.flush?.();
  }

  #finish(): void {
    this.#hasEnded = true;
    clearDeadline(this);
  }

  /**
   * Ends the socket with 1006 if its close does not complete within `CLOSE_TIMEOUT_MS`. On a dead network, most runtimes report
   * the end after 20 s or more, or never.
   */
  protected limitClose(): void {
    if (!this.#hasEnded && this.deadline === 0) setDeadline(this, CLOSE_TIMEOUT_MS);
  }

  /** The close did not complete in time. */
  expire(): void {
    this.end({ code: Abnormal, reason: "" });
  }

  /** Delivers queued frames, and the end after them. */
  protected deliver(items: readonly QueuedItem[]): void {
    for (const item of items)
      if (typeof item === "string" || item instanceof Uint8Array) this.receiveFrame(item);
      else this.#reportEnd(item);
  }
}

/** Returns the text of a frame. Returns an end as it is. */
function textOf(item: QueuedItem): string | CloseInfo {
  return item instanceof Uint8Array ? decodeFrame(item) : item;
}

/** Made with the first binary frame: not every runtime of React Native has the class, and most servers send text. */
let utf8: TextDecoder | undefined;

/** Decodes a binary frame. Returns a blank text for bytes that are not UTF-8, which is answered with -32700. */
export function decodeFrame(bytes: Uint8Array): string {
  try {
    return (utf8 ??= new TextDecoder("utf-8", { fatal: true })).decode(bytes);
  } catch {
    return "";
  }
}
