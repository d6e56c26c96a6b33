/** The lengths of the frames of `reciproc.v1`, and the limits of an end. */
import type { BytesCodec } from "../message/bytes.js";
import { exceeds, type MessageText } from "../message/codec.js";
import type { PeerLimits } from "../message/limits.js";
import { MOST_COALESCED } from "../socket/coalescer.js";
import type { EndpointLimits } from "./state.js";

/** The collected pongs are sent once they have about this length, in UTF-16 code units. All are taken to be as long as the newest. */
export const COLLECTED_PONGS = 1024;

/** Longest pack of several messages, in UTF-16 code units. */
export const PACK_LENGTH = MOST_COALESCED;

const LOG_FRAMES = 4096;
const MOST_HIGH_WATER_BYTES = 2 ** 20;

/** Returns the limits of an end, from the limits of its peer. */
export function endpointLimits(limits: PeerLimits, bytes?: BytesCodec): EndpointLimits {
  const { maxMessageBytes, maxUnsentBytes } = limits;
  return {
    maxMessageBytes,
    logFrames: LOG_FRAMES,
    logLength: maxUnsentBytes,
    highWaterBytes: Math.min(Math.ceil(maxUnsentBytes / 4), MOST_HIGH_WATER_BYTES),
    bytes: bytes && true,
    readBytes: bytes?.read,
  };
}

/** Returns the data frame of one message: a pack, or a binary frame. */
export function frameOf(message: MessageText): string | Uint8Array {
  return typeof message === "string" ? `[${message}]` : message.frame;
}

/** The brackets of a pack. */
const OVERHEAD_BYTES = 2;
/** Longest pack of several messages, in bytes. A UTF-16 code unit takes up to three. */
const SEVERAL_BYTES = 3 * (PACK_LENGTH + OVERHEAD_BYTES);

/** Returns the longest accepted frame. A pack of several short messages may be longer than the longest message. */
export function longestFrame(maxMessageBytes: number): number {
  return Math.max(maxMessageBytes + OVERHEAD_BYTES, SEVERAL_BYTES);
}

/** A JSON string, or a character that has a meaning outside of strings. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},]/g;

/** Returns true if a pack, which the socket accepted, contains a message that is too long. */
export function isTooLong(pack: string, maxMessageBytes: number): boolean {
  const most = maxMessageBytes + OVERHEAD_BYTES;
  // If messages may be longer than packs of several, the socket has checked the length.
  if (most >= SEVERAL_BYTES || !exceeds(pack, most)) return false;
  let depth = 0;
  let start = 0;
  for (const { 0: token, index } of pack.matchAll(TOKEN)) {
    if ("[{".includes(token) && depth++ === 0) start = index + 1;
    if ("]}".includes(token)) depth--;
    if (depth > 1 || (depth === 1 && token !== ",")) continue;
    // The pack or one of its messages ends here.
    if (exceeds(pack.slice(start, index), maxMessageBytes)) return true;
    start = index + 1;
  }
  return false;
}
