import { describe, expect, it, vi } from "vitest";
import type { Link } from "../../src/message/transport.js";
import { bytes, bytesOf, encodeError, encodeNotification, encodeRequest, encodeResult } from "../../src/index.js";
import { Peer, readBytes } from "../../src/index.js";
import * as codec from "../../src/message/codec.js";
import type { TextWithBytes } from "../../src/message/bytes.js";
import { binaryFrame } from "../support/binary.js";
import { connectedPair, inBatch, readAll, type AnyOptions } from "../support/pair.js";
import { gate, rejection } from "../support/turns.js";

const DATA = Uint8Array.from({ length: 300 }, (_, i) => i);
const BASE64 = Buffer.from(DATA).toString("base64");

function carry(...params: unknown[]): unknown {
  const { frame } = codec.encodeNotification("m", params) as TextWithBytes;
  return (bytes.read(frame) as { params: unknown }).params;
}

describe("`bytes`", () => {
  it.each<[string, Parameters<typeof bytes>[0]]>([
    ["a Uint8Array", DATA],
    ["a part of a Uint8Array", Uint8Array.from([9, ...DATA, 9]).subarray(1, 301)],
    ["a Buffer", Buffer.from(DATA)],
    ["an ArrayBuffer", DATA.slice().buffer],
    ["a SharedArrayBuffer", sharedCopy(DATA)],
    ["a Uint16Array", new Uint16Array(DATA.slice().buffer)],
    ["a DataView", new DataView(DATA.slice().buffer)],
  ])("marks %s", (_what, view) => {
    expect(carry(bytes(view))).toEqual([DATA]);
    expect(bytesOf(bytes(view))).toEqual(DATA);
  });

  it.each([undefined, null, "text", 1, [1, 2], {}, new Blob([])])("refuses %o", (value) => {
    expect(() => bytes(value as never)).toThrow(/^Expected `view` to be an ArrayBuffer or a view of one, got /);
  });

  it("stands anywhere in a message, more than once, and in the data of an error", () => {
    const one = bytes(DATA);
    const sent = { list: [one, { deep: [[one]] }], none: bytes(new Uint8Array(0)) };
    expect(carry(sent, one)).toEqual([{ list: [DATA, { deep: [[DATA]] }], none: new Uint8Array(0) }, DATA]);
    const error = codec.encodeError(1, { code: 1, message: "m", data: one }) as TextWithBytes;
    expect(bytes.read(error.frame)).toEqual({ jsonrpc: "2.0", id: 1, error: { code: 1, message: "m", data: DATA } });
  });

  it("can be the value of `__proto__`, which changes no prototype", () => {
    const sent = Object.defineProperty({}, "__proto__", { value: bytes(DATA), enumerable: true });
    const [got] = carry(sent) as [object];
    expect(Object.getPrototypeOf(got)).toBe(Object.prototype);
    expect(Object.getOwnPropertyDescriptor(got, "__proto__")).toMatchObject({ value: DATA, writable: true });
  });

  it("is base64 in `JSON.stringify`, and in the text of the functions for transports", () => {
    const one = bytes(DATA);
    expect(JSON.stringify({ one })).toBe(`{"one":"${BASE64}"}`);
    expect(encodeRequest(1, "m", [one])).toBe(`{"jsonrpc":"2.0","id":1,"method":"m","params":["${BASE64}"]}`);
    expect(encodeNotification("m", { one })).toBe(`{"jsonrpc":"2.0","method":"m","params":{"one":"${BASE64}"}}`);
    expect(encodeResult(1, one)).toBe(`{"jsonrpc":"2.0","id":1,"result":"${BASE64}"}`);
    expect(encodeError(1, { code: 2, message: "m", data: one })).toBe(
      `{"jsonrpc":"2.0","id":1,"error":{"code":2,"message":"m","data":"${BASE64}"}}`,
    );
  });

  it("belongs to its message, also if a `toJSON` in the message sends another or fails", () => {
    const sent: unknown[] = [];
    const other = {
      toJSON: () => {
        sent.push(carry(bytes(new Uint8Array([1]))));
        expect(() => codec.encodeResult(1, [bytes(DATA), 1n])).toThrow("BigInt");
        return "other";
      },
    };
    expect(carry(bytes(DATA), other, bytes(DATA))).toEqual([DATA, "other", DATA]);
    expect(sent).toEqual([[new Uint8Array([1])]]);
    // Nothing of the failed message is left.
    expect(typeof codec.encodeResult(1, "text")).toBe("string");
  });

  it.each([
    ["moves it into a string", (): unknown => JSON.stringify([bytes(DATA)])],
    ["makes it the name of a member", (): unknown => ({ [String(JSON.parse(JSON.stringify(bytes(DATA))))]: 1 })],
    ["drops it", (): unknown => JSON.stringify(bytes(DATA)).length],
  ])("throws if a `toJSON` encodes it and %s", (_what, toJSON) => {
    expect(() => codec.encodeResult(1, { toJSON })).toThrow(
      new TypeError("a `toJSON` encoded `bytes` apart from the message that contains it"),
    );
  });

  it("cannot be forged: strings like a placeholder arrive as they are, and each message has new placeholders", () => {
    const first = codec.encodeResult(1, [bytes(DATA)]) as TextWithBytes;
    const second = codec.encodeResult(1, [bytes(DATA)]) as TextWithBytes;
    expect(placeholder(first)).not.toBe(placeholder(second));
    const forged = [placeholder(first), `${"1".repeat(20)}-0`, { [placeholder(first)]: placeholder(second) }];
    expect(carry(...forged, bytes(DATA))).toEqual([...forged, DATA]);
  });
});

