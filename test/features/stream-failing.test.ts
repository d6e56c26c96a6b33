/** Reading a stream that fails or is invalid. The other side is the test. */
import { describe, expect, it } from "vitest";
import { ConnectionLostError, pair, ProtocolError, RpcError } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, result, type RawPeer } from "../support/raw.js";
import { sessionPeer, type SessionPeer } from "../support/session-peer.js";
import { rejection, turn } from "../support/turns.js";
import { readAll } from "./joined.js";
import { beginReading, reading, readingFrom } from "./reading.js";
import { abort, feed, more, next } from "./tailing.js";

useFakeClock();

describe("a stream that fails", () => {
  it("with an error for its call rejects with that", async () => {
    const { raw, end } = await readingFrom(failure(1, 404, "no such file", { file: "log" }));
    expect(end[0]).toBeInstanceOf(RpcError);
    expect(end[0]).toMatchObject({ code: 404, message: "no such file", data: { file: "log" }, method: "tail" });
    expect(raw.sent).toHaveLength(1);
  });

  it("with an error midway rejects after the values before it, and sends no abort, because the error freed the token", async () => {
    const { raw, values, end } = await readingFrom(result(1, { token: "t", values: [1, 2] }), failure(2, 5, "no more"));
    expect(values).toEqual([1, 2]);
    expect(end).toEqual([expect.objectContaining({ code: 5, method: "tail" })]);
    expect(raw.sent).toHaveLength(2);
  });

  it("because the other side refused a busy request for more values is aborted", async () => {
    const { raw, end } = await readingFrom(result(1, { token: "t" }), failure(2, -32009, "Too many messages"));
    expect(end).toEqual([expect.objectContaining({ code: -32009 })]);
    expect(raw.messages()[2]).toEqual(abort("t"));
  });

  it.each<[string, unknown]>([
    ["null", null],
    ["a number", 5],
    ["a string", "stream"],
    ["an array", [1, 2]],
    ["an object whose values are none", { values: "abc" }],
    ["an object whose values are null", { values: null }],
    ["an object that is no stream", { rows: [1, 2] }],
  ])("because its first reply is %s rejects with a ProtocolError", async (_name, stream) => {
    const { raw, end } = await readingFrom(result(1, stream));
    expect(end).toEqual([expect.any(ProtocolError)]);
    expect(end[0]).toMatchObject({ raw: stream });
    expect(raw.sent).toHaveLength(1);
    expectEmpty(raw.peer);
  });

  it.each<[string, () => unknown, string]>([
    ["an object", () => ({ rows: [1, 2], total: 2 }), "an object"],
    ["an empty object", () => ({}), "an object"],
    ["a list", () => [1, 2], "an array"],
    ["nothing", () => undefined, "`null`"],
    ["a long text", () => "x".repeat(1000), `\`${"x".repeat(99)}`],
  ])("because the method of a reciproc peer returns %s names the method and what came", async (_name, rows, came) => {
    const [peer, other] = pair({}, { methods: { rows } });
    const error = await rejection(readAll(peer.stream("rows")));
    expect(error).toBeInstanceOf(ProtocolError);
    expect(error.message).toBe(`expected a stream of "rows", got ${came}`);
    await Promise.all([peer.close(), other.closed]);
  });

  it("because what is iterated is no stream names what it is", async () => {
    const raw = rawPeer({}, { isReciproc: true });
    const error = await rejection(readAll(raw.peer.iterate({ rows: [] } as never)));
    expect(error).toMatchObject({ code: "PROTOCOL", raw: { rows: [] } });
    expect(error.message).toContain("got an object");
  });

  it("because its first reply has invalid values beside a token aborts that token", async () => {
    const { raw, end } = await readingFrom(result(1, { token: "t", values: {} }));
    expect(end).toEqual([expect.any(ProtocolError)]);
    expect(raw.messages().slice(1)).toEqual([abort("t")]);
  });

  it.each<[string, unknown]>([
    ["null", null],
    ["an array", [1]],
    ["a string", "values"],
    ["an object without values", { finished: true }],
    ["an object with values that are none", { values: { length: 1 }, finished: false }],
    ["an object that does not say whether it is finished", { values: [1] }],
    ["an object that says so by something else", { values: [1], finished: 1 }],
    ["an object with no values that says there are more", { values: [], finished: false }],
  ])("because more of it is %s rejects with a ProtocolError, and is aborted", async (_name, reply) => {
    const { raw, values, end } = await readingFrom(result(1, { token: "t", values: [0] }), result(2, reply));
    expect(values).toEqual([0]);
    expect(end).toEqual([expect.any(ProtocolError)]);
    expect(end[0]).toMatchObject({ raw: reply });
    expect(raw.messages().slice(2)).toEqual([abort("t")]);
    expectEmpty(raw.peer);
  });

  it("because an answer is not a response is aborted", async () => {
    const { raw, end } = await readingFrom(result(1, { token: "t" }), { jsonrpc: "2.0", id: 2 });
    expect(end).toEqual([expect.any(ProtocolError)]);
    expect(raw.messages()[2]).toEqual(abort("t"));
  });

  it.each<[string, (raw: RawPeer) => void]>([
    ["the other side closes", (raw) => raw.cut()],
    ["this side closes", (raw) => void raw.peer.close()],
  ])("because %s rejects after the received values", async (_name, end) => {
    const { raw, stream } = await beginReading({ token: "t", values: [1, 2] });
    end(raw);
    await turn();
    expect(await stream.next()).toEqual({ done: false, value: 2 });
    expect(await rejection(stream.next())).toBeInstanceOf(ConnectionLostError);
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    expect(raw.sent).toHaveLength(2);
    expectEmpty(raw.peer);
  });

  it("because its peer is closed rejects as not sent", async () => {
    const raw = rawPeer();
    await raw.peer.close();
    const { end } = reading(raw);
    await turn();
    expect(end).toEqual([expect.objectContaining({ code: "CONNECTION_LOST", outcome: "not-sent" })]);
  });

  it("causes no unhandled rejection when no further value is requested", async () => {
    const { raw } = await beginReading({ token: "t", values: [1] });
    // The reply requested ahead fails while no next() is pending.
    await feed(raw, failure(2, 1, "no"));
    expect(inspect(raw.peer).pending).toBe(0);
  });
});

