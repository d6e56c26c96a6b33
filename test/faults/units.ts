/** Splits the bytes of one direction of a WebSocket connection into its HTTP head and its frames (RFC 6455, section 5.2). */

/** A complete head or frame. */
export interface Unit {
  readonly bytes: Buffer;
  /** The control frame by the name of its only member, or `undefined` for data and binary frames. */
  readonly control: Record<string, unknown> | undefined;
}

const TEXT = 0x1;
const OPENING_BRACE = 0x7b;

/** Adds received bytes. Returns the units that they complete. */
export class Units {
  #rest: Buffer = Buffer.alloc(0);
  #isHead = true;
  /** The upgrade was refused, so that no WebSocket frames follow. */
  #isRaw = false;

  take(chunk: Buffer): Unit[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    const units: Unit[] = [];
    for (let unit = this.#next(); unit !== undefined; unit = this.#next()) units.push(unit);
    return units;
  }

  #next(): Unit | undefined {
    const rest = this.#rest;
    const { start, length } = payloadOf(rest);
    const end = this.#isRaw ? rest.length : this.#isHead ? headEnd(rest) : start + length;
    if (end === 0 || end > rest.length) return undefined;
    const bytes = rest.subarray(0, end);
    this.#rest = rest.subarray(end);
    if (!this.#isHead && !this.#isRaw) return { bytes, control: controlOf(bytes) };
    this.#isHead = false;
    this.#isRaw ||= bytes.subarray(0, 5).toString() === "HTTP/" && bytes.subarray(9, 12).toString() !== "101";
    return { bytes, control: undefined };
  }
}

/** Returns where the head ends, or a value beyond the buffer if it is incomplete. */
function headEnd(bytes: Buffer): number {
  const at = bytes.indexOf("\r\n\r\n");
  return at < 0 ? Infinity : at + 4;
}

/** Returns where the payload begins, or a value beyond the buffer if that cannot be read yet. */
function payloadOf(bytes: Buffer): { start: number; length: number } {
  if (bytes.length < 2) return { start: Infinity, length: 0 };
  const short = bytes[1]! & 0x7f;
  const header = (short < 126 ? 2 : short === 126 ? 4 : 10) + ((bytes[1]! & 0x80) === 0 ? 0 : 4);
  if (bytes.length < header) return { start: Infinity, length: 0 };
  const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
  return { start: header, length };
}

/** Only a frame that begins like a control frame is unmasked and read. */
function controlOf(frame: Buffer): Record<string, unknown> | undefined {
  const { start, length } = payloadOf(frame);
  const mask = (frame[1]! & 0x80) === 0 ? undefined : frame.subarray(start - 4, start);
  if ((frame[0]! & 0xf) !== TEXT || length === 0 || (frame[start]! ^ (mask?.[0] ?? 0)) !== OPENING_BRACE)
    return undefined;
  const payload = Buffer.from(frame.subarray(start));
  if (mask !== undefined) for (let i = 0; i < length; i++) payload[i]! ^= mask[i & 3]!;
  const value = JSON.parse(payload.toString()) as Record<string, unknown>;
  return "jsonrpc" in value ? undefined : value;
}

/** Returns a server's frame, or if `masked`, a client's with a mask of zeros, which changes nothing. */
function frameOf(opcode: number, payload: Buffer, masked: boolean): Buffer {
  // Tests forge no longer frames.
  if (payload.length > 125) throw new RangeError("longer frames have a longer header");
  const header = [0x80 | opcode, (masked ? 0x80 : 0) | payload.length, ...(masked ? [0, 0, 0, 0] : [])];
  return Buffer.concat([Buffer.from(header), payload]);
}

export function textFrame(text: string, masked: boolean): Buffer {
  return frameOf(TEXT, Buffer.from(text), masked);
}

/** Returns a close frame. `undefined` means no code. */
export function closeFrame(code: number | undefined, masked: boolean): Buffer {
  const payload = Buffer.alloc(code === undefined ? 0 : 2);
  if (code !== undefined) payload.writeUInt16BE(code);
  return frameOf(0x8, payload, masked);
}
