/** A socket over the standard WebSocket of browsers, workers, Deno, Bun and Node 22. */
import { Abnormal, Normal, toStandard } from "../message/close-codes.js";
import type { Socket } from "./socket.js";
import { Inbox } from "./inbox.js";

/** The part of the standard WebSocket that reciproc uses. */
export interface StandardWebSocket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: string, listener: (event: any) => void, options?: { once: boolean }): void;
  readonly protocol: string;
}

const OPEN = 1;

/**
 * Wraps a WebSocket that is open or opening. It listens at once, and keeps frames that come before `start`. The caller listens to "error",
 * which has no details, and is followed by "close".
 */
export class StandardSocket extends Inbox implements Socket {
  /** When a frame last came. */
  receivedAt = performance.now();
  readonly #webSocket: StandardWebSocket;

  constructor(webSocket: StandardWebSocket, maxFrameBytes: number) {
    super(maxFrameBytes);
    this.#webSocket = webSocket;
    webSocket.binaryType = "arraybuffer";
    webSocket.addEventListener("message", ({ data }: { data: string | ArrayBuffer }) => {
      this.receivedAt = performance.now();
      this.receiveFrame(typeof data === "string" ? data : new Uint8Array(data));
    });
    webSocket.addEventListener("close", ({ code, reason }: { code: number; reason: string }) =>
      this.end({ code: closeCode(code), reason }),
    );
  }

  get open(): boolean {
    return this.#webSocket.readyState === OPEN;
  }

  get unsentBytes(): number {
    return this.#webSocket.bufferedAmount;
  }

  send(...frames: readonly (string | Uint8Array)[]): boolean {
    if (!this.open) return false;
    for (const frame of frames) this.#webSocket.send(frame);
    return true;
  }

  close(code: number = Normal, reason?: string): void {
    this.#webSocket.close(toStandard(code), reason);
    this.limitClose();
  }
}

/** Returns the code of a `close` event, or 1006 if that is no close code. Deno reports 0 for a lost connection. */
export function closeCode(code: number | undefined): number {
  return code! >= 1000 ? code! : Abnormal;
}