describe("`bytesOf`", () => {
  it("reads base64 of any length into memory of its own, and a Buffer as a Uint8Array of the same memory", () => {
    const read = Array.from({ length: 10 }, (_, length) =>
      bytesOf(Buffer.from(DATA.subarray(0, length)).toString("base64")),
    );
    for (const [length, part] of read.entries())
      expect([part, part.buffer.byteLength]).toEqual([DATA.slice(0, length), length]);
    const buffer = Buffer.from(DATA);
    const view = bytesOf(buffer);
    expect(view).toEqual(DATA);
    expect(view.buffer).toBe(buffer.buffer);
    for (const one of [...read, view]) expect(Object.getPrototypeOf(one)).toBe(Uint8Array.prototype);
  });

  it.each([undefined, null, 1, {}, [1], "a", "ab=", "a===", "=abc", "ab=c", "a-_b", "abc\n", "äbcd"])(
    "refuses %o",
    (value) => {
      expect(() => bytesOf(value)).toThrow(/^Expected `value` to be a Uint8Array or a base64 string, got /);
    },
  );

  it("reads and writes the same base64 in a runtime without `Buffer`", () => {
    const { Buffer: node } = globalThis;
    const long = Uint8Array.from({ length: 100_000 }, (_, i) => i * 7);
    const text = node.from(long).toString("base64");
    try {
      Reflect.deleteProperty(globalThis, "Buffer");
      expect(JSON.stringify(bytes(long)) === `"${text}"`).toBe(true);
      expect(bytesOf(text)).toEqual(long);
      expect(carry(bytes(DATA))).toEqual([DATA]);
    } finally {
      globalThis.Buffer = node;
    }
  });
});

it("`readBytes` yields Uint8Arrays up to a limit, beyond which it ends the stream and refuses the call", async () => {
  const ended = gate();
  const next = async (): Promise<object> => ({ done: false, value: bytes(DATA) });
  const endless = { [Symbol.asyncIterator]: () => ({ next, return: async () => ended.resolve() }) };
  const methods: AnyOptions["methods"] = {
    take: async ([stream, maxBytes], { peer }) =>
      (await readAll(readBytes(peer.iterate(stream), { maxBytes }))).map((part) => part instanceof Uint8Array),
  };
  await using pair = connectedPair({}, { methods });
  const call = (from: any, most: unknown): Promise<unknown> => pair.a.request("take", [pair.a.offer(from), most]);
  expect(await call([bytes(DATA), bytes(DATA)], 600)).toEqual([true, true]);
  expect(await rejection(call(endless, 600))).toMatchObject({ code: -32007 });
  await ended.promise;
  expect(await rejection(call([], 0))).toMatchObject({ code: -32603 });
  expect(pair.takeErrors()).toEqual([new TypeError("Expected `maxBytes` to be a positive number, got `0` (number)")]);
});

