/** What is not sent: values without a JSON form, which JSON.stringify would turn into `{}`, and messages longer than the other side accepts. */
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import {
  encodeError,
  encodeNotification,
  encodeRequest,
  encodeResult,
  RpcError,
  TooLargeError,
} from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import type { AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, sessionPeer, TestLink } from "../support/raw.js";
import { rejection, turn, useVirtualClock } from "../support/time.js";
import { uncaughtIn } from "../support/uncaught.js";

useVirtualClock();

const ENTRIES = "write `[...it]`";
const MARKED = "write `bytes(it)`";
const THROWN = "throw it, or write `it.message`";
const STREAMED = "write `peer.offer(it.stream())`";

/** A promise of a library's own, as those of query builders are. */
class Query {
  then(): void {
    expect.fail("what its `then` would start was started");
  }
}

/** Values that cannot be sent, and the remedy that the error names. */
const UNENCODABLE: [string, () => object, string][] = [
  ["Uint8Array", () => new Uint8Array([1, 2, 3]), MARKED],
  ["DataView", () => new DataView(new ArrayBuffer(1)), MARKED],
  ["Uint8Array", () => Buffer.from("abc"), MARKED],
  ["ArrayBuffer", () => new ArrayBuffer(4), MARKED],
  ["SharedArrayBuffer", () => new SharedArrayBuffer(4), MARKED],
  ["Blob", () => new Blob(["x"]), STREAMED],
  ["File", () => new File(["x"], "x.txt"), STREAMED],
  ["Set", () => new Set([1]), ENTRIES],
  ["Promise", () => Promise.resolve(1), "await it"],
  ["promise", () => new Query(), "await it"],
  ["RpcError", () => new RpcError(1, "no"), THROWN],
  ["Map", () => new (class Directory extends Map {})(), ENTRIES],
  ["Map", () => runInNewContext("new Map()") as object, ENTRIES],
  ["Uint8Array", () => runInNewContext("new Uint8Array(2)") as object, MARKED],
];

describe.each(UNENCODABLE)("a %s", (kind, make, remedy) => {
  const refused = (name: string): TypeError => new TypeError(`JSON cannot carry the ${kind}${name}: ${remedy}`);

  it("is refused as params, or as a member of them, with an error that names the member and the remedy", async () => {
    const { peer, sent } = rawPeer();
    expect(await rejection(peer.request("m", make()))).toEqual(refused(""));
    expect(await rejection(peer.request("m", { text: "", data: make() }))).toEqual(refused(" `data`"));
    expect(() => peer.notify("m", [{}, make()])).toThrow(refused(" `1`"));
    expect(sent).toEqual([]);
  });

  it("is refused as a result, or as a member of one, with -32603 and an `error` event", async () => {
    const raw = rawPeer({ methods: { member: () => ({ data: make() }), whole: make } });
    // A promise is no result: it is awaited.
    const methods = remedy === "await it" ? ["member"] : ["member", "whole"];
    const errors = methods.map((method) => {
      raw.feed(request(1, method));
      const { message } = refused(method === "member" ? " `data`" : "");
      return new TypeError(`The result of "${method}": ${message}`);
    });
    expect(raw.messages()).toEqual(errors.map(() => failure(1, -32603, "Internal error")));
    expect(raw.errors).toEqual(errors);
  });
});

