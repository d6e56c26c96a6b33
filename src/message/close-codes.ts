/**
 * Close codes of WebSocket (RFC 6455, section 7.4) and of this package, and what each means for a session and for a client that
 * reconnects. docs/PROTOCOL.md lists those that are sent, under "Close codes". Codes from 4400 to 4599 stand for an HTTP status, and
 * 4400, 4413 and 4429 also for a standard code where that cannot be sent.
 */
import { expected } from "./errors.js";
import { anyString } from "./options.js";

/** The application closed the connection. */
export const Normal = 1000;
/** The server closes or drains, or the page is left. */
export const GoingAway = 1001;
/** The other side broke the protocol. */
export const ProtocolError = 1002;
/** The close frame had no code. Never sent. */
export const NoStatus = 1005;
/** The connection was lost without a close. Never sent. */
export const Abnormal = 1006;
/** The other side exceeded a limit on malformed messages, or on pings. */
export const PolicyViolation = 1008;
/** A message is longer than `maxMessageBytes`. */
export const MessageTooBig = 1009;
/** The reason of a close with `MessageTooBig`. */
export const TOO_LARGE = "message is too large";
/** The other side reads too slowly, or its session takes too much memory. */
export const TryAgainLater = 1013;
/**
 * This side abandons the socket: a newer one superseded it, a `resume` or hello came late, the network is offline, or `onOpen` has failed.
 * The session continues, unless a bye with this code ended it.
 */
export const Superseded = 4000;
/** The credentials of the client have expired. The session continues over the next socket, for which the client sends fresh ones. */
export const Expired = 4001;

/** The codes that a standard WebSocket sends instead of others. It may send only 1000 and 3000 to 4999. */
const STANDARD: Readonly<Record<number, number>> = {
  [GoingAway]: Normal,
  [ProtocolError]: 4400,
  [PolicyViolation]: 4400,
  [MessageTooBig]: 4413,
  [TryAgainLater]: 4429,
};

/** Returns the code that a standard WebSocket sends for `code`. */
export function toStandard(code: number): number {
  return STANDARD[code] ?? code;
}

/** Returns the code that stands for an HTTP status: 4401 for 401. A page cannot see the status. */
export function fromHttpStatus(status: number): number {
  return 4000 + status;
}

/** Returns the HTTP status that a code stands for, `undefined` for any other code. */
export function toHttpStatus(code: number): number | undefined {
  return code >= 4400 && code < 4600 ? code - 4000 : undefined;
}

/**
 * Returns true if a close ends the session (rule 6). After 1002, 1003, 1007 to 1010 and 1013, a replay would fail for the same reason. A code
 * from 4400 to 4499 refuses the client. Any other close suspends the session.
 */
export function endsSession(code: number): boolean {
  return (
    code === ProtocolError ||
    code === 1003 ||
    (code >= 1007 && code <= 1010) ||
    code === TryAgainLater ||
    refusesClient(code)
  );
}

/** Returns true if a client reconnects after its connection has ended with this code (C-29). 1000 was on purpose. */
export function shouldReconnect(code: number): boolean {
  return code !== Normal && !refusesClient(code);
}

/**
 * Returns true if a client tries again after an attempt that was refused with this HTTP status (C-29). A proxy sends most of them while
 * its server is away.
 */
export function shouldRetry(status: number | undefined): boolean {
  return status !== 401 && status !== 403;
}

function refusesClient(code: number): boolean {
  return code >= 4400 && code < 4500;
}

/** Returns true for the codes, besides 1000, that an application may send (C-10). */
export function isApplicationCode(code: unknown): code is number {
  return Number.isInteger(code) && (code as number) >= 3000 && (code as number) <= 4999;
}

/** Returns the reason of a close, cut. Throws a `TypeError` for a close that an application may not send (C-10). */
export function checkClose(code: unknown, reason: unknown): string {
  if (code !== Normal && !isApplicationCode(code)) throw expected("code", "1000 or from 3000 to 4999", code);
  return cutReason(anyString(reason, "reason"));
}

/** Cuts a close reason at 123 bytes of UTF-8 (RFC 6455, section 5.5), between characters. */
export function cutReason(reason: string): string {
  // No text of so few UTF-16 code units is too long.
  if (reason.length <= 41) return reason;
  const encoder = new TextEncoder();
  let cut = "";
  for (const character of reason) {
    if (encoder.encode(cut + character).length > 123) break;
    cut += character;
  }
  return cut;
}
