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
  let error: NodeJS.ErrnoException | undefined;
  webSocket.on("message", (data: Buffer, isBinary: boolean) =>
    inbox.frame(isBinary ? decodeFrame(data) : data.toString()),
  );
  // Always followed by "close".
  webSocket.on("error", (cause: Error) => (error ??= cause));
  webSocket.on("close", (code: number, reason: Buffer) =>
    inbox.end({ code: failureCode(error) ?? code, reason: reason.toString(), error }),
  );
  return {
    start: (handler) => inbox.start(handler),
    send(frame) {
      if (webSocket.readyState !== webSocket.OPEN) return false;
      webSocket.send(frame);
      return true;
    },
    close: (code = 1000, reason = "") => webSocket.close(code, reason),
    get unsentBytes() {
      return webSocket.bufferedAmount;
    },
  };
}

const FAILURE_CODES: Readonly<Record<string, number>> = {
  WS_ERR_UNSUPPORTED_MESSAGE_LENGTH: 1009,
  WS_ERR_TOO_MANY_BUFFERED_PARTS: 1008,
  WS_ERR_INVALID_UTF8: 1007,
};

/** `ws` closes with the right code for what it could not read, but tells this side 1006: it reads no answer after that. */
function failureCode(error: NodeJS.ErrnoException | undefined): number | undefined {
  if (!error?.code?.startsWith("WS_ERR_")) return undefined;
  return FAILURE_CODES[error.code] ?? 1002;
}
