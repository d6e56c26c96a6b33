/** How long the frames of `reciproc.v1` are. */
import { exceeds } from "../core/codec.js";

/**
 * A pack this long leaves at once. Without a bound the two sides work in turns instead of side by side: an echo of 64 KiB
 * fell to half the speed of one frame a message (docs/PERFORMANCE.md).
 */
export const PACK_LENGTH = 1024;

/** What a pack adds to a message that travels alone: its brackets. */
const OVERHEAD_BYTES = 2;
/** Longest pack of several messages, in bytes: a character takes up to three. */
const SEVERAL_BYTES = 3 * (PACK_LENGTH + OVERHEAD_BYTES);

/** Longest frame that is taken, by the longest message: several short ones may come in one that is longer. */
export function longestFrame(maxMessageBytes: number): number {
  return Math.max(maxMessageBytes + OVERHEAD_BYTES, SEVERAL_BYTES);
}

/**
 * Whether a pack, which its socket took, holds a message that is too long: its end is then the socket's, which would have
 * closed for a longer one itself. Others than a lone message are not measured.
 */
export function isTooLong(pack: readonly unknown[], text: string, maxMessageBytes: number): boolean {
  const most = maxMessageBytes + OVERHEAD_BYTES;
  // Where messages may be longer than packs of several, the socket has looked.
  return most < SEVERAL_BYTES && pack.length === 1 && exceeds(text, most);
}
