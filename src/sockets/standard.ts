/** A socket over the standard WebSocket of browsers, workers, Deno, Bun and Node 22. */
import type { Socket } from "../core/transport.js";
import { Inbox, textOf } from "./inbox.js";

/** The part of the standard WebSocket that is used here. */
export interface StandardWebSocket {
  binaryType: string;
  readonly readyState: number;
  readonly bufferedAmount: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  addEventListener(type: string, listener: (event: any) => void, options?: { once: boolean }): void;
  readonly protocol: string;
}

const OPEN = 1;
const STAND_INS: Readonly<Record<number, number>> = { 1001: 1000, 1002: 4400, 1008: 4400, 1009: 4413, 1013: 4429 };

/** Wraps a WebSocket that is open or opening. It listens at once: what comes before `start` is kept. */
export function standardSocket(webSocket: StandardWebSocket, maxMessageBytes: number): Socket {
  const inbox = new Inbox(maxMessageBytes, () => webSocket.close(sendable(1009), "message is too large"));
  webSocket.binaryType = "arraybuffer";
  let heardAt = performance.now();
  webSocket.addEventListener("message", ({ data }: { data: string | ArrayBuffer }) => {
    heardAt = performance.now();
    inbox.frame(textOf(data));
  });
  webSocket.addEventListener("close", ({ code, reason }: { code: number; reason: string }) =>
    inbox.end({ code, reason }),
  );
  // It says nothing, and "close" follows. But the WebSocket of `ws`, made global, throws when nobody listens.
  webSocket.addEventListener("error", () => {});
  const send = (frame: string): boolean => {
    if (webSocket.readyState !== OPEN) return false;
    webSocket.send(frame);
    return true;
  };
  return {
    start: (handler) => inbox.start(handler),
    send,
    sendShared: ({ text }) => send(text),
    get open() {
      return webSocket.readyState === OPEN;
    },
    close: (code, reason) => webSocket.close(sendable(code), reason),
    get maxFrameBytes() {
      return inbox.maxFrameBytes;
    },
    set maxFrameBytes(bytes) {
      inbox.maxFrameBytes = bytes;
    },
    get heardAt() {
      return heardAt;
    },
    get unsentBytes() {
      return webSocket.bufferedAmount;
    },
  };
}

/**
 * A standard WebSocket sends 1000 and 3000 to 4999 only, and throws for the rest (RFC 6455, section 7.4.2). What a peer ends
 * with besides goes out as the HTTP status that says the same, above 4000.
 */
function sendable(code = 1000): number {
  return STAND_INS[code] ?? code;
}
