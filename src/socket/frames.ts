/** Encodes the frames of one write (RFC 6455, section 5.2). */
import { randomFillSync } from "node:crypto";
import type { Duplex } from "node:stream";
import { borrow, MIN_POOLED } from "./buffers.js";

/** FIN, and the opcode of a text, or of a binary frame. */
const TEXT = 0x81;
const BINARY = 0x82;
const MASKED = 0x80;
const KEY_BYTES = 4;
/** Up to this length, Node writes a string from a buffer on the stack. */
const MAX_STRING_LENGTH = 16 * 1024;
/** Below this length, a loop over bytes is faster than setting up one over words. */
const FEW_BYTES = 64;

/** The contents of text and binary frames. */
type Contents = readonly (string | Uint8Array)[];

/**
 * Returns the frames that a server sends, for a write to `raw`. If they are short and each character is one byte, returns a string to be written as
 * `latin1`, for which Node allocates no buffer.
 */
export function unmaskedFrames(texts: readonly string[], raw: Duplex): string | Buffer {
  let frames = "";
  for (const text of texts) {
    const { length } = text;
    if (frames.length + length > MAX_STRING_LENGTH || Buffer.byteLength(text) !== length)
      return bytesOf(texts, false, raw);
    frames += length < 126 ? "\x81" + String.fromCharCode(length) : `\x81\x7e${uint16String(length)}`;
    frames += text;
  }
  return frames;
}

function uint16String(length: number): string {
  return String.fromCharCode(length >> 8, length & 255);
}

/** Returns the frames that a client sends, each masked with its own key (section 5.3). */
export function maskedFrames(contents: Contents, raw?: Duplex): Buffer {
  return bytesOf(contents, true, raw);
}

/** Returns a server's text frame, to be sent to many clients. */
export function unmaskedFrame(text: string): Buffer {
  return bytesOf([text], false);
}

/** Returns the header of a server's binary frame. */
export function binaryHeader(length: number): Buffer {
  const header = Buffer.allocUnsafe(headerBytes(length));
  writeHeader(header, 0, BINARY, length, 0);
  return header;
}

function bytesOf(contents: Contents, isMasked: boolean, raw?: Duplex): Buffer {
  const keyBytes = isMasked ? KEY_BYTES : 0;
  const lengths: number[] = [];
  let size = 0;
  for (const content of contents) {
    const length = typeof content === "string" ? Buffer.byteLength(content) : content.length;
    lengths.push(length);
    size += headerBytes(length) + keyBytes + length;
  }
  const bytes = size < MIN_POOLED ? Buffer.allocUnsafe(size) : borrow(size, raw);
  let at = 0;
  for (let i = 0; i < contents.length; i++) {
    const content = contents[i]!;
    const length = lengths[i]!;
    const isText = typeof content === "string";
    at = writeHeader(bytes, at, isText ? TEXT : BINARY, length, isMasked ? MASKED : 0) + keyBytes;
    // If each character is one byte, "latin1" copies without encoding.
    if (isText) bytes.write(content, at, length === content.length ? "latin1" : "utf8");
    else bytes.set(content, at);
    if (isMasked) mask(bytes, at, at + length);
    at += length;
  }
  return bytes;
}

function headerBytes(length: number): number {
  if (length < 126) return 2;
  return length < 65_536 ? 4 : 10;
}

/** Writes a header without its key. Returns the position after it. */
function writeHeader(bytes: Buffer, at: number, type: number, length: number, flag: number): number {
  bytes[at] = type;
  if (length < 126) {
    bytes[at + 1] = flag | length;
    return at + 2;
  }
  if (length < 65_536) {
    bytes[at + 1] = flag | 126;
    return bytes.writeUInt16BE(length, at + 2);
  }
  bytes[at + 1] = flag | 127;
  return bytes.writeBigUInt64BE(BigInt(length), at + 2);
}

/** Writes a key before `start`, and masks the bytes from `start` to `end` with it. */
function mask(bytes: Buffer, start: number, end: number): void {
  const key = start - KEY_BYTES;
  writeKey(bytes, key);
  let at = start;
  if (end - start > FEW_BYTES) {
    for (; (bytes.byteOffset + at) % KEY_BYTES !== 0; at++) bytes[at]! ^= bytes[key + ((at - start) & 3)]!;
    const words = new Int32Array(bytes.buffer, bytes.byteOffset + at, (end - at) >> 2);
    for (let i = 0; i < KEY_BYTES; i++) rotated[i] = bytes[key + ((at - start + i) & 3)]!;
    const word = asWord[0]!;
    for (let i = 0; i < words.length; i++) words[i]! ^= word;
    at += words.byteLength;
  }
  for (; at < end; at++) bytes[at]! ^= bytes[key + ((at - start) & 3)]!;
}

/** The key as one word, rotated so that it begins with the key byte for the first byte of a word. */
const rotated = new Uint8Array(KEY_BYTES);
const asWord = new Int32Array(rotated.buffer);

/** Random bytes, made in advance, because a key must be unpredictable and requesting four bytes at a time is expensive. */
const keys = new Uint8Array(2048 * KEY_BYTES);
let keysUsed = keys.length;

function writeKey(bytes: Buffer, at: number): void {
  if (keysUsed === keys.length) {
    randomFillSync(keys);
    keysUsed = 0;
  }
  for (let i = 0; i < KEY_BYTES; i++) bytes[at + i] = keys[keysUsed++]!;
}
