/** What every socket does with what comes in: keeps it until somebody listens, tells the end once, and nothing after it. */
import { exceeds } from "../core/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { endOf, type CloseInfo } from "../core/transport.js";
import type { SocketBudget, SocketHandler } from "../link/socket.js";

/** How long the other side may take to complete a close. */
export const CLOSE_TIMEOUT_MS = 5_000;

/** The incoming half of every socket. */
export abstract class Inbox {
  /** Longest frame that is handed over, in bytes of UTF-8. */
  maxFrameBytes: number;
  /** As `Socket.budget`. */
  readonly budget: SocketBudget | undefined;
  #handler: SocketHandler | undefined;
  /** What came before `start`. */
  #held: (string | CloseInfo)[] | undefined = [];
  #isOver = false;
  /** What this socket was closed with because a frame was too long. After it, no frame is handed over. */
  #refusal: CloseInfo | undefined;
  /** The deadline of the close that this side has begun. */
  #closing: Expiring | undefined;

  constructor(maxFrameBytes: number) {
    this.maxFrameBytes = maxFrameBytes;
  }

  abstract close(code?: number, reason?: string): void;

  /** Hands over to `handler` what was held, in a microtask, and from then on what comes. A later call changes the handler. */
  start(handler: SocketHandler): void {
    const isFirst = this.#handler === undefined;
    this.#handler = handler;
    if (!isFirst) return;
    if (this.#held!.length === 0) this.#held = undefined;
    else queueMicrotask(() => this.#release());
  }

  /** A frame came, of so many bytes, where that is known. */
  frame(text: string, bytes?: number): void {
    if (this.#isOver || this.#refusal !== undefined) return;
    if (this.#held === undefined) this.#take(text, bytes);
    else this.#held.push(text);
  }

  /** Reports the end of the socket. Later calls do nothing. */
  end(info: CloseInfo): void {
    if (this.#isOver) return;
    this.#finish();
    const end = endOf(info, this.#refusal);
    if (this.#held === undefined) this.#handler!.closed(end);
    else this.#held.push(end);
  }

  /** Closes the socket, and reports nothing more of it. */
  discard(code: number, reason: string): void {
    this.#finish();
    this.close(code, reason);
  }

  /** Lets what the handler has coalesced leave before a close. */
  flushHandler(): void {
    this.#handler?.flush?.();
  }

  #finish(): void {
    this.#isOver = true;
    if (this.#closing !== undefined) clearDeadline(this.#closing);
  }

  /**
   * Ends the socket with 1006 if the close that has begun does not complete within `CLOSE_TIMEOUT_MS`. On a dead network
   * most runtimes report the end after 20 s or more, or never.
   */
  protected limitClose(): void {
    if (this.#isOver || this.#closing !== undefined) return;
    this.#closing = { deadline: 0, expire: () => this.end({ code: 1006, reason: "" }) };
    setDeadline(this.#closing, CLOSE_TIMEOUT_MS);
  }

  /** Measured only here: whoever starts it may have raised the bound since the frame came. */
  #take(text: string, bytes?: number): void {
    const isTooLong = bytes === undefined ? exceeds(text, this.maxFrameBytes) : bytes > this.maxFrameBytes;
    if (!isTooLong) return this.#handler!.frame(text);
    // Nothing more is handed over but the end.
    this.#refusal = { code: 1009, reason: "message is too large" };
    this.close(1009, this.#refusal.reason);
  }

  /** Hands over what was held from the item at `from` on, in as many ticks as the budget needs. What comes meanwhile is held behind it. */
  #release(from = 0): void {
    const held = this.#held!;
    for (let i = from; i < held.length; i++) {
      if (i > 0 && this.budget?.isSpent()) return this.budget.defer(() => this.#release(i));
      const item = held[i]!;
      if (typeof item !== "string") this.#handler!.closed(item);
      else if (this.#refusal === undefined) this.#take(item);
    }
    this.#held = undefined;
  }
}

/** The text of a text or a binary frame. */
export function textOf(data: string | ArrayBuffer | Uint8Array): string {
  return typeof data === "string" ? data : decodeFrame(data);
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The text of a binary frame. What is not UTF-8 becomes a blank text, which like any garbage is answered with -32700. */
export function decodeFrame(bytes: ArrayBuffer | Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    return "";
  }
}