describe("a binary frame", () => {
  it.each<[string, Uint8Array]>([
    ["is empty", new Uint8Array(0)],
    ["has less than the JSON that its length announces", Uint8Array.from([0, 0, 0, 9, 0x5b, 0x5d])],
    ["announces 4 GiB of JSON", Uint8Array.from([255, 255, 255, 255, 0x5b, 0x5d])],
    ["has JSON that is not UTF-8", binaryFrame(Uint8Array.from([0x22, 0xff, 0x22]))],
    ["has a byte order mark", binaryFrame("\ufeff[[],{}]")],
    ["has no JSON", binaryFrame("[[],{}")],
    ["is no array", binaryFrame('{"0":[],"1":{},"length":2}')],
    ["has no message", binaryFrame("[[]]")],
    ["has two messages", binaryFrame("[[],{},{}]")],
    ["has a message that is a number", binaryFrame("[[],1]")],
    ["has a message that is null", binaryFrame("[[],null]")],
    ["has no list of attachments", binaryFrame("[{},{}]")],
    ["has an attachment without a length", binaryFrame('[["a"],{"m":"a"}]')],
    ["has a placeholder that is no string", binaryFrame('[[1,1],{"m":1}]', [1])],
    ["has a length that is not whole", binaryFrame('[["a",0.5,"b",0.5],{"m":["a","b"]}]', [1])],
    ["has a negative length", binaryFrame('[["a",-1,"b",2],{"m":["a","b"]}]', [1])],
    ["has a length beyond its end", binaryFrame('[["a",2],{"m":"a"}]', [1])],
    ["has bytes of no attachment", binaryFrame('[["a",1],{"m":"a"}]', [1, 2])],
    ["has the same placeholder twice", binaryFrame('[["a",1,"a",1],{"m":["a","a"]}]', [1, 2])],
    ["has a placeholder that the message does not contain", binaryFrame('[["a",1],{"a":"b"}]', [1])],
    ["has a placeholder only as a name", binaryFrame('[["a",1],{"a":1}]', [1])],
  ])("is refused if it %s", (_why, frame) => {
    expect(bytes.read(frame)).toBeUndefined();
  });

  it("may have no attachments, and a batch as its message", () => {
    expect(bytes.read(binaryFrame('[[],[{"m":1}]]'))).toEqual([{ m: 1 }]);
  });

  it("places an attachment once, and takes no inherited name", () => {
    const frame = binaryFrame('[["a",1,"toString",1],{"m":["a","a","toString"]}]', [1, 2]);
    expect(bytes.read(frame)).toEqual({ m: [Uint8Array.of(1), "a", Uint8Array.of(2)] });
  });

  it("takes at most 4,096 attachments, and sends more in JSON", () => {
    expect(bytes.read(emptyAttachments(4096))).toHaveLength(4096);
    expect(bytes.read(emptyAttachments(4097))).toBeUndefined();
    expect(emptyViews(4096).fitsFrame).toBe(true);
    expect(emptyViews(4097).fitsFrame).toBe(false);
  });

  it("is read at any depth", () => {
    const depth = 20_000;
    const frame = binaryFrame(`[["a",1],${"[".repeat(depth)}"a"${"]".repeat(depth)}]`, [7]);
    let value = bytes.read(frame);
    for (let i = 0; i < depth; i++) value = (value as unknown[])[0];
    expect(value).toEqual(Uint8Array.of(7));
  });

  it("with many numbers lists no key of them, which would take ten times as long as `JSON.parse`", () => {
    const keys = vi.spyOn(Object, "keys");
    expect(bytes.read(binaryFrame(`[["a",0],[${"0,".repeat(10_000)}"a"]]`))).toHaveLength(10_001);
    const listed = keys.mock.results.flatMap(({ value }) => value as string[]);
    keys.mockRestore();
    expect(listed).toEqual([]);
  });

  it("keeps no more memory alive than eight times the bytes that stay in use", () => {
    const views = [300, 2_000, 10_000].map((length) => bytes(new Uint8Array(length)));
    const { frame } = codec.encodeResult(1, views) as TextWithBytes;
    const { result } = bytes.read(frame) as { result: Uint8Array[] };
    const { byteLength } = result[2]!.buffer;
    expect(byteLength).toBeLessThan(8 * 2_000);
    expect(result.map(({ buffer }) => buffer.byteLength)).toEqual([300, byteLength, byteLength]);
  });
});

it("bytes on a plain link are base64 in both directions, in batches, in progress and in streams", async () => {
  const methods: AnyOptions["methods"] = {
    echo: ({ value }, { progress }) => (progress(bytes(bytesOf(value))), [value, bytes(bytesOf(value))]),
    read: async ([stream], { peer }) => readAll(peer.iterate(stream)),
    list: (_params, { peer }) => peer.offer([bytes(DATA)]),
  };
  await using pair = connectedPair({}, { methods });
  const { a } = pair;
  const reports: unknown[] = [];
  const onProgress = (value: unknown): void => void reports.push(value);
  const params = { value: bytes(DATA) };
  for (const echoed of [a.request("echo", params, { onProgress }), inBatch(a, "echo", params)])
    expect(await echoed).toEqual([BASE64, BASE64]);
  expect(reports).toEqual([BASE64]);
  expect(await a.request("read", [a.offer([bytes(DATA)])])).toEqual([BASE64]);
  expect(await readAll(a.stream("list"))).toEqual([BASE64]);
});

it("bytes on a plain link are base64 for a transport of the application, and as they are for a link that takes bytes", () => {
  const sent: unknown[] = [];
  const send = (text: any): boolean => sent.push(typeof text === "string" ? text : bytes.read(text.frame)) > 0;
  for (const takesBytes of [undefined, true])
    new Peer({ start() {}, send, close() {}, takesBytes } as Link, {}).notify("m", [bytes(DATA)]);
  expect(sent).toEqual([
    `{"jsonrpc":"2.0","method":"m","params":["${BASE64}"]}`,
    { jsonrpc: "2.0", method: "m", params: [DATA] },
  ]);
});

function sharedCopy(view: Uint8Array): SharedArrayBuffer {
  const buffer = new SharedArrayBuffer(view.length);
  new Uint8Array(buffer).set(view);
  return buffer;
}

function placeholder(text: TextWithBytes): string {
  return (JSON.parse(text.json) as { result: [string] }).result[0];
}

function emptyAttachments(count: number): Uint8Array {
  const places = Array.from({ length: count }, (_, i) => `p${i}`);
  return binaryFrame(JSON.stringify([places.flatMap((place) => [place, 0]), places]));
}

function emptyViews(count: number): TextWithBytes {
  return codec.encodeResult(1, Array<unknown>(count).fill(bytes(new Uint8Array(0)))) as TextWithBytes;
}
