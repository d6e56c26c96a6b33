/** How long the frames of `reciproc.v1` are. */
import { exceeds } from "../core/codec.js";

/**
 * A pack of this many messages of a turn leaves at once, and so does one whenever their number has doubled. Without a bound the
 * two sides work one after the other instead of side by side (docs/PERFORMANCE.md).
 */
export const PACK_MESSAGES = 16;
/** A pack this long leaves at once, however few they are. */
export const PACK_LENGTH = 8192;

/** What a pack adds to a message that travels alone: its brackets. */
const OVERHEAD_BYTES = 2;
/** Longest pack of several messages, in bytes: a character takes up to three. */
const SEVERAL_BYTES = 3 * (PACK_LENGTH + OVERHEAD_BYTES);

/** Longest frame that is taken, by the longest message: several short ones may come in one that is longer. */
export function longestFrame(maxMessageBytes: number): number {
  return Math.max(maxMessageBytes + OVERHEAD_BYTES, SEVERAL_BYTES);
}

/** Whether a pack, which its socket took, holds a message that is too long. */
export function isTooLong(pack: string, maxMessageBytes: number): boolean {
  const most = maxMessageBytes + OVERHEAD_BYTES;
  // Where messages may be longer than packs of several, the socket has looked.
  return most < SEVERAL_BYTES && exceeds(pack, most) && membersOf(pack).some((text) => exceeds(text, maxMessageBytes));
}

/** A string with what is escaped in it, or a character that means something outside of one. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]/g;

/** The texts of the members of an array, which is JSON. */
function membersOf(array: string): string[] {
  const members: string[] = [];
  let depth = 0;
  let start = 0;
  for (const { 0: token, index } of array.matchAll(TOKEN)) {
    if ((token === "[" || token === "{") && depth++ === 0) start = index + 1;
    if (token === "]" || token === "}") depth--;
    if (depth > 1 || (depth === 1 && token !== ",")) continue;
    members.push(array.slice(start, index));
    start = index + 1;
  }
  return members;
}
