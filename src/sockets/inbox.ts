/** What every socket does with what comes in: keeps it until somebody listens, tells the end once, and nothing after it. */
import { exceeds } from "../core/codec.js";
import type { CloseInfo, SocketHandler } from "../core/transport.js";

/** The incoming half of every socket. */
export abstract class Inbox {
  /** Longest frame that is handed over, in bytes of UTF-8. */
  maxFrameBytes: number;
  #handler: SocketHandler | undefined;
  /** What came before `start`. */
  #held: (string | CloseInfo)[] | undefined = [];
  #shut = false;
  /** Whether a frame was too long. */
  #isDeaf = false;

  constructor(maxFrameBytes: number) {
    this.maxFrameBytes = maxFrameBytes;
  }

  abstract close(code?: number, reason?: string): void;

  /** Hands over what was held, in a microtask, and from then on what comes. */
  start(handler: SocketHandler): void {
    this.#handler = handler;
    if (this.#held!.length === 0) this.#held = undefined;
    else queueMicrotask(() => this.#release());
  }

  /** A frame came, of so many bytes, where that is known. */
  frame(text: string, bytes?: number): void {
    if (this.#shut) return;
    if (this.#held === undefined) this.#take(text, bytes);
    else this.#held.push(text);
  }

  /** The socket is closed; called once. */
  end(info: CloseInfo): void {
    this.#shut = true;
    if (this.#held === undefined) this.#handler!.closed(info);
    else this.#held.push(info);
  }

  /** Measured only here: whoever starts it may have raised the bound since the frame came. */
  #take(text: string, bytes?: number): void {
    const isTooLong = bytes === undefined ? exceeds(text, this.maxFrameBytes) : bytes > this.maxFrameBytes;
    if (!isTooLong) return this.#handler!.frame(text);
    // Nothing more is handed over but the end.
    this.#shut = this.#isDeaf = true;
    this.close(1009, "message is too large");
  }

  #release(): void {
    const held = this.#held!;
    // The list grows while it is handed over: a handler may make more come in.
    for (const item of held) {
      if (typeof item !== "string") this.#handler!.closed(item);
      else if (!this.#isDeaf) this.#take(item);
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
