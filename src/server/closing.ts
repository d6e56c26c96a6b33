/** Closing the sockets of clients that have no peer. */
import { cutReason, fromHttpStatus } from "../close-codes.js";
import type { Socket, SocketHandler } from "../link/socket.js";
import { byeFrame } from "../session/frames.js";
import type { Refusal } from "./upgrade.js";

/** The handler of a socket that is being closed. */
export const IGNORE: SocketHandler = { frame() {}, closed() {} };

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
