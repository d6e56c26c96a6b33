/**
 * The floor: the bytes of WebSockets written by hand on the TCP sockets of Node, with the messages of a tick as one array in one
 * frame. It checks nothing, and reads and writes ASCII only.
 */
import { hash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { textOf } from "./bare.js";
import { PackedPeer } from "./packed.js";

export { call, close, notify, put, upload } from "./bare.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** The first byte of an unfragmented frame, by its opcode (RFC 6455, section 5.2). */
const [TEXT, BINARY, CLOSE] = [0x81, 0x82, 0x88];
const CODE_1000 = Buffer.from([0x03, 0xe8]);

/** Returns the beginning of a frame, up to its length. `maskBit` is 128 for a frame of a client. */
function headOf(type, length, maskBit) {
  if (length < 126) return [type, maskBit | length];
  if (length < 65_536) return [type, maskBit | 126, length >> 8, length & 255];
  return [type, maskBit | 127, 0, 0, 0, 0, length >>> 24, (length >> 16) & 255, (length >> 8) & 255, length & 255];
}

/** XORs bytes with the four bytes of a key, as words where the memory is aligned. */
function mask(bytes, key) {
  const keyAt = (i) => key >>> ((i & 3) * 8);
  let at = 0;
  for (; at < bytes.length && (bytes.byteOffset + at) % 4 !== 0; at++) bytes[at] ^= keyAt(at);
  const words = new Uint32Array(bytes.buffer, bytes.byteOffset + at, (bytes.length - at) >> 2);
  const word = keyAt(at) | (key << (32 - (at & 3) * 8));
  for (let i = 0; i < words.length; i++) words[i] ^= word;
  for (at += words.length * 4; at < bytes.length; at++) bytes[at] ^= keyAt(at);
}

function read(chunk) {
  this.peer.readChunk(chunk);
}

/** A peer of the server. Its socket is a TCP socket after the handshake. */
class NetPeer extends PackedPeer {
  /** The chunks of an unfinished frame, and the bytes that it lacks. */
  #unfinished;
  #missing = 0;

  listen() {
    this.socket.peer = this;
    this.socket.on("data", read);
  }

  get tcp() {
    return this.socket;
  }

  send(data, type = typeof data === "string" ? TEXT : BINARY) {
    const head = headOf(type, data.length, 0);
    if (type === TEXT) this.socket.write(String.fromCharCode(...head) + data, "latin1");
    else this.socket.write(Buffer.concat([Buffer.from(head), data]));
  }

  close() {
    this.send(CODE_1000, CLOSE);
  }

  /** Reads the frames of a chunk, and keeps the beginning of an unfinished one. */
  readChunk(chunk) {
    let data = chunk;
    if (this.#unfinished !== undefined) {
      this.#unfinished.push(chunk);
      this.#missing -= chunk.length;
      if (this.#missing > 0) return;
      data = Buffer.concat(this.#unfinished);
      this.#unfinished = undefined;
    }
    let end;
    for (let at = 0; at < data.length; at = end) {
      end = this.#readFrame(data, at);
      if (end <= data.length) continue;
      this.#unfinished = [data.subarray(at)];
      this.#missing = end - data.length;
    }
  }

  /** Reads the frame at an index, if `data` has all of it. Returns the index of its end, or one beyond the end of `data`. */
  #readFrame(data, at) {
    if (data.length < at + 2) return at + 2;
    const isMasked = data[at + 1] > 127;
    let length = data[at + 1] & 127;
    const start = at + (length < 126 ? 2 : length === 126 ? 4 : 10) + (isMasked ? 4 : 0);
    if (data.length < start) return start;
    if (length === 126) length = data.readUInt16BE(at + 2);
    else if (length === 127) length = data.readUInt32BE(at + 6);
    const end = start + length;
    if (data.length < end) return end;
    const payload = data.subarray(start, end);
    if (isMasked) mask(payload, data.readInt32LE(start - 4));
    if (data[at] === TEXT) this.read(JSON.parse(payload.latin1Slice()));
    else if (data[at] === BINARY) this.readBytes(payload);
    else this.readClose();
    return end;
  }

  /** Replies to the close frame of a client. */
  readClose() {
    this.close();
    this.socket.end();
  }
}

/** A peer of the client: its frames are masked. */
class ClientPeer extends NetPeer {
  send(data, type = typeof data === "string" ? TEXT : BINARY) {
    const head = headOf(type, data.length, 128);
    const start = head.length + 4;
    const frame = Buffer.allocUnsafe(start + data.length);
    frame.set(head);
    const key = (Math.random() * 2 ** 32) | 0;
    frame.writeInt32LE(key, head.length);
    if (type === TEXT) frame.latin1Write(data, start);
    else frame.set(data, start);
    mask(frame.subarray(start), key);
    this.socket.write(frame);
  }

  /** The server ends the connection after its close frame. */
  readClose() {}
}

export async function serve(methods) {
  const peers = new Set();
  const ended = function () {
    peers.delete(this.peer);
  };
  const server = createServer({ noDelay: true }, async (socket) => {
    const [request] = await once(socket, "data");
    const key = /^Sec-WebSocket-Key: (.*)\r$/m.exec(request.latin1Slice())[1];
    socket.write(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
        `Sec-WebSocket-Accept: ${hash("sha1", key + GUID, "base64")}\r\n\r\n`,
    );
    peers.add(new NetPeer(socket, methods));
    socket.on("close", ended);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { port: server.address().port, peers, broadcast: broadcaster(peers) };
}

/** Returns a function that sends the notifications of a tick in one frame, which is encoded once for all peers that get the same. */
function broadcaster(peers) {
  let queue = [];
  const flush = () => {
    const frameFor = (peer) => {
      const pack = `[${queue.flatMap(({ text, except }) => (except === peer ? [] : [text]))}]`;
      return Buffer.from(String.fromCharCode(...headOf(TEXT, pack.length, 0)) + pack, "latin1");
    };
    const excepted = new Set(queue.map(({ except }) => except));
    const frame = frameFor(null);
    for (const peer of peers) peer.socket.write(excepted.has(peer) ? frameFor(peer) : frame);
    queue = [];
  };
  return (method, x, except) => {
    if (queue.length === 0) process.nextTick(flush);
    queue.push({ text: textOf(method, x), except });
  };
}

export function connector(url, methods) {
  const { host, hostname, port } = new URL(url);
  return async () => {
    const socket = connect({ port, host: hostname, noDelay: true });
    socket.write(
      `GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n` +
        `Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString("base64")}\r\n\r\n`,
    );
    await once(socket, "data");
    return new ClientPeer(socket, methods);
  };
}
