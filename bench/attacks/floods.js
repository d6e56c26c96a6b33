/**
 * Floods of messages that are cheapest to send and most expensive to receive, over one connection. The benchmark measures what each
 * costs, and `test/attacks/floods.test.ts` counts how much of each is processed at once.
 */
import { Buffer } from "node:buffer";

/** The opcodes of RFC 6455, section 5.2. */
export const CONTINUATION = 0;
export const TEXT = 1;
export const BINARY = 2;
export const CLOSE = 8;
export const PING = 9;
export const PONG = 10;

const MIB = 2 ** 20;

/**
 * Returns the head of a client's frame, masked with zeros so that the payload is unchanged. `length` can differ from the real
 * length.
 */
export function frameHead(opcode, length, isLast = true) {
  const first = (isLast ? 0x80 : 0) | opcode;
  if (length < 126) return Buffer.from([first, 0x80 | Number(length), 0, 0, 0, 0]);
  const head = Buffer.alloc(length < 65_536 ? 8 : 14);
  head[0] = first;
  head[1] = 0x80 | (length < 65_536 ? 126 : 127);
  if (length < 65_536) head.writeUInt16BE(Number(length), 2);
  else head.writeBigUInt64BE(BigInt(length), 2);
  return head;
}

/** Returns a whole frame of a client. */
export function frame(opcode, payload, isLast = true) {
  const bytes = Buffer.from(payload);
  return Buffer.concat([frameHead(opcode, bytes.length, isLast), bytes]);
}

/** Returns the head of an upgrade request, with these additional lines. */
export function upgradeText(host, ...more) {
  const lines = [
    "GET / HTTP/1.1",
    `Host: ${host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    ...more,
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}

/** The methods of a server under attack. */
export const METHODS = {
  here: () => true,
  note: () => {},
  never: () => new Promise(() => {}),
  async *still() {
    yield 1;
    await new Promise(() => {});
  },
};

const LIMITS = { maxMessageBytes: MIB, logFrames: 4096, logLength: 4 * MIB };
/** A peer that keeps one frame makes an ack due with each. */
const SHORT_LOG = { ...LIMITS, logFrames: 1, logLength: 1 };

const text = (value) => frame(TEXT, typeof value === "string" ? value : JSON.stringify(value));
const session = (limits = LIMITS) => [text({ hello: { session: true, limits } })];

/** Returns 64 KiB of a frame, or of a message in frames. */
function many(...frames) {
  const one = Buffer.concat(frames);
  const units = Math.ceil((64 * 1024) / one.length);
  return { units, chunk: Buffer.concat(Array(units).fill(one)) };
}

/** Returns 64 KiB of a frame, or of a request, of which `most` end the connection, in half a MiB. */
function fewOf(one, most = 1000) {
  return { ...many(one), units: most / 8 };
}

/** Returns a frame with as many messages as fit in 256 KiB. */
function pack(one) {
  const units = Math.floor((256 * 1024) / (one.length + 1));
  return { units, chunk: text(`[${Array(units).fill(one)}]`) };
}

/** Returns a POST with the shortest head. */
function post(body) {
  return `POST / HTTP/1.1\r\nHost:127.0.0.1\r\nContent-Type:application/json\r\nContent-Length:${body.length}\r\n\r\n${body}`;
}

const message = (members) => `{"jsonrpc":"2.0",${members}}`;
const NULL_ERROR = message('"id":null,"error":{"code":1,"message":""}');
const NOTE = message('"method":"note"');
const CALL = message('"id":1,"method":"here"');
const cancelOf = (id) => message(`"method":"$/cancelRequest","params":{"id":${id}}`);
const requests = (count, method) =>
  text(`[${Array.from({ length: count }, (_, id) => message(`"id":${id},"method":"${method}"`))}]`);
const RUNNING = requests(1024, "never");
/** A message in as many empty fragments as the limit allows. */
const FRAGMENTS = [
  frame(TEXT, "", false),
  ...Array(1000).fill(frame(CONTINUATION, "", false)),
  frame(CONTINUATION, NOTE),
];

/** A flood: its name, the frames that are sent once, and those that are sent again and again. Without `first`, the link is plain. */
const flood = (name, first, content) => ({ name, isPacked: first.length > 0, first: Buffer.concat(first), ...content });

/** The floods over a WebSocket. */
export const FLOODS = [
  flood("pings", [], fewOf(frame(PING, ""))),
  flood("pings of 125 bytes", [], fewOf(frame(PING, Buffer.alloc(125)))),
  flood("pongs that answer nothing", [], fewOf(frame(PONG, ""))),
  flood("empty fragments", [], many(...FRAGMENTS)),
  flood("cancels of calls that do not exist", session(), pack(cancelOf(-1))),
  flood("cancels of calls that do not exist, with 1,024 calls running", [...session(), RUNNING], pack(cancelOf(-1))),
  flood("cancels of calls that do not exist, in frames of their own", [], many(text(cancelOf(-1)))),
  flood(
    "cancels of calls that do not exist, with 256 streams open",
    [...session(), requests(256, "still")],
    pack(cancelOf(-1)),
  ),
  flood("cancels of one of 1,024 calls again and again", [...session(), RUNNING], pack(cancelOf(5))),
  flood("errors with id null", session(), pack(NULL_ERROR)),
  flood("errors with id null, in batches", [], pack(NULL_ERROR)),
  flood("errors with id null, in frames of their own", [], many(text(NULL_ERROR))),
  flood("empty packs, with a short log", session(SHORT_LOG), many(text("[]"))),
  flood("empty packs", session(), many(text("[]"))),
  flood("acks", session(), many(text({ ack: 0 }))),
  flood("pings of `reciproc.v1`", session(), many(text({ ping: 1 }))),
  flood("control frames that mean nothing", session(), many(text({}))),
  flood("responses without a call", session(), pack(message('"id":9,"result":0'))),
  flood("malformed responses", [], fewOf(text('{"id":1}'), 100)),
  flood(
    "progress reports that no call asked for",
    session(),
    pack(message('"method":"$/progress","params":{"token":1}')),
  ),
  flood(
    "requests of streams that do not exist",
    session(),
    pack(message('"id":1,"method":"$/enumerator/next","params":[1]')),
  ),
  flood("notifications", session(), pack(NOTE)),
  flood("notifications, in frames of their own", [], many(text(NOTE))),
  flood("notifications beyond `maxInFlight`", session(), pack(message('"method":"never"'))),
  flood("calls", session(), pack(CALL)),
  flood("calls of an unknown method", session(), pack(message('"id":1,"method":"x"'))),
  flood("calls beyond `maxInFlight`", [...session(), RUNNING], pack(message('"id":1,"method":"never"'))),
  flood("batches of 1,000 calls", [], many(text(`[${Array(1000).fill(CALL)}]`))),
  flood("a malformed message, from a client that connects again", [], fewOf(text("x"), 100)),
];

const pipeline = (name, one) => ({ name: `pipelined ${name}`, ...fewOf(Buffer.from(one), 100) });

/** The floods of requests over one HTTP connection, which waits for no response. */
export const PIPELINES = [
  pipeline("POSTs of calls", post(CALL)),
  pipeline("POSTs of one byte each", post("x")),
  pipeline("POSTs of nothing", "POST / HTTP/1.1\r\nHost:127.0.0.1\r\nContent-Length:0\r\n\r\n"),
  pipeline("GETs", "GET / HTTP/1.1\r\nHost:127.0.0.1\r\n\r\n"),
];
