/** What every socket does with what comes in: keeps it until somebody listens, tells the end once, and nothing after it. */
import { exceeds } from "../core/codec.js";
import type { CloseInfo, SocketHandler } from "../core/transport.js";

/** The incoming half of a socket. */
export class Inbox {
  /** Longest frame that is handed over, in bytes of UTF-8. */
  maxFrameBytes: number;
  readonly #onTooLarge: () => void;
  #handler: SocketHandler | undefined;
  /** What came before `start`. */
  #held: (string | CloseInfo)[] | undefined = [];
  #shut = false;

  /** `onTooLarge` is to close the socket; nothing more is handed over then but the end. */
  constructor(maxFrameBytes: number, onTooLarge: () => void) {
    this.maxFrameBytes = maxFrameBytes;
    this.#onTooLarge = onTooLarge;
  }

  /** Hands over what was held, in a microtask, and from then on what comes. */
  start(handler: SocketHandler): void {
    this.#handler = handler;
    if (this.#held!.length === 0) this.#held = undefined;
    else queueMicrotask(() => this.#release());
  }

  /** A frame came. */
  frame(text: string): void {
    if (this.#shut) return;
    if (exceeds(text, this.maxFrameBytes)) {
      this.#shut = true;
      this.#onTooLarge();
    } else if (this.#held === undefined) this.#handler!.frame(text);
    else this.#held.push(text);
  }

  /** The socket is closed; called once. */
  end(info: CloseInfo): void {
    this.#shut = true;
    if (this.#held === undefined) this.#handler!.closed(info);
    else this.#held.push(info);
  }

  #release(): void {
    const held = this.#held!;
    // The list grows while it is handed over: a handler may make more come in.
    for (const item of held) {
      if (typeof item === "string") this.#handler!.frame(item);
      else this.#handler!.closed(item);
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