/** Reads two values over a suspended connection. The request for more is queued for the next socket. */
async function interrupted(
  open: (ends: SessionPeer) => AsyncIterable<unknown> | Promise<AsyncIterable<unknown>>,
): Promise<SessionPeer & { read: Promise<unknown>; values: unknown[] }> {
  const ends = sessionPeer();
  const values: unknown[] = [];
  const stream = await open(ends);
  const read = (async () => {
    for await (const value of stream) values.push(value);
  })();
  read.catch(() => {});
  await turn();
  return { ...ends, read, values };
}

describe("a stream whose connection is lost after its call was answered", () => {
  const GONE = new Error("the session is over");

  const ways: [string, string, (ends: SessionPeer) => AsyncIterable<unknown> | Promise<AsyncIterable<unknown>>][] = [
    [
      "stream",
      "tail",
      ({ peer, transport }) => {
        transport.onSend = (text) => {
          if (!text.includes('"tail"')) return;
          transport.suspend();
          transport.feed(result(1, { token: "t", values: [1, 2] }));
        };
        return peer.stream("tail");
      },
    ],
    [
      "iterate",
      "$/enumerator/next",
      ({ peer, transport }) => {
        transport.suspend();
        return peer.iterate({ token: "t", values: [1, 2] } as never);
      },
    ],
  ];

  it.each(ways)("rejects as unknown, even if the request for more was never sent: %s", async (_name, method, open) => {
    const { transport, read, values } = await interrupted(open);
    transport.lose(GONE);
    const error = await rejection(read);
    expect(error).toBeInstanceOf(ConnectionLostError);
    expect(error).toMatchObject({ outcome: "unknown", method, cause: GONE });
    expect(values).toEqual([1, 2]);
  });

  it("rejects as unknown when the next values are requested after the loss", async () => {
    const { peer, transport } = sessionPeer();
    const stream = peer.stream("tail")[Symbol.asyncIterator]();
    const first = stream.next();
    await turn();
    transport.suspend();
    transport.lose(GONE);
    expect(await rejection(first)).toMatchObject({ outcome: "unknown", method: "tail" });
    const late = peer.iterate({ token: "t" } as never)[Symbol.asyncIterator]();
    await peer.close();
    expect(await rejection(late.next())).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
  });

  it("rejects as not sent when its own call was never sent", async () => {
    const { peer, transport } = sessionPeer();
    transport.suspend();
    const read = rejection(readAll(peer.stream("tail")));
    await turn();
    transport.lose(GONE);
    expect(await read).toMatchObject({ outcome: "not-sent", method: "tail" });
  });
});

describe("iterate", () => {
  it("reads a stream found inside a result, as stream() reads a whole one", async () => {
    const raw = rawPeer();
    const asked = raw.peer.request("m");
    raw.feed(result(1, { lines: { token: "t", values: [1] }, count: 2 }));
    const { lines }: any = await asked;
    const read = readAll(raw.peer.iterate(lines));
    await turn();
    expect(raw.messages()[1]).toEqual(next(2, "t"));
    raw.feed(more(2, [2], true));
    expect(await read).toEqual([1, 2]);
  });

  it.each([undefined, null, 5, "stream", true])("throws for %j", (stream) => {
    const raw = rawPeer();
    expect(() => raw.peer.iterate(stream as never)).toThrow(TypeError);
    expect(() => raw.peer.iterate(stream as never)).toThrow("Expected `stream` to be a stream out of a message, got ");
  });

  it("rejects for an object that is not a stream", async () => {
    const raw = rawPeer();
    expect(await rejection(readAll(raw.peer.iterate([] as never)))).toBeInstanceOf(ProtocolError);
    expect(await rejection(readAll(raw.peer.iterate({ token: 1, values: 5 } as never)))).toBeInstanceOf(ProtocolError);
    expect(raw.messages()).toEqual([abort(1)]);
  });

  it("throws when it is called twice for one stream", async () => {
    const raw = rawPeer();
    const stream = { values: [1] } as never;
    expect(await readAll(raw.peer.iterate(stream))).toEqual([1]);
    expect(() => raw.peer.iterate(stream)).toThrow("a stream can be read once");
  });

  it("aborts an unread stream once when its iterator is returned", async () => {
    const raw = rawPeer();
    const stream = raw.peer.iterate({ token: 0 } as never)[Symbol.asyncIterator]();
    await stream.return!();
    await stream.return!();
    expect(await stream.next()).toEqual({ done: true, value: undefined });
    const begun = raw.peer.iterate({ token: 1 } as never)[Symbol.asyncIterator]();
    void begun.next();
    void begun.return!();
    await turn();
    expect(raw.messages()).toEqual([abort(0), abort(1)]);
    const complete = raw.peer.iterate({ values: [1] } as never)[Symbol.asyncIterator]();
    await complete.return!();
    expect(raw.sent).toHaveLength(2);
  });

  it("sends nothing if reading never begins", async () => {
    const raw = rawPeer();
    raw.peer.iterate({ token: 0 } as never);
    await turn();
    expect(raw.sent).toEqual([]);
  });
});
