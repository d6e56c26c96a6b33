/** Binary frames as any client may send them. */

/** Returns a frame: the length of its JSON, the JSON, and the bytes behind it. */
export function binaryFrame(json: string | Uint8Array, attached: Iterable<number> = []): Uint8Array {
  const head = Buffer.alloc(4);
  const text = Buffer.from(json as string);
  head.writeUInt32BE(text.length);
  return Uint8Array.from([...head, ...text, ...attached]);
}
