/** Values without a JSON form, which JSON.stringify would turn into `{}` or an object of indices. */
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import { encodeError, encodeNotification, encodeRequest, encodeResult, RpcError } from "../../src/index.js";
import { connectedPair } from "../support/pair.js";
import { failure, rawPeer, request, result } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";
import { uncaughtIn } from "../support/uncaught.js";

const ENTRIES = "write `[...it]`";
const MARKED = "write `bytes(it)`";
const THROWN = "throw it, or write `it.message`";
const STREAMED = "write `peer.offer(it.stream())`";

/** A promise of a library's own, as those of query builders are. */
class Query {
  then(use: (rows: unknown[]) => void): void {
    use([]);
  }
}

/** Values that cannot be sent, and the remedy that the error names. */
const UNENCODABLE: [string, () => object, string][] = [
  ["Uint8Array", () => new Uint8Array([1, 2, 3]), MARKED],
  ["Float64Array", () => new Float64Array(1), MARKED],
  ["DataView", () => new DataView(new ArrayBuffer(1)), MARKED],
  ["Uint8Array", () => Buffer.from("abc"), MARKED],
  ["ArrayBuffer", () => new ArrayBuffer(4), MARKED],
  ["SharedArrayBuffer", () => new SharedArrayBuffer(4), MARKED],
  ["Blob", () => new Blob(["x"]), STREAMED],
  ["File", () => new File(["x"], "x.txt"), STREAMED],
  ["Map", () => new Map([[1, 2]]), ENTRIES],
  ["Set", () => new Set([1]), ENTRIES],
  ["Promise", () => Promise.resolve(1), "await it"],
  ["promise", () => new Query(), "await it"],
  ["Error", () => new Error("boom"), THROWN],
  ["RpcError", () => new RpcError(1, "no"), THROWN],
  ["Map", () => new (class Directory extends Map {})(), ENTRIES],
  ["Map", () => runInNewContext("new Map()") as object, ENTRIES],
  ["Uint8Array", () => runInNewContext("new Uint8Array(2)") as object, MARKED],
];

describe.each(UNENCODABLE)("a %s", (kind, make, remedy) => {
  const refused = (name: string): TypeError => new TypeError(`JSON cannot carry the ${kind}${name}: ${remedy}`);

  it("is refused as params with an error that names the remedy", async () => {
    const { peer, sent } = rawPeer();
    expect(await rejection(peer.request("m", make()))).toEqual(refused(""));
    expect(() => peer.notify("m", make())).toThrow(refused(""));
    expect(sent).toEqual([]);
  });

  it("is refused as a member of params, which the error names", async () => {
    const { peer, sent } = rawPeer();
    expect(await rejection(peer.request("m", { text: "", data: make() }))).toEqual(refused(" `data`"));
    expect(await rejection(peer.request("m", [{}, [], make()]))).toEqual(refused(" `2`"));
    expect(() => peer.notify("m", [make()])).toThrow(refused(" `0`"));
    expect(sent).toEqual([]);
  });

  it("is refused as a result, or as a member of one, with -32603 and an `error` event", async () => {
    const methods = { member: () => ({ data: make() }), entry: async () => [1, make()] };
    const isAwaited = remedy === "await it";
    const raw = rawPeer({ methods: { ...methods, ...(!isAwaited && { whole: make }) } });
    const names = isAwaited ? ["member", "entry"] : ["member", "entry", "whole"];
    names.forEach((method, i) => raw.feed(request(i, method)));
    await turn();
    expect(raw.sent).toHaveLength(names.length);
    for (const message of raw.messages()) expect(message.error).toEqual({ code: -32603, message: "Internal error" });
    expect(raw.errors).toHaveLength(names.length);
    const places: Record<string, string> = { member: " `data`", entry: " `1`", whole: "" };
    // The promises of async handlers settle after the others.
    const messages = names.map((method) => `The result of "${method}": ${refused(places[method]!).message}`);
    expect(new Set(raw.errors.map((error) => (error as Error).message))).toEqual(new Set(messages));
    for (const error of raw.errors) expect(error).toBeInstanceOf(TypeError);
  });
});

