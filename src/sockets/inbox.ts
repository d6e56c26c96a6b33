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

  /** A frame came. */
  frame(text: string): void {
    if (this.#shut) return;
    if (exceeds(text, this.maxFrameBytes)) {
      // Nothing more is handed over but the end.
      this.#shut = true;
      this.close(1009, "message is too large");
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
