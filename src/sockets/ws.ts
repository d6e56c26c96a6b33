/** A socket over the `ws` package: Node's, on both sides. */
import type { WebSocket } from "ws";
import type { Socket } from "../core/transport.js";
import { decodeFrame, Inbox } from "./inbox.js";

/** How long the other side may take to answer a close before the socket is destroyed. */
export const CLOSE_TIMEOUT_MS = 5_000;

/** Wraps a `ws` WebSocket. It listens at once: what comes before `start` is kept. */
export function wsSocket(webSocket: WebSocket, maxMessageBytes: number): Socket {
  // `maxPayload` stops a longer message before it is gathered; what comes here fits.
  const inbox = new Inbox(maxMessageBytes, () => webSocket.close(1009));
  let error: Error | undefined;
  webSocket.on("message", (data: Buffer, isBinary: boolean) =>
    inbox.frame(isBinary ? decodeFrame(data) : data.toString()),
  );
  // Always followed by "close".
  webSocket.on("error", (cause: Error) => (error ??= cause));
  webSocket.on("close", (code: number, reason: Buffer) => inbox.end({ code, reason: reason.toString(), error }));
  return {
    start: (handler) => inbox.start(handler),
    send(frame) {
      if (webSocket.readyState !== webSocket.OPEN) return false;
      webSocket.send(frame);
      return true;
    },
    close: (code, reason) => webSocket.close(code, reason),
    get unsentBytes() {
      return webSocket.bufferedAmount;
    },
  };
}
