/** Messages longer than the limit that the other side announced. */
import { describe, expect, it } from "vitest";
import { TooLargeError } from "../../src/index.js";
import { testServer } from "../../src/testing/index.js";
import { type AnyOptions } from "../support/pair.js";
import { failure, notification, request, result } from "../support/raw.js";
import { sessionPeer, SessionTransport, type SessionPeer } from "../support/session-peer.js";
import { useVirtualClock } from "../support/time.js";
import { rejection, turn } from "../support/turns.js";

useVirtualClock();

const MOST = 200;

/** The error for a message that is too long. */
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

function limited(options: AnyOptions = {}): SessionPeer {
  const ends = sessionPeer(options);
  ends.transport.maxMessageBytes = MOST;
  return ends;
}

/** Returns params for a message of exactly this length. */
function filled(message: object, length: number): [string] {
  return ["x".repeat(length - JSON.stringify({ ...message, params: [""] }).length)];
}

describe("a call longer than the limit of the other side", () => {
  it("rejects with the method, the size, the limit and the option, and is sent at exactly the limit", async () => {
    const { peer, take, transport } = limited();
    const call = peer.request("m", filled(request(1, "m"), MOST));
    expect(JSON.stringify(take()[0])).toHaveLength(MOST);
    const error = await rejection(peer.request("m", filled(request(2, "m"), MOST + 1)));
    expect(error).toBeInstanceOf(TooLargeError);
    expect(error).toBeInstanceOf(RangeError);
    expect(error).toMatchObject(tooLong("m", MOST + 1));
    expect(take()).toEqual([]);
    transport.feed(result(1, "ok"));
    expect(await call).toBe("ok");
    expect(peer.state).toBe("open");
  });

  it("is measured in bytes of UTF-8", async () => {
    const { peer, take } = limited();
    const bytes = Buffer.byteLength(JSON.stringify(request(1, "m", ["é".repeat(90)])));
    expect(await rejection(peer.request("m", ["é".repeat(90)]))).toMatchObject(tooLong("m", bytes));
    expect(take()).toEqual([]);
  });

  it("rejects while the connection is suspended too", async () => {
    const { peer, transport } = limited();
    transport.suspend();
    expect(await rejection(peer.request("m", filled(request(1, "m"), 300)))).toMatchObject(tooLong("m", 300));
    transport.resume();
  });

  it("rejects because the connection is closed on a closed connection", async () => {
    const { peer } = limited();
    await peer.close();
    expect(await rejection(peer.request("m", ["x".repeat(MOST)]))).toMatchObject({ outcome: "not-sent" });
  });

  it("rejects every call of a batch that is too long as a whole, and sends none", async () => {
    const { peer, take, errors } = limited();
    const batch = peer.batch();
    const calls = [1, 2, 3].map((n) => rejection(batch.request("m", [n, "x".repeat(50)])));
    batch.send();
    const members = [1, 2, 3].map((n) => request(n, "m", [n, "x".repeat(50)]));
    const bytes = JSON.stringify(members).length;
    for (const error of await Promise.all(calls)) expect(error).toMatchObject(tooLong("m", bytes));
    expect(take()).toEqual([]);
    expect([errors, peer.stats().pending]).toEqual([[], 0]);
  });
});

describe("a notification longer than the limit of the other side", () => {
  it("is dropped and reported as an error", async () => {
    const { peer, take, errors } = limited();
    expect(peer.notify("n", filled(notification("n"), MOST))).toBe(true);
    expect(take()).toHaveLength(1);
    expect(peer.notify("n", filled(notification("n"), MOST + 1))).toBe(false);
    expect(take()).toEqual([]);
    expect(errors).toMatchObject([tooLong("n", MOST + 1)]);
    expect(errors[0]).toBeInstanceOf(TooLargeError);
  });

  it("is reported once by an `around` that lets it pass", async () => {
    const { peer, errors } = limited({ around: (_call, next) => next() });
    expect(peer.notify("n", filled(notification("n"), MOST + 1))).toBe(false);
    await turn();
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

  it("is reported once for a batch of notifications", async () => {
    const { peer, take, errors } = limited();
    const batch = peer.batch();
    for (let i = 0; i < 3; i++) expect(batch.notify("n", ["x".repeat(80)])).toBe(true);
    batch.send();
    expect(take()).toEqual([]);
    const bytes = JSON.stringify(Array.from({ length: 3 }, () => notification("n", ["x".repeat(80)]))).length;
    expect(errors).toMatchObject([tooLong("n", bytes)]);
  });

  it("is dropped as a broadcast, with a key and without", async () => {
    const { server } = testServer<any, any>({});
    const transport = new SessionTransport(false, false);
    transport.maxMessageBytes = MOST;
    const peer = server.accept(transport, undefined);
    server.peers.notify("n", ["x".repeat(MOST)]);
    server.peers.notify("n", ["x".repeat(MOST)], { latest: "key" });
    expect([transport.sent, peer.stats().dropped, peer.state]).toEqual([[], 2, "open"]);
    await server.close();
  });
});

/** The error that replaces an answer. */
function tooLarge(id: number | null): object {
  return failure(id, -32008, "Response is too large", { maxReplyBytes: MOST });
}

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

  it("is measured for a batch as a whole", async () => {
    const { transport, take } = limited({ methods });
    transport.feed([request(1, "long", [20]), request(2, "long", [150])]);
    expect(take()).toEqual([[result(1, "x".repeat(20)), tooLarge(2)]]);
  });

  it("is refused whole if the errors of a batch make it too long", async () => {
    const { transport, take } = limited({ methods });
    transport.feed([request(1, "long", [100]), request(2, "long", [100])]);
    expect(take()).toEqual([tooLarge(null)]);
  });

  it("is bounded by `maxReplyBytes` if that is less", async () => {
    const { transport, take } = limited({ methods, limits: { maxReplyBytes: 150 } });
    transport.feed(request(1, "long", [160 - envelope]));
    expect(take()).toMatchObject([{ error: { code: -32008, data: { maxReplyBytes: 150 } } }]);
  });
});
