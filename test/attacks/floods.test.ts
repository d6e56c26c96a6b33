/**
 * Floods of messages that are cheapest to send and most expensive to receive, over one connection, against the default
 * limits. Each states how long 99 of 100 calls of a bystander took.
 */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { request } from "../support/raw.js";
import { portOf } from "../support/network.js";
import { attacker, type Attacker } from "./support/attacker.js";
import { expectWithinBound } from "./support/bystander.js";
import { MIB } from "./support/memory.js";
import { CONTINUATION, frame, PING, PONG, target, targetApart, TEXT, upgradeText } from "./support/server.js";

const LIMITS = { maxMessageBytes: MIB, logFrames: 4096, logLength: 4 * MIB };
/** A peer that keeps one frame makes an ack due with each. */
const SHORT_LOG = { ...LIMITS, logFrames: 1, logLength: 1 };

/** The first bytes of a flood. */
interface Way {
  readonly headers: string[];
  readonly first: Buffer;
}

const PLAIN: Way = { headers: [], first: Buffer.alloc(0) };
const session = (limits: object = LIMITS): Way => ({
  headers: ["Sec-WebSocket-Protocol: reciproc.v1"],
  first: text({ hello: { session: true, limits } }),
});
const after = ({ headers, first }: Way, ...more: Buffer[]): Way => ({
  headers,
  first: Buffer.concat([first, ...more]),
});
/** Returns a POST with the shortest head. */
function postOf(body: string): string {
  return `POST / HTTP/1.1\r\nHost:127.0.0.1\r\nContent-Type:application/json\r\nContent-Length:${body.length}\r\n\r\n${body}`;
}

function text(value: unknown): Buffer {
  return frame(TEXT, typeof value === "string" ? value : JSON.stringify(value));
}

/** Returns 64 KiB of frames of one kind. */
function many(...frames: Buffer[]): Buffer {
  const one = Buffer.concat(frames);
  return Buffer.concat(Array<Buffer>(Math.ceil((64 * 1024) / one.length)).fill(one));
}

/** Returns a frame with as many messages as fit in 256 KiB. */
function pack(message: string): Buffer {
  return text(
    `[${Array<string>(Math.floor((256 * 1024) / (message.length + 1)))
      .fill(message)
      .join(",")}]`,
  );
}

const message = (members: string): string => `{"jsonrpc":"2.0",${members}}`;
const NULL_ERROR = message('"id":null,"error":{"code":1,"message":""}');
const NOTE = message('"method":"note"');
const CALL = message('"id":1,"method":"here"');
const cancelOf = (id: number): string => message(`"method":"$/cancelRequest","params":{"id":${id}}`);
const RUNNING = text(Array.from({ length: 1024 }, (_, i) => request(i, "never")));
const STREAMS = text(Array.from({ length: 256 }, (_, i) => request(i, "still")));
/** Returns a message in as many empty fragments as the limit allows. */
const FRAGMENTS = [
  frame(TEXT, "", false),
  ...Array<Buffer>(1000).fill(frame(CONTINUATION, "", false)),
  frame(CONTINUATION, NOTE),
];

const METHODS = {
  note: () => {},
  never: () => new Promise<never>(() => {}),
  async *still() {
    yield 1;
    await new Promise<never>(() => {});
  },
};

