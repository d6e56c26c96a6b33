/** What is compared: the same connections, with nothing on them, with a peer, and with a session. */
export const KINDS = {
  ws: "bare ws",
  plain: "reciproc (plain)",
  packed: "reciproc (packed, a session each)",
} as const;

export type Kind = keyof typeof KINDS;

/** Connections that come and go first: code that is compiled for them is not the price of those that are measured. */
export const WARM_UP = 100;
/** The default of `limits.maxMessageBytes`, for bare `ws`. */
export const MAX_MESSAGE_BYTES = 2 ** 20;
