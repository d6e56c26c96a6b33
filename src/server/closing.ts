/** Closing the sockets of clients that have no peer. */
import { cutReason, fromHttpStatus } from "../message/close-codes.js";
import type { Socket, SocketHandler } from "../socket/socket.js";
import { byeFrame } from "../session/frames.js";
import type { GateSocket, Refusal } from "./upgrade.js";

/** How long a client without a peer may take to answer a close. A peer has longer, because its last messages may be on their way. */
const CUT_MS = 1000;

/** Cuts the connection of a client that has no peer, unless the client has answered the close in time. */
export function cutLater(connection: GateSocket): void {
  const timer = setTimeout(() => connection.destroy(), CUT_MS);
  timer.unref?.();
  connection.once("close", () => clearTimeout(timer));
}

/** The handler of a socket that is being closed. */
export const IGNORE: SocketHandler = { receiveFrame() {}, closed() {} };

/** Closes a socket, and ignores its further frames. Cuts the reason at the length that a close frame can carry. */
export function closeIgnored(socket: Socket, code: number, reason: string): void {
  socket.start(IGNORE);
  socket.close(code, cutReason(reason));
}

/** Sends a refused client a bye, and then closes its socket with the code of that status. */
export function closeWithBye(
  socket: { send(frame: string): unknown; close(code: number, reason: string): void },
  { status, reason }: Refusal,
): void {
  const code = fromHttpStatus(status);
  socket.send(byeFrame({ code, reason }));
  socket.close(code, cutReason(reason));
}
