/**
 * Bytes in messages. `bytes` marks a view. While a message is encoded, each marked view leaves a placeholder in its JSON and
 * registers itself, so no message is searched for views. The bytes are sent beside the JSON, or in it as base64.
 *
 * The codec calls this file only after the first call of `bytes`. A page that imports nothing of it contains nothing of it.
 */
import { collectBytes, type MessageText, messageJson } from "./codec.js";
import { RequestTooLarge } from "./codes.js";
import { expected, mistake, RpcError } from "./errors.js";
import type { Carried } from "./jsonify.js";
import { checkOptions, isCount, positive } from "./options.js";

/** What `bytes` marks: any view, such as a `Uint8Array`, a `Buffer` or a `DataView`, or an `ArrayBuffer`. */
export type BytesSource = ArrayBufferView | ArrayBufferLike;

declare const MARK: unique symbol;

/**
 * Bytes in a contract: what `bytes` returns and what `bytesOf` reads. A type of its own, because the receiver gets a `Uint8Array`
 * between two sides that take binary frames, and a base64 string otherwise.
 */
export interface Bytes extends Carried {
  readonly [MARK]: true;
}

/** Reads and marks bytes for a peer that has it in `use`. Its only value is the export `bytes`. */
export interface BytesCodec {
  (view: BytesSource): Bytes;
  /** Returns the message of a binary frame; `undefined` for a frame that breaks the rules. Never throws. @internal */
  readonly read: (frame: Uint8Array) => unknown;
  /** Returns a view in marked parts of at most `most` bytes, one at a time. An empty view is one part. @internal */
  readonly parts: (view: ArrayBufferView, most: number) => Iterator<Bytes, void>;
}

/** A binary frame has at most so many attachments: reading 65,536 empty ones took 288 ms, and 4,096 take 3 ms. */
const MOST_ATTACHMENTS = 4096;
/** An attachment keeps at most so many times its bytes alive. */
const MOST_KEPT = 8;
/** The length of the JSON of a binary frame, in bytes. */
const HEAD_BYTES = 4;
/** A placeholder in JSON: 64 random bits, which all bytes of a value share, and a number. A colon follows the name of a member. */
const PLACEHOLDERS = /"(\d{20}-\d+)"(?!:)/g;

/** A marked view, while it is in a value that is sent. */
class MarkedBytes {
  readonly view: Uint8Array;

  constructor(view: Uint8Array) {
    this.view = view;
  }

  /** Returns the placeholder in a message, and base64 in any other JSON. */
  toJSON(): string {
    const { view } = this;
    if (collected === undefined) return toBase64(view);
    collected ??= {
      mark: String(crypto.getRandomValues(new BigUint64Array(1))[0]).padStart(20, "0"),
      views: new Map(),
    };
    const placeholder = `${collected.mark}-${collected.views.size}`;
    collected.views.set(placeholder, view);
    return placeholder;
  }
}

/** The views in a value that is being encoded, by placeholder. All placeholders of a value begin with `mark`. */
interface Collected {
  readonly mark: string;
  readonly views: Map<string, Uint8Array>;
}

/** What was collected of the value that is being encoded; null if it had no bytes so far, `undefined` while none is encoded. */
let collected: Collected | null | undefined;

/** Encodes a value, and collects the bytes in it. A `toJSON` of the application may encode another value meanwhile. */
function stringifyWithBytes(value: unknown): MessageText | undefined {
  const outer = collected;
  collected = null;
  let json: string | undefined;
  let views: Collected["views"] | undefined;
  try {
    json = messageJson(value);
    views = (collected as Collected | null)?.views;
  } finally {
    collected = outer;
  }
  if (json === undefined || views === undefined) return json;
  // The mark is random and used once, so no data can contain a placeholder. A placeholder that a `toJSON` of the application has
  // moved into a string, or dropped, would be no bytes for the receiver.
  const placed = new Set(json.match(PLACEHOLDERS)?.filter((text) => views.has(text.slice(1, -1))));
  if (placed.size < views.size) throw mistake("a `toJSON` encoded `bytes` apart from the message that contains it");
  return new TextWithBytes(json, views);
}

/** JSON with bytes: a message, or a part of one. */
export class TextWithBytes {
  /** The JSON, with a placeholder for each view. */
  readonly json: string;
  /** The length of the JSON in UTF-16 code units, and of the views in bytes. */
  readonly length: number;
  #views: ReadonlyMap<string, Uint8Array>;
  #frame: Uint8Array | undefined;
  #isKept = false;

  constructor(json: string, views: ReadonlyMap<string, Uint8Array>) {
    this.json = json;
    this.#views = views;
    this.length = json.length;
    for (const view of views.values()) this.length += view.length;
  }

