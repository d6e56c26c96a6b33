/**
 * The two framings of messages on a pipe, each with a decoder (bytes to message texts) and an encoder. A text is a buffer of
 * UTF-8, as a pipe and a WebSocket carry it, so no text is decoded.
 */
import { isUtf8 } from "node:buffer";
import { expected } from "../message/errors.js";

/** Splits a stream of bytes into messages. Must not be used after it has thrown, or after `end`. */
export interface Decoder {
  /**
   * Takes the next bytes, cut anywhere, and yields each message that they complete. If the stream breaks the framing, yields
   * the messages before that place, then throws a `TypeError` that names the rule and the value.
   */
  push(chunk: Buffer): Iterable<Buffer>;
  /** Ends the stream. Yields the last message if the end completes it. Throws as `push` does if the stream ended inside one. */
  end(): Iterable<Buffer>;
}

/** One framing of messages on a pipe. */
export interface Framing {
  /** Makes a decoder of messages of at most `maxMessageBytes` each. It buffers one message at a time. */
  decoder(maxMessageBytes: number): Decoder;
  /** Returns the bytes of one framed message. `text` is UTF-8. */
  encode(text: Buffer): Buffer;
}

/** `"lsp"`: a header with `Content-Length` before each message. `"lines"`: each message on its own line. */
export type FramingName = "lsp" | "lines";

/** The base protocol of the Language Server Protocol: a header block in ASCII, CR LF after each line, a blank line, the message. */
const lsp: Framing = {
  decoder: (maxMessageBytes) => new HeaderDecoder(maxMessageBytes),
  encode: (text) => Buffer.concat([Buffer.from(`Content-Length: ${text.length}\r\n\r\n`, "latin1"), text]),
};

/** One message a line, as MCP on stdio. CR LF ends a line too, empty lines are skipped, and the last line needs no end. */
const lines: Framing = {
  decoder: (maxMessageBytes) => new LineDecoder(maxMessageBytes),
  encode: (text) => Buffer.concat([inOneLine(text), Buffer.of(LF)]),
};

/** The framings by name. */
export const FRAMINGS: Readonly<Record<FramingName, Framing>> = { lsp, lines };

const LF = 0x0a;
const CR = 0x0d;
const EMPTY = Buffer.alloc(0);

/** The longest header block. A typical one has 30 bytes. */
const MAX_HEADER_BYTES = 4096;

class HeaderDecoder implements Decoder {
  readonly #maxMessageBytes: number;
  /** The incomplete header line or message. */
  readonly #part = new Pieces();
  #headerBytes = 0;
  /** The `Content-Length` of the header block that is being read. */
  #contentLength: number | undefined;
  /** The length of the message that is being read; `undefined` while a header block is read. */
  #bodyBytes: number | undefined;

  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  *push(chunk: Buffer): Generator<Buffer> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#bodyBytes === undefined) rest = this.#readHeaderLine(rest);
      if (this.#bodyBytes === undefined) continue;
      const missing = this.#bodyBytes - this.#part.length;
      const piece = rest.subarray(0, missing);
      rest = rest.subarray(piece.length);
      if (piece.length < missing) this.#part.append(piece);
      else {
        this.#bodyBytes = undefined;
        yield checkUtf8(this.#part.take(piece));
      }
    }
  }

