/**
 * Close codes of WebSocket (RFC 6455, section 7.4) and of this package, and what each means for a session and for a client that
 * reconnects. Codes from 4400 to 4499 stand for an HTTP status or a standard code where that cannot be sent.
 */

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
/** The other side passed a limit on malformed messages, or on pings. */
export const PolicyViolation = 1008;
/** A message is longer than `maxMessageBytes`. */
export const MessageTooBig = 1009;
/** The other side reads too slowly, or its session takes too much room. */
export const TryAgainLater = 1013;
/** The socket is left for another one. It ends no session. */
export const Superseded = 4000;

/** What a standard WebSocket, which may send 1000 and 3000 to 4999 only, sends instead of a code. */
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
  return code > 4000 ? code - 4000 : undefined;
}

/**
 * Whether a close ends the session (rule 6). After these codes the other side would read the same again: what it could not read,
 * or would not take. Any other close suspends a session.
 */
export function endsSession(code: number): boolean {
  return (
    code === ProtocolError ||
    code === 1003 ||
    (code >= 1007 && code <= 1010) ||
    code === TryAgainLater ||
    isRefusal(code)
  );
}

/** Whether a client connects again after a close. 1000 was meant, and 44xx would be the same again. */
export function shouldReconnect(code: number): boolean {
  return code !== Normal && !isRefusal(code);
}

function isRefusal(code: number): boolean {
  return code >= 4400 && code < 4500;
}

/** A close reason holds at most 123 bytes of UTF-8 (RFC 6455, section 5.5). Cuts between characters. */
export function cutReason(reason: string): string {
  const bytes = new TextEncoder().encode(reason);
  if (bytes.length <= 123) return reason;
  // Of a character that is cut in two nothing is given out: the decoder waits for the rest.
  return new TextDecoder().decode(bytes.subarray(0, 123), { stream: true });
}
