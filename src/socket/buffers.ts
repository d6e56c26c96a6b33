/** A pool of buffers for long writes, because allocating and freeing them is expensive (docs/PERFORMANCE.md). */

/** Shorter buffers are not pooled, so at least half of each is in use: the bound on unsent bytes counts only the used part. */
const MIN_SIZE = 64 * 1024;
const MAX_SIZE = 128 * 1024;
/** The pool keeps at most so many spare buffers for all connections of the process: 1 MiB. */
const MAX_SPARE = 8;

const spare: Buffer[] = [];
/** The buffers that this pool allocated. Other buffers may have the same length. */
const pooled = new WeakSet<ArrayBufferLike>();

/** Returns an uninitialized buffer of that size. If it `isBorrowed`, `giveBack` may follow when it is no longer read. */
export function borrow(size: number): Buffer {
  if (size < MIN_SIZE || size > MAX_SIZE) return Buffer.allocUnsafe(size);
  return (spare.pop() ?? make()).subarray(0, size);
}

function make(): Buffer {
  const buffer = Buffer.allocUnsafeSlow(MAX_SIZE);
  pooled.add(buffer.buffer);
  return buffer;
}

/** Returns true if a buffer is from the pool. */
export function isBorrowed({ length, buffer }: Buffer): boolean {
  return length >= MIN_SIZE && pooled.has(buffer);
}

/** Returns a borrowed buffer to the pool, which may lend it again at once. */
export function giveBack({ buffer }: Buffer): void {
  if (spare.length < MAX_SPARE) spare.push(Buffer.from(buffer));
}
