/**
 * How messages stand on a pipe: two framings, each a decoder (bytes to message texts) and an encoder. A text is handled as
 * its bytes in UTF-8, which is what a pipe and a WebSocket carry: nothing is decoded on the way.
 */
import { isUtf8 } from "node:buffer";
import { expected } from "../core/errors.js";

/** Takes a stream of bytes apart. After it has thrown, or after `end`, it is of no further use. */
export interface Decoder {
  /**
   * Takes the next bytes, cut anywhere, and yields each message that they complete. Throws a `TypeError` that names the
   * rule and the value where the stream breaks the framing; the messages before that place were yielded.
   */
  push(chunk: Buffer): Iterable<Buffer>;
  /** The stream is over. Yields a last message that needs no more than that; throws as `push` does when it ended inside one. */
  end(): Iterable<Buffer>;
}

/** One way to put messages on a pipe. */
export interface Framing {
  /** Starts on a stream whose messages have at most `maxMessageBytes` each. It holds one message at a time. */
  decoder(maxMessageBytes: number): Decoder;
  /** The bytes that stand for one message. `text` is UTF-8. */
  encode(text: Buffer): Buffer;
}

/** `"lsp"`: each message behind a header with its `Content-Length`. `"lines"`: each message on a line of its own. */
export type FramingName = "lsp" | "lines";

/** The base protocol of the Language Server Protocol: a header block in ASCII, CR LF after each line, a blank line, the message. */
const lsp: Framing = {
  decoder: (maxMessageBytes) => new HeaderDecoder(maxMessageBytes),
  encode: (text) => Buffer.concat([Buffer.from(`Content-Length: ${text.length}\r\n\r\n`, "latin1"), text]),
};

/** One message a line, as MCP has it on stdio. CR LF ends a line too, empty lines are passed over, and the last needs no end. */
const lines: Framing = {
  decoder: (maxMessageBytes) => new LineDecoder(maxMessageBytes),
  encode: (text) => Buffer.concat([inOneLine(text), Buffer.of(LF)]),
};

/** The framings by name. */
export const FRAMINGS: Readonly<Record<FramingName, Framing>> = { lsp, lines };

const LF = 0x0a;
const CR = 0x0d;
const EMPTY = Buffer.alloc(0);

/** A header block needs some 30 bytes; one this long is none. */
const MAX_HEADER_BYTES = 4096;

class HeaderDecoder implements Decoder {
  readonly #maxMessageBytes: number;
  /** The header line, or the message, that is not complete. */
  readonly #part = new Pieces();
  #headerBytes = 0;
  /** As the header block says, while that is read. */
  #contentLength: number | undefined;
  /** The length of the message that comes; `undefined` while a header block does. */
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

  /** Reads up to the end of one line, and answers what is left. */
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
    const [, name, value] = FIELD.exec(line) ?? [];
    // Told line by line: what prints something else to its standard output may never come to a blank line.
    if (name === undefined || value === undefined)
      throw expected("header", '"Name: value" and CR LF', excerpt(Buffer.from(line, "latin1")));
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

/** A name is a token (RFC 9110, section 5.6.2), so the tail of a message that was longer than announced is none. */
const FIELD = /^([\w!#$%&'*+.^`|~-]+):[ \t]*(.*?)[ \t]*\r\n$/;

/** The specification asks readers to take "utf8" for "utf-8". */
function checkCharset(contentType: string): void {
  const charset = /;\s*charset\s*=\s*"?([^\s";]*)/i.exec(contentType)?.[1];
  if (charset !== undefined && !/^utf-?8$/i.test(charset))
    throw expected("charset of Content-Type", "utf-8", shorten(charset));
}

class LineDecoder implements Decoder {
  readonly #maxMessageBytes: number;
  /** The line that is not complete. */
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
    // A carriage return may be its last byte, and is none of the message's.
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

/** Gathers what comes in pieces. It grows by doubling, so that a message that comes byte by byte costs no more than one that comes whole. */
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

  /** Everything so far and `last`, and begins anew. What came in one piece is not copied. */
  take(last: Buffer): Buffer {
    if (this.#length === 0) return last;
    this.append(last);
    const whole = this.#bytes.subarray(0, this.#length);
    this.#bytes = EMPTY;
    this.#length = 0;
    return whole;
  }
}

/** A WebSocket's text frame must be UTF-8 (RFC 6455, section 8.1): whoever is sent another closes the connection. */
function checkUtf8(text: Buffer): Buffer {
  if (isUtf8(text)) return text;
  throw expected("message", "UTF-8", excerpt(text));
}

/**
 * Puts a text into one line, its meaning kept. In JSON a line break can only stand between tokens, where a space means the
 * same. What is no JSON must not become so by that (two documents, a string across two lines): U+000B, which JSON allows
 * nowhere, keeps it for the reader to refuse.
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

/** The beginning of what came, for a message: it may be long, and it may be anything. */
function excerpt(bytes: Buffer): string {
  return shorten(bytes.toString("utf8", 0, 4 * MOST_SHOWN).trimEnd());
}

function shorten(text: string): string {
  const shown = text.replace(/\p{Cc}/gu, "\ufffd");
  return shown.length > MOST_SHOWN ? `${shown.slice(0, MOST_SHOWN)}...` : shown;
}
