/**
 * Buffers for long writes, which are used again. Making and freeing one of 64 KiB for each message takes a tenth of the time
 * that an echo of it takes, most of it in the collector.
 */

/** Shorter ones come from Node's own pool, or cost little. */
const SHORTEST = 16 * 1024;
const LENGTH = 128 * 1024;
/** So many are kept, for all connections of the process: 1 MiB. */
const MOST = 8;

const spare: Buffer[] = [];

/** A buffer of that size, with whatever was in it. Where it is `borrowed`, `giveBack` may follow when nobody reads it any more. */
export function borrow(size: number): Buffer {
  if (size < SHORTEST || size > LENGTH) return Buffer.allocUnsafe(size);
  return (spare.pop() ?? Buffer.allocUnsafeSlow(LENGTH)).subarray(0, size);
}

/** Whether a buffer can be given back. */
export function isBorrowed({ length, buffer }: Buffer): boolean {
  return length >= SHORTEST && buffer.byteLength === LENGTH;
}

/** Takes a borrowed buffer back: the next that is borrowed may be the same. */
export function giveBack({ buffer }: Buffer): void {
  if (spare.length < MOST) spare.push(Buffer.from(buffer));
}