const FLOODS: [what: string, way: Way, chunk: Buffer][] = [
  ["pings", PLAIN, many(frame(PING, ""))],
  ["pings of 125 bytes", PLAIN, many(frame(PING, Buffer.alloc(125)))],
  ["pongs that answer nothing", PLAIN, many(frame(PONG, ""))],
  ["empty fragments", PLAIN, many(...FRAGMENTS)],
  ["cancels of calls that do not exist", session(), pack(cancelOf(-1))],
  ["the same, with 1,024 calls running", after(session(), RUNNING), pack(cancelOf(-1))],
  ["the same, in frames of their own", after(PLAIN, RUNNING), many(text(cancelOf(-1)))],
  ["the same, with 256 streams open", after(session(), STREAMS), pack(cancelOf(-1))],
  ["cancels of one of 1,024 calls again and again", after(session(), RUNNING), pack(cancelOf(5))],
  ["errors with id null", session(), pack(NULL_ERROR)],
  ["errors with id null, in batches", PLAIN, pack(NULL_ERROR)],
  ["errors with id null, in frames of their own", PLAIN, many(text(NULL_ERROR))],
  ["empty packs, with a short log", session(SHORT_LOG), many(text("[]"))],
  ["empty packs", session(), many(text("[]"))],
  ["acks", session(), many(text({ ack: 0 }))],
  ["pings of `reciproc.v1`", session(), many(text({ ping: 1 }))],
  ["control frames that mean nothing", session(), many(text({}))],
  ["answers that nobody waits for", session(), pack(message('"id":9,"result":0'))],
  ["broken answers", PLAIN, many(text('{"id":1}'))],
  ["reports of progress that nobody asked for", session(), pack(message('"method":"$/progress","params":{"token":1}'))],
  [
    "requests of streams that do not exist",
    session(),
    pack(message('"id":1,"method":"$/enumerator/next","params":[1]')),
  ],
  ["notifications", session(), pack(NOTE)],
  ["notifications, in frames of their own", PLAIN, many(text(NOTE))],
  ["notifications beyond `maxInFlight`", session(), pack(message('"method":"never"'))],
  ["calls", session(), pack(CALL)],
  ["calls of an unknown method", session(), pack(message('"id":1,"method":"x"'))],
  ["calls beyond `maxInFlight`", after(session(), RUNNING), pack(message('"id":1,"method":"never"'))],
  ["batches of 1,000 calls", PLAIN, many(text(`[${Array<string>(1000).fill(CALL).join(",")}]`))],
  ["a message that is malformed, from a client that comes again", PLAIN, many(text("x"))],
];

/**
 * The contents of pipelined requests. Node parses all requests of one read in one step, and allocates objects for each.
 * So they have a limit of their own.
 */
const PIPELINE_BOUND_MS = 60;
const PIPELINES: [what: string, chunk: string][] = [
  ["calls", postOf(CALL)],
  ["one byte each", postOf("x")],
  ["nothing", "POST / HTTP/1.1\r\nHost:127.0.0.1\r\nContent-Length:0\r\n\r\n"],
  ["no POSTs", "GET / HTTP/1.1\r\nHost:127.0.0.1\r\n\r\n"],
];

describe("a flood over one connection", () => {
  let attack: Attacker;
  beforeAll(async () => void (attack = await attacker()));
  afterAll(() => attack[Symbol.asyncDispose]());

  it.each(FLOODS)(
    "leaves 99 of 100 calls of another client within 25 ms, or five times their duration without it: %s",
    async (what, { headers, first }, chunk) => {
      await using on = await target({ methods: METHODS });
      // An application reports errors, and does not store each error of a flood.
      on.server.removeAllListeners("error");
      on.server.on("error", () => {});
      let bytes = 0;
      const figures = await expectWithinBound(on.url, {
        async start() {
          const head = upgradeText(on.url, ...headers);
          await attack.pour({ port: portOf(on.url), head, first, chunk, bytesPerSecond: MIB });
        },
        async stop() {
          bytes += (await attack.stopPouring()).bytes;
          // Until the messages in flight are processed, and only the bystander is left.
          await expect.poll(() => on.sockets.size, { timeout: 20_000 }).toBe(1);
        },
      });
      process.stdout.write(`flood of ${what}: ${figures}; ${(bytes / MIB).toFixed(1)} MiB\n`);
      expect(bytes).toBeGreaterThan(chunk.length);
    },
    60_000,
  );

  it.each(PIPELINES)(
    "leaves 99 of 100 calls of another client within 60 ms, or five times their duration without it: pipelined requests with %s",
    async (what, one) => {
      using on = await targetApart();
      const chunk = many(Buffer.from(one));
      let bytes = 0;
      const figures = await expectWithinBound(
        on.url,
        {
          async start() {
            const first = Buffer.alloc(0);
            await attack.pour({ port: portOf(on.url), head: postOf(CALL), first, chunk, bytesPerSecond: MIB });
          },
          async stop() {
            bytes += (await attack.stopPouring()).bytes;
            await expect.poll(() => on.connections(), { timeout: 20_000 }).toBe(1);
          },
        },
        PIPELINE_BOUND_MS,
      );
      process.stdout.write(
        `flood of pipelined requests that hold ${what}: ${figures}; ${(bytes / MIB).toFixed(1)} MiB\n`,
      );
      expect(bytes).toBeGreaterThan(chunk.length);
    },
    60_000,
  );
});
