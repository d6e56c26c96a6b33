/** A pool of buffers for long writes, because allocating and freeing them is expensive (docs/PERFORMANCE.md). */
import { Socket as NetSocket } from "node:net";
import type { Duplex } from "node:stream";

/** Shorter buffers are not pooled, so at least half of each is in use: the bound on unsent bytes counts only the used part. */
export const MIN_POOLED = 64 * 1024;
const MAX_SIZE = 128 * 1024;
/** The pool keeps at most so many spare buffers for all connections of the process: 1 MiB. */
const MAX_SPARE = 8;

const spare: Buffer[] = [];
/** The buffers that this pool allocated. Other buffers may have the same length. */
const pooled = new WeakSet<ArrayBufferLike>();

/** Returns an uninitialized buffer of at least `MIN_POOLED` bytes, for one write to `raw`. `giveBack` follows when it was written. */
export function borrow(size: number, raw: Duplex | undefined): Buffer {
  if (size > MAX_SIZE || raw === undefined || !keepsNoBuffer(raw)) return Buffer.allocUnsafe(size);
  return (spare.pop() ?? make()).subarray(0, size);
}

/** A stream that is no `net.Socket` may keep a written buffer for any time, and a full socket may keep it for long. */
function keepsNoBuffer(raw: Duplex): boolean {
  return Object.getPrototypeOf(raw) === NetSocket.prototype && raw.writableLength === 0;
}

function make(): Buffer {
  const buffer = Buffer.allocUnsafeSlow(MAX_SIZE);
  pooled.add(buffer.buffer);
  return buffer;
}

/** Returns a buffer to the pool, which may lend it again at once. Does nothing with a buffer that is not of the pool. */
export function giveBack({ buffer }: Buffer): void {
  if (spare.length < MAX_SPARE && pooled.has(buffer)) spare.push(Buffer.from(buffer));
}