describe("a value without a JSON form", () => {
  it("is refused anywhere in an object, and among the first 100 entries of an array, by every function that encodes", () => {
    const large = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`key${i}`, i as unknown]));
    large["last"] = new Map();
    const refused = "JSON cannot carry the Map `last`";
    expect(() => encodeRequest(1, "m", large)).toThrow(refused);
    expect(() => encodeNotification("m", large)).toThrow(refused);
    expect(() => encodeResult(1, large)).toThrow(refused);
    expect(() => encodeError(1, { code: 1, message: "", data: large })).toThrow(refused);
    const long = Array.from<unknown>({ length: 200 }).fill(1);
    long[100] = new Map();
    expect(encodeResult(1, long)).toContain("1,{},1");
    long[99] = new Map();
    expect(() => encodeResult(1, long)).toThrow("JSON cannot carry the Map `99`");
  });

  it("that is a promise is observed, with the others beside it, so that its rejection does not end the process", async () => {
    const raw = rawPeer({ methods: { get: () => ({ user: fail(), all: fail() }), list: () => [1, fail(), fail()] } });
    const uncaught = await uncaughtIn(() => {
      for (const method of ["get", "list"]) raw.feed(request(1, method));
      expect(() => raw.peer.notify("m", { map: new Map(), user: fail() })).toThrow("`map`");
      return turn();
    });
    expect([uncaught, raw.sent.length, raw.errors.length]).toEqual([[], 2, 2]);
  });

  it("is accepted if it or the object around it has a toJSON, in members that JSON omits, and below the members", () => {
    const directory = Object.assign(new Map([["a", 1]]), { toJSON: () => "all" });
    const failed = Object.assign(new Error("x"), { map: new Map(), toJSON: () => ["x"] });
    expect(encodeResult(1, { directory })).toContain('{"directory":"all"}');
    expect(encodeResult(1, failed)).toContain('"result":["x"]');
    expect(encodeRequest(1, "m", failed)).toContain('"params":["x"]');
    const hidden = Object.defineProperty({}, "map", { value: new Map(), enumerable: false });
    const inherited = Object.create({ map: new Map() }) as object;
    for (const value of [hidden, inherited, { [Symbol("map")]: new Map() }, { then: () => {} }])
      expect(encodeResult(1, value)).toContain('"result":{}');
    const others = { date: new Date(0), bare: Object.create(null) as unknown, text: new String("s") };
    expect(encodeResult(1, others)).toContain('{"date":"1970-01-01T00:00:00.000Z","bare":{},"text":"s"}');
    const deep = { tag: { [Symbol.toStringTag]: "Map" }, deep: { map: new Map([[1, 2]]) } };
    expect(encodeResult(1, deep)).toContain('{"tag":{},"deep":{"map":{}}}');
  });
});

async function fail(): Promise<never> {
  await turn();
  throw new Error("no such user");
}

const MOST = 200;

function tooLong(method: string, bytes: number): object {
  return {
    name: "TooLargeError",
    code: "TOO_LARGE",
    method,
    bytes,
    maxMessageBytes: MOST,
    message: expect.stringContaining(`"${method}" has ${bytes} bytes`),
  };
}

const limited = (options?: AnyOptions) => sessionPeer(options, { maxMessageBytes: MOST });

function filled(message: object, length: number): [string] {
  return ["x".repeat(length - JSON.stringify({ ...message, params: [""] }).length)];
}

describe("a call longer than the limit of the other side", () => {
  it("rejects with the method, the size, the limit and the option, and is sent at exactly the limit", async () => {
    const { peer, take, transport } = limited();
    const call = peer.request("m", filled(request(1, "m"), MOST));
    const error = await rejection(peer.request("m", filled(request(2, "m"), MOST + 1)));
    for (const type of [TooLargeError, RangeError]) expect(error).toBeInstanceOf(type);
    expect(error).toMatchObject(tooLong("m", MOST + 1));
    expect(take().map((message) => JSON.stringify(message).length)).toEqual([MOST]);
    transport.feed(result(1, "ok"));
    expect(await call).toBe("ok");
  });

  it("is measured in bytes of UTF-8, and while the connection is suspended, but not on a closed one", async () => {
    const { peer, take, transport } = limited();
    transport.suspend();
    const bytes = Buffer.byteLength(JSON.stringify(request(1, "m", ["é".repeat(90)])));
    expect(await rejection(peer.request("m", ["é".repeat(90)]))).toMatchObject(tooLong("m", bytes));
    transport.resume();
    expect(take()).toEqual([]);
    await peer.close();
    expect(await rejection(peer.request("m", ["x".repeat(MOST)]))).toMatchObject({ outcome: "not-sent" });
  });

  it("rejects every call of a batch that is too long as a whole, and reports one of notifications once", async () => {
    const { peer, take, errors } = limited();
    const batch = peer.batch();
    const calls = [1, 2, 3].map((n) => rejection(batch.request("m", [n, "x".repeat(50)])));
    batch.send();
    const bytes = JSON.stringify([1, 2, 3].map((n) => request(n, "m", [n, "x".repeat(50)]))).length;
    for (const error of await Promise.all(calls)) expect(error).toMatchObject(tooLong("m", bytes));
    expect([take(), errors, peer.stats().pending]).toEqual([[], [], 0]);
    const others = peer.batch();
    const members = Array.from({ length: 3 }, () => notification("n", ["x".repeat(80)]));
    for (const _ of members) expect(others.notify("n", ["x".repeat(80)])).toBe(true);
    others.send();
    expect(take()).toEqual([]);
    expect(errors).toMatchObject([tooLong("n", JSON.stringify(members).length)]);
  });
});

