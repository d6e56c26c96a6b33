/** Buffers for long writes, which are used again: making and freeing them is dear (docs/PERFORMANCE.md). */

/** Of a buffer that waits in a full socket at least half is in use: what waits is counted, and bounded, by its own length. */
const SHORTEST = 64 * 1024;
const LENGTH = 128 * 1024;
/** So many are kept, for all connections of the process: 1 MiB. */
const MOST = 8;

const spare: Buffer[] = [];
/** Those that were made here: others may be as long. */
const ours = new WeakSet<ArrayBufferLike>();

/** A buffer of that size, with whatever was in it. Where it `isBorrowed`, `giveBack` may follow when nobody reads it any more. */
export function borrow(size: number): Buffer {
  if (size < SHORTEST || size > LENGTH) return Buffer.allocUnsafe(size);
  return (spare.pop() ?? make()).subarray(0, size);
}

function make(): Buffer {
  const buffer = Buffer.allocUnsafeSlow(LENGTH);
  ours.add(buffer.buffer);
  return buffer;
}

/** Whether a buffer can be given back. */
export function isBorrowed({ length, buffer }: Buffer): boolean {
  return length >= SHORTEST && ours.has(buffer);
}

/** Takes a borrowed buffer back: the next that is borrowed may be the same. */
export function giveBack({ buffer }: Buffer): void {
  if (spare.length < MOST) spare.push(Buffer.from(buffer));
}