  /** Returns the same bytes in other JSON, in which each placeholder occurs. */
  withJson(json: string): TextWithBytes {
    return new TextWithBytes(json, this.#views);
  }

  /** Returns those of the bytes whose placeholders occur in other JSON, in that JSON. */
  rewritten(json: string): TextWithBytes {
    return new TextWithBytes(json, new Map([...this.#views].filter(([placeholder]) => json.includes(placeholder))));
  }

  /** Returns texts, which may have bytes, joined with commas between `before` and `after`. */
  join(before: string, texts: readonly MessageText[], after: string): TextWithBytes {
    const views = texts.flatMap((text) => (typeof text === "string" ? [] : [...text.#views]));
    const json = texts.map((text) => (typeof text === "string" ? text : text.json)).join(",");
    return new TextWithBytes(before + json + after, new Map(views));
  }

  /** Copies the views, unless the frame has copied them, so that the application may change its own. */
  keep(): void {
    if (this.#frame !== undefined || this.#isKept) return;
    this.#isKept = true;
    this.#views = new Map([...this.#views].map(([place, view]) => [place, view.slice()]));
  }

  /** Only the JSON, with the bytes as base64. */
  get text(): string {
    const views = this.#views;
    return this.json.replace(PLACEHOLDERS, (text: string, place: string) => {
      const view = views.get(place);
      return view === undefined ? text : `"${toBase64(view)}"`;
    });
  }

  /** Whether the bytes can be sent in a binary frame. */
  get fitsFrame(): boolean {
    return this.#views.size <= MOST_ATTACHMENTS;
  }

  /** The content of a binary frame: the length of its JSON, the JSON `[attachments, message]`, and the bytes of the attachments. */
  get frame(): Uint8Array {
    return (this.#frame ??= this.#encode());
  }

  #encode(): Uint8Array {
    const views = this.#views;
    let size = HEAD_BYTES;
    const attachments = Array.from(views, ([place, { length }]) => {
      size += length;
      return `"${place}",${length}`;
    });
    const json = new TextEncoder().encode(`[[${attachments.join(",")}],${this.json}]`);
    // A `Buffer` that is uninitialized saves 0.2 ms of 1 MB.
    const frame = allocate(size + json.length);
    new DataView(frame.buffer, frame.byteOffset).setUint32(0, json.length);
    frame.set(json, HEAD_BYTES);
    let at = HEAD_BYTES + json.length;
    for (const view of views.values()) {
      frame.set(view, at);
      at += view.length;
    }
    return frame;
  }
}

/** As `BytesCodec.read`. */
function readFrame(frame: Uint8Array): unknown {
  const { length } = frame;
  const end = length < HEAD_BYTES ? Infinity : HEAD_BYTES + new DataView(frame.buffer, frame.byteOffset).getUint32(0);
  if (end > length) return undefined;
  let parsed: unknown;
  try {
    parsed = JSON.parse(
      (utf8 ??= new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })).decode(frame.subarray(HEAD_BYTES, end)),
    );
  } catch {
    return undefined;
  }
  if (!Array.isArray(parsed) || parsed.length !== 2) return undefined;
  const [list, message] = parsed as unknown[];
  if (!Array.isArray(list) || list.length > 2 * MOST_ATTACHMENTS) return undefined;
  const attachments = new Map<string, Uint8Array>();
  let at = end;
  for (let i = 0; i < list.length; i += 2) {
    const [place, size] = [list[i], list[i + 1]] as unknown[];
    if (typeof place !== "string" || attachments.has(place) || !isCount(size)) return undefined;
    if (size > length - at) return undefined;
    attachments.set(place, viewOf(frame, at, size));
    at += size;
  }
  const isWhole = at === length && typeof message === "object" && message !== null;
  return isWhole && placeAll(message, attachments) ? message : undefined;
}

/**
 * Puts the attachments into a message in place of their placeholders. Returns false if a placeholder is missing. A loop, because
 * `JSON.parse` accepts any depth. Reads arrays by index: the keys of 500,000 numbers would take up to ten times as long as
 * `JSON.parse`.
 */
function placeAll(message: object, attachments: Map<string, Uint8Array>): boolean {
  const holders = [message];
  const visit = (holder: object, key: string | number): void => {
    const value = (holder as Record<string | number, unknown>)[key];
    if (typeof value === "object" && value !== null) holders.push(value);
    const view = typeof value === "string" ? attachments.get(value) : undefined;
    if (view === undefined) return;
    attachments.delete(value as string);
    // Defined, because an assignment to `__proto__` would change the prototype.
    Object.defineProperty(holder, key, { value: view, writable: true, enumerable: true, configurable: true });
  };
  for (let holder; attachments.size > 0 && (holder = holders.pop()) !== undefined;) {
    if (Array.isArray(holder)) for (let i = 0; i < holder.length; i++) visit(holder, i);
    else for (const key of Object.keys(holder)) visit(holder, key);
  }
  return attachments.size === 0;
}

/**
 * Returns bytes of a frame: as a view, or as a copy if they are a small part of its memory, which the copy does not keep alive. Copying
 * 64 KiB takes 40 µs, and a frame of an upload has four such attachments.
 */
function viewOf({ buffer, byteOffset }: Uint8Array, start: number, length: number): Uint8Array {
  const view = new Uint8Array(buffer, byteOffset + start, length);
  return length * MOST_KEPT < buffer.byteLength ? view.slice() : view;
}

/**
 * Marks bytes, so that a message can contain them: in params, results, the data of errors and values of streams, at any depth. The
 * receiver reads them by `bytesOf`. Do not change the view before the message is sent: bytes of a call or a notification are copied
 * before `request` or `notify` returns, and those of a result when it is sent. Throws a `TypeError` for any other value.
 *
 * Between two reciproc peers that both have the option `bytes`, as `serve` and `connect` of `reciproc/node` have, the message is a
 * binary frame. Otherwise the bytes are base64 in JSON, as they are in `JSON.stringify`.
 */
export const bytes: BytesCodec = /* @__PURE__ */ Object.assign(mark, { read: readFrame, parts: partsOf });

function mark(view: BytesSource): Bytes {
  const marked = new MarkedBytes(uint8ArrayOf(view));
  collectBytes(stringifyWithBytes);
  return marked as unknown as Bytes;
}

function* partsOf({ buffer, byteOffset, byteLength }: ArrayBufferView, most: number): Iterator<Bytes, void> {
  let at = 0;
  do {
    const length = Math.min(byteLength - at, most);
    yield mark(new Uint8Array(buffer, byteOffset + at, length));
    at += length;
  } while (at < byteLength);
}

/**
 * Returns bytes that came in a message: the `Uint8Array` of a binary frame, or the bytes of a base64 string. Also reads what `bytes`
 * returned. The result may be part of a longer `ArrayBuffer`, as a Node `Buffer` may be: use its `byteOffset` and `length`. It is part of
 * a `SharedArrayBuffer` only if `bytes` marked one on this side. Throws a `TypeError` for any other value.
 */
export function bytesOf(value: unknown): Uint8Array<ArrayBuffer>;
export function bytesOf(value: unknown): Uint8Array {
  if (value instanceof MarkedBytes) return value.view;
  if (ArrayBuffer.isView(value)) return uint8ArrayOf(value);
  if (typeof value === "string" && value.length % 4 === 0 && !/[^A-Za-z0-9+/]/.test(value.replace(/={1,2}$/, "")))
    return fromBase64(value);
  throw expected("value", "a Uint8Array or a base64 string", value);
}

/**
 * Yields the bytes of each value of a stream, as `bytesOf` returns them: `readBytes(peer.iterate(file), { maxBytes: 500_000 })`. If the
 * values have more than `maxBytes` together, ends the stream and throws an `RpcError` with code -32007, which a handler can let through.
 * Throws a `TypeError` for a `maxBytes` that is no positive number, and for a value that is no bytes; otherwise as reading the stream does.
 */
export async function* readBytes(
  values: AsyncIterable<unknown>,
  options: { readonly maxBytes: number },
): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  const { maxBytes } = checkOptions("options", options, { maxBytes: positive });
  let left = maxBytes;
  for await (const value of values) {
    const part = bytesOf(value);
    left -= part.length;
    if (left < 0) throw new RpcError(RequestTooLarge, `the stream has more than ${maxBytes} bytes`);
    yield part;
  }
}

function uint8ArrayOf(view: unknown): Uint8Array {
  if (ArrayBuffer.isView(view)) return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  // By name, because the buffer may be of another realm.
  if (/^\[object (Shared)?ArrayBuffer]$/.test(Object.prototype.toString.call(view)))
    return new Uint8Array(view as ArrayBufferLike);
  throw expected("view", "an ArrayBuffer or a view of one", view);
}

/** Made with the first frame: not every runtime that loads this module has the class. */
let utf8: TextDecoder | undefined;

/** The part of Node's `Buffer` that is used. */
interface NodeBuffer {
  toString(encoding: "base64"): string;
  write(text: string, encoding: "base64"): number;
}
interface NodeBuffers {
  allocUnsafeSlow(size: number): Uint8Array;
  from(buffer: ArrayBufferLike, offset: number, length: number): NodeBuffer;
}

function buffers(): NodeBuffers | undefined {
  return (globalThis as { Buffer?: NodeBuffers }).Buffer;
}

function allocate(size: number): Uint8Array {
  const node = buffers();
  // Not the `Buffer` itself, whose `slice` does not copy.
  return node === undefined ? new Uint8Array(size) : new Uint8Array(node.allocUnsafeSlow(size).buffer);
}

/** So many bytes can be the arguments of one call. It is a multiple of 3, so the parts can be joined. */
const PART_BYTES = 0x6000;

function toBase64({ buffer, byteOffset, length }: Uint8Array): string {
  const node = buffers();
  if (node !== undefined) return node.from(buffer, byteOffset, length).toString("base64");
  let text = "";
  for (let at = 0; at < length; at += PART_BYTES) {
    const part = new Uint8Array(buffer, byteOffset + at, Math.min(PART_BYTES, length - at));
    text += btoa(String.fromCharCode(...part));
  }
  return text;
}

function fromBase64(text: string): Uint8Array {
  const node = buffers();
  if (node === undefined) return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const padding = text.endsWith("==") ? 2 : Number(text.endsWith("="));
  // Decoded into memory of its own: `Buffer.from(text)` would share a pool with other data.
  const view = new Uint8Array((text.length / 4) * 3 - padding);
  node.from(view.buffer, 0, view.length).write(text, "base64");
  return view;
}