describe("a value without a JSON form", () => {
  it("is refused anywhere in an object, and among the first 100 entries of an array", () => {
    const large = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [`key${i}`, i as unknown]));
    large["last"] = new Map();
    expect(() => encodeResult(1, large)).toThrow("JSON cannot carry the Map `last`");
    const long = Array.from<unknown>({ length: 200 }).fill(1);
    long[100] = new Map();
    expect(encodeResult(1, long)).toContain("1,{},1");
    long[99] = new Map();
    expect(() => encodeResult(1, long)).toThrow("JSON cannot carry the Map `99`");
  });

  it("is refused by every function that encodes", () => {
    const data = { set: new Set() };
    expect(() => encodeRequest(1, "m", data)).toThrow("`set`");
    expect(() => encodeNotification("m", data)).toThrow("`set`");
    expect(() => encodeResult(1, data)).toThrow("`set`");
    expect(() => encodeError(1, { code: 1, message: "", data })).toThrow("`set`");
  });

  it("is refused as a value of a stream, and as progress", async () => {
    await using pair = connectedPair({
      methods: {
        bytes: () => values(new Uint8Array(1000)),
        members: () => values({ map: new Map() }),
        progress: (_params, { progress }) => progress(new Set()),
      },
    });
    for (const method of ["bytes", "members"]) {
      const read = pair.b.stream(method)[Symbol.asyncIterator]();
      expect(await rejection(read.next() as Promise<unknown>)).toMatchObject({ code: -32603 });
    }
    const reports: unknown[] = [];
    const options = { onProgress: (report: unknown) => reports.push(report) };
    expect(await rejection(pair.b.request("progress", {}, options))).toMatchObject({ code: -32603 });
    expect(reports).toEqual([]);
    for (const error of pair.takeErrors()) expect((error as Error).message).toMatch(/^JSON cannot carry/);
  });

  it("that is a promise is observed, with the others beside it, so that its rejection does not end the process", async () => {
    const raw = rawPeer({ methods: { get: () => ({ user: fail(), all: fail() }), list: () => [1, fail(), fail()] } });
    const uncaught = await uncaughtIn(() => {
      raw.feed(request(1, "get"));
      raw.feed(request(2, "list"));
      expect(() => raw.peer.notify("m", { map: new Map(), user: fail() })).toThrow("`map`");
      return turn();
    });
    expect(uncaught).toEqual([]);
    expect(raw.messages()).toHaveLength(2);
    expect(raw.errors.splice(0).map((error) => (error as Error).message)).toEqual([
      'The result of "get": JSON cannot carry the Promise `user`: await it',
      'The result of "list": JSON cannot carry the Promise `1`: await it',
    ]);
  });

  it("that is a query which its `then` starts is not started", async () => {
    let runs = 0;
    const query = { then: () => runs++ };
    Object.setPrototypeOf(query, Query.prototype);
    expect(() => encodeResult(1, { query })).toThrow("`query`");
    await turn();
    expect(runs).toBe(0);
  });

  it("beyond those is encoded as JSON.stringify does", () => {
    expect(encodeResult(1, { a: { b: new Map([[1, 2]]), c: new Uint8Array([7]) } })).toContain('{"b":{},"c":{"0":7}}');
  });

  it("is accepted if it or its owner has a toJSON", () => {
    class Directory extends Map<string, number> {
      toJSON(): unknown {
        return [...this];
      }
    }
    class Board {
      cells = new Map([["a", 1]]);
      toJSON(): unknown {
        return Object.fromEntries(this.cells);
      }
    }
    const directory = new Directory([["a", 1]]);
    expect(encodeResult(1, directory)).toContain('"result":[["a",1]]');
    expect(encodeResult(1, { directory })).toContain('{"directory":[["a",1]]}');
    expect(encodeResult(1, new Board())).toContain('"result":{"a":1}');
    expect(encodeRequest(1, "m", new Board())).toContain('"params":{"a":1}');
  });

  it("is accepted in members that JSON omits", () => {
    const hidden = Object.defineProperty({}, "map", { value: new Map(), enumerable: false });
    const inherited = Object.create({ map: new Map() }) as object;
    const symbol = { [Symbol("map")]: new Map() };
    for (const value of [hidden, inherited, symbol]) expect(encodeResult(1, value)).toContain('"result":{}');
  });

  it("does not include other objects, which JSON.stringify encodes", () => {
    class Point {
      x = 1;
    }
    const parts = { date: new Date(0), point: new Point(), nothing: null, bare: Object.create(null) as unknown };
    expect(encodeResult(1, parts)).toContain(
      '{"date":"1970-01-01T00:00:00.000Z","point":{"x":1},"nothing":null,"bare":{}}',
    );
    expect(encodeResult(1, { text: new String("s"), tag: { [Symbol.toStringTag]: "Map" } })).toContain(
      '{"text":"s","tag":{}}',
    );
    expect(encodeResult(1, { then: () => {} })).toContain('"result":{}');
  });

  it("in a batch fails its own answer only, with an internal error", () => {
    const raw = rawPeer({ methods: { fine: () => 1, bad: () => ({ a: new Set() }) } });
    raw.feed([request(1, "bad"), request(2, "fine")]);
    expect(raw.messages()).toEqual([[failure(1, -32603, "Internal error"), result(2, 1)]]);
  });
});

/** Rejects a turn after it was called. */
async function fail(): Promise<never> {
  await turn();
  throw new Error("no such user");
}

async function* values(...all: unknown[]): AsyncGenerator<unknown> {
  yield* all;
}