  end(): Iterable<Buffer> {
    if (this.#bodyBytes !== undefined)
      throw expected("message", `${this.#bodyBytes} bytes long`, `the end after ${this.#part.length}`);
    if (this.#headerBytes > 0) throw expected("header", "complete", `the end after ${this.#headerBytes} bytes`);
    return [];
  }

  /** Reads up to the end of one line. Returns the rest. */
  #readHeaderLine(chunk: Buffer): Buffer {
    const end = chunk.indexOf(LF) + 1;
    const piece = end === 0 ? chunk : chunk.subarray(0, end);
    this.#headerBytes += piece.length;
    if (this.#headerBytes > MAX_HEADER_BYTES)
      throw expected("header", `at most ${MAX_HEADER_BYTES} bytes long`, excerpt(this.#part.take(piece)));
    if (end === 0) {
      this.#part.append(piece);
      return EMPTY;
    }
    const line = this.#part.take(piece).toString("latin1");
    if (line === "\r\n") this.#endHeader();
    else this.#readField(line);
    return chunk.subarray(end);
  }

  #readField(line: string): void {
    const [, name, rest] = FIELD.exec(line) ?? [];
    // Checked line by line: a program that prints other text to its standard output may never print a blank line.
    if (name === undefined || rest === undefined)
      throw expected("header", '"Name: value" and CR LF', excerpt(Buffer.from(line, "latin1")));
    const value = withoutBlanks(rest);
    if (/^content-length$/i.test(name)) this.#readContentLength(value);
    if (/^content-type$/i.test(name)) checkCharset(value);
  }

  #readContentLength(value: string): void {
    if (this.#contentLength !== undefined)
      throw expected("Content-Length", `given once, ${this.#contentLength} so far`, shorten(value));
    const length = Number(value);
    if (!/^\d+$/.test(value) || length > this.#maxMessageBytes)
      throw expected("Content-Length", `a whole number from 0 to ${this.#maxMessageBytes}`, shorten(value));
    this.#contentLength = length;
  }

  #endHeader(): void {
    if (this.#contentLength === undefined) throw expected("Content-Length", "in the header", undefined);
    this.#bodyBytes = this.#contentLength;
    this.#contentLength = undefined;
    this.#headerBytes = 0;
  }
}

/** A name is a token (RFC 9110, section 5.6.2), so the tail of a message that was longer than announced does not match. */
const FIELD = /^([\w!#$%&'*+.^`|~-]+):(.*)\r\n$/;

/** Returns a field's value without the blanks around it. Takes linear time. `trim` would remove other characters too. */
function withoutBlanks(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isBlank(value[start])) start++;
  while (end > start && isBlank(value[end - 1])) end--;
  return value.slice(start, end);
}

function isBlank(character: string | undefined): boolean {
  return character === " " || character === "\t";
}

/** Throws unless the charset is UTF-8. The specification asks readers to accept "utf8" for "utf-8". */
function checkCharset(contentType: string): void {
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType)?.[1];
  if (charset !== undefined && !/^utf-?8$/i.test(charset))
    throw expected("charset of Content-Type", "utf-8", shorten(charset));
}

class LineDecoder implements Decoder {
  readonly #maxMessageBytes: number;
  /** The incomplete line. */
  readonly #part = new Pieces();

  constructor(maxMessageBytes: number) {
    this.#maxMessageBytes = maxMessageBytes;
  }

  *push(chunk: Buffer): Generator<Buffer> {
    let rest = chunk;
    for (let end = rest.indexOf(LF); end >= 0; end = rest.indexOf(LF)) {
      const piece = rest.subarray(0, end);
      rest = rest.subarray(end + 1);
      yield* this.#line(piece);
    }
    // The last byte may be a carriage return, which is not part of the message.
    this.#checkLength(this.#part.length + rest.length - 1);
    this.#part.append(rest);
  }

  *end(): Generator<Buffer> {
    yield* this.#line(EMPTY);
  }

  *#line(lastPiece: Buffer): Generator<Buffer> {
    this.#checkLength(this.#part.length + lastPiece.length - 1);
    const line = this.#part.take(lastPiece);
    const text = line.at(-1) === CR ? line.subarray(0, -1) : line;
    this.#checkLength(text.length);
    if (text.length > 0) yield checkUtf8(text);
  }

  #checkLength(bytes: number): void {
    if (bytes > this.#maxMessageBytes)
      throw expected("line", `at most ${this.#maxMessageBytes} bytes long`, `${bytes} bytes or more`);
  }
}

/** Joins pieces. Its buffer grows by doubling, so that a message that arrives byte by byte takes linear time. */
class Pieces {
  #bytes = EMPTY;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  append(piece: Buffer): void {
    const length = this.#length + piece.length;
    if (length > this.#bytes.length) {
      const grown = Buffer.allocUnsafe(Math.max(length, 2 * this.#bytes.length));
      this.#bytes.copy(grown, 0, 0, this.#length);
      this.#bytes = grown;
    }
    piece.copy(this.#bytes, this.#length);
    this.#length = length;
  }

  /** Returns all pieces and `last`, and clears the buffer. A single piece is not copied. */
  take(last: Buffer): Buffer {
    if (this.#length === 0) return last;
    this.append(last);
    const whole = this.#bytes.subarray(0, this.#length);
    this.#bytes = EMPTY;
    this.#length = 0;
    return whole;
  }
}

/** Throws unless a text is UTF-8. A client closes the connection if a text frame is not UTF-8 (RFC 6455, section 8.1). */
function checkUtf8(text: Buffer): Buffer {
  if (isUtf8(text)) return text;
  throw expected("message", "UTF-8", excerpt(text));
}

/**
 * Returns a text in one line, with the same meaning. In JSON, a line break occurs only between tokens, where a space is
 * equivalent. A text that is not JSON (two documents, a string across two lines) must not become JSON, so its line breaks
 * become U+000B, which JSON does not allow.
 */
function inOneLine(text: Buffer): Buffer {
  if (!text.includes(LF) && !text.includes(CR)) return text;
  const substitute = isJson(text) ? 0x20 : 0x0b;
  const line = Buffer.from(text);
  for (let i = 0; i < line.length; i++) if (line[i] === LF || line[i] === CR) line[i] = substitute;
  return line;
}

function isJson(text: Buffer): boolean {
  try {
    JSON.parse(text.toString());
    return true;
  } catch {
    return false;
  }
}

const MOST_SHOWN = 60;

/** Returns the beginning of untrusted bytes, for an error message. */
function excerpt(bytes: Buffer): string {
  return shorten(bytes.toString("utf8", 0, 4 * MOST_SHOWN).trimEnd());
}

function shorten(text: string): string {
  const shown = text.replace(/\p{Cc}/gu, "\ufffd");
  return shown.length > MOST_SHOWN ? `${shown.slice(0, MOST_SHOWN)}...` : shown;
}