describe("a notification longer than the limit of the other side", () => {
  it.each<[string, AnyOptions]>([
    ["", {}],
    [" by an `around` that lets it pass", { around: (_call, next) => next() }],
  ])("is dropped, and reported once%s", async (_how, options) => {
    const { peer, take, errors } = limited(options);
    const taken = [MOST, MOST + 1].map((length) => peer.notify("n", filled(notification("n"), length)));
    await turn();
    expect([taken, take().length]).toEqual([[true, false], 1]);
    expect(errors).toMatchObject([tooLong("n", MOST + 1)]);
  });

  it("is reported if it is a progress report, and its call continues", async () => {
    const long = { step: "x".repeat(MOST) };
    const { transport, take, errors } = limited({
      methods: { work: (_params, { progress }) => (progress(long), progress(1), "done") },
    });
    transport.feed(request(1, "work", { workDoneToken: "t" }));
    expect(take()).toEqual([notification("$/progress", { token: "t", value: 1 }), result(1, "done")]);
    const report = notification("$/progress", { token: "t", value: long });
    expect(errors).toMatchObject([tooLong("$/progress", JSON.stringify(report).length)]);
  });

  it("is dropped as a broadcast, with a key and without", async () => {
    const { server } = testServer<any, any>({});
    const transport = new TestLink({ maxMessageBytes: MOST });
    const peer = server.accept(transport, undefined);
    server.peers.notify("n", ["x".repeat(MOST)]);
    server.peers.notify("n", ["x".repeat(MOST)], { latest: "key" });
    expect([transport.sent, peer.stats().dropped, peer.state]).toEqual([[], 2, "open"]);
    await server.close();
  });
});

const tooLarge = (id: number | null): object => failure(id, -32008, "Response is too large", { maxReplyBytes: MOST });

describe("an answer longer than the limit of the other side", () => {
  const methods = {
    long: ([length]: number[]) => "x".repeat(length!),
    later: async ([length]: number[]) => "x".repeat(length!),
  };
  const envelope = JSON.stringify(result(1, "")).length;

  it.each(["long", "later"])("becomes -32008, for a synchronous and an asynchronous handler: %s", async (method) => {
    const { transport, take } = limited({ methods });
    transport.feed(request(1, method, [MOST - envelope]));
    transport.feed(request(2, method, [MOST - envelope + 1]));
    await turn();
    expect(take()).toEqual([result(1, "x".repeat(MOST - envelope)), tooLarge(2)]);
  });

  it("is bounded by `maxReplyBytes` if that is less, and so are the data of an error", async () => {
    const error = new RpcError(1, "no", "x".repeat(MOST));
    const fails = { ...methods, fails: () => Promise.reject(error) };
    const { transport, take } = limited({ methods: fails, limits: { maxReplyBytes: 150 } });
    transport.feed(request(1, "long", [160 - envelope]));
    transport.feed(request(2, "fails"));
    await turn();
    expect(take()).toEqual([1, 2].map((id) => failure(id, -32008, "Response is too large", { maxReplyBytes: 150 })));
  });
});
