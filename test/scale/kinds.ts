/** The compared kinds: the same connections alone, with a peer, and with a session. */
export const KINDS = {
  ws: "bare ws",
  plain: "reciproc (plain)",
  packed: "reciproc (packed, a session each)",
} as const;

export type Kind = keyof typeof KINDS;

/**
 * Connections that are opened and closed first: the code that is compiled for them must not count for the measured
 * ones.
 */
export const WARM_UP = 100;
/** The default of `limits.maxMessageBytes`, for bare `ws`. */
export const MAX_MESSAGE_BYTES = 2 ** 20;
