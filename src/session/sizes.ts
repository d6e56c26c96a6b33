/** How long the frames of `reciproc.v1` are, and how much an end keeps. */
import { exceeds } from "../core/codec.js";
import { burstBytes, type PeerLimits } from "../core/limits.js";
import { MOST_COALESCED } from "../link/coalescer.js";
import type { EndpointLimits } from "./endpoint.js";

/** Longest pack of several messages, in UTF-16 code units. */
export const PACK_LENGTH = MOST_COALESCED;

const LOG_FRAMES = 4096;
const MOST_HIGH_WATER_BYTES = 2 ** 20;

/** Returns what an end of a session keeps and accepts, by the limits of its peer. */
export function endpointLimits(limits: PeerLimits): EndpointLimits {
  const { maxMessageBytes, maxUnsentBytes } = limits;
  return {
    maxMessageBytes,
    logFrames: LOG_FRAMES,
    logLength: maxUnsentBytes,
    queueLength: Math.ceil(maxUnsentBytes / 2),
    burstLength: burstBytes(limits),
    highWaterBytes: Math.min(Math.ceil(maxUnsentBytes / 4), MOST_HIGH_WATER_BYTES),
  };
}

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
