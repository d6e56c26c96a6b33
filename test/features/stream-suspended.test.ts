/** Streams of a connection without a socket: no value is read ahead, and buffered values are counted. */
import { describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { useFakeClock } from "../support/clock.js";
import { request } from "../support/raw.js";
import { sessionPeer, type SessionPeer } from "../support/session-peer.js";
import { gate, turn } from "../support/turns.js";
import { Fed } from "./sources.js";
import { abort, cancel, more, next } from "./tailing.js";

useFakeClock();

/** Supplies one value, and waits until it was handled. */
async function give(source: Fed, value: string): Promise<void> {
  source.give(value);
  await turn();
}

/** Returns a peer whose stream is being read under a known token. */
async function reading(): Promise<SessionPeer & { source: Fed; token: number }> {
  const source = new Fed();
  const ends = sessionPeer({ methods: { pull: () => source } });
  ends.transport.feed(request(1, "pull"));
  await turn();
  await give(source, "first");
  const [{ result }] = ends.take();
  return { ...ends, source, token: result.token as number };
}

describe("a stream of a connection without a socket", () => {
  it("keeps the value already requested and requests no other from its source until there is a socket again", async () => {
    const { transport, source, token, take } = await reading();
    expect(source.asked).toBe(2);
    transport.suspend();
    await give(source, "second");
    expect(source.asked).toBe(2);
    transport.resume();
    expect(source.asked).toBe(3);
    await give(source, "third");
    transport.feed(next(2, token));
    await turn();
    expect(take()).toEqual([more(2, ["second", "third"])]);
  });

  it("answers an earlier request when there is a socket, and sets no timer until then", async () => {
    const { transport, source, token, take } = await reading();
    transport.feed(next(2, token));
    await turn();
    transport.suspend();
    await give(source, "late");
    expect(countDeadlines().waiting).toBe(0);
    expect([transport.waiting, take()]).toEqual([[], []]);
    transport.resume();
    await turn();
    expect(take()).toEqual([more(2, ["late"])]);
  });

  it("is answered even if its source yields nothing before there is a socket again", async () => {
    const { transport, source, token, take } = await reading();
    // The requested value arrives while there is no socket, and is sent on the next one.
    transport.suspend();
    await give(source, "second");
    transport.resume();
    transport.feed(next(2, token));
    await turn();
    expect(take()).toHaveLength(1);
    transport.feed(next(3, token));
    await turn();
    transport.suspend();
    transport.resume();
    await give(source, "third");
    expect(take()).toEqual([more(3, ["third"])]);
  });

  it("is not begun if it is returned without a socket, and is read from its beginning afterwards", async () => {
    const open = gate<Fed>();
    const source = new Fed();
    const { transport, take } = sessionPeer({ methods: { later: () => open.promise } });
    transport.feed(request(1, "later"));
    transport.suspend();
    open.resolve(source);
    await turn();
    expect(source.asked).toBe(0);
    transport.resume();
    expect(source.asked).toBe(1);
    await give(source, "first");
    const [{ result }] = take();
    expect(result.values).toEqual(["first"]);
  });

  it("is stopped when the connection ends without a socket", async () => {
    const { transport, source } = await reading();
    transport.suspend();
    await give(source, "second");
    transport.end({ code: 1006, reason: "" });
    await turn();
    expect([source.asked, source.returned, transport.kept]).toEqual([2, 1, 0]);
  });
});

describe("the data that a connection buffers for the other side", () => {
  it("includes each value that was read ahead, until it is sent", async () => {
    const { transport, source, token, take } = await reading();
    const empty = transport.kept;
    await give(source, "x".repeat(1000));
    await give(source, "y".repeat(2000));
    expect(transport.kept - empty).toBeGreaterThanOrEqual(3000);
    expect(transport.kept - empty).toBeLessThan(3200);
    transport.feed(next(2, token));
    await turn();
    expect(take()).toHaveLength(1);
    expect(transport.kept).toBe(empty);
    transport.end({ code: 1000, reason: "" });
    expect(transport.kept).toBe(0);
  });

  it("includes an overhead for each value and each stream", async () => {
    const { transport, source } = await reading();
    expect(transport.kept).toBeGreaterThanOrEqual(1000);
    const empty = transport.kept;
    for (let i = 0; i < 100; i++) await give(source, "");
    expect(transport.kept - empty).toBeGreaterThanOrEqual(3000);
  });

  it.each(["aborted by its reader", "cancelled with its call", "at its end", "after a failure"])(
    "includes nothing of an ended stream: %s",
    async (how) => {
      const open = gate();
      async function* values(): AsyncGenerator<string> {
        yield "x".repeat(1000);
        await open.promise;
        yield "y".repeat(1000);
        if (how === "after a failure") throw new Error("broken");
      }
      const { transport, take } = sessionPeer({ methods: { values } }, { isReciproc: true });
      transport.feed(request(1, "values"));
      await turn();
      open.resolve();
      await turn();
      const [{ result }] = take();
      expect(transport.kept).toBeGreaterThan(1000);
      const { token } = result as { token: number };
      if (how.startsWith("aborted")) {
        transport.feed(abort(token));
      } else if (how.startsWith("cancelled")) {
        transport.feed(cancel(1));
      } else {
        for (let id = 2; id < 4; id++) {
          transport.feed(next(id, token));
          await turn();
        }
      }
      await turn();
      expect(transport.kept).toBe(0);
    },
  );

  it("includes each reply of a batch, until the batch is answered", async () => {
    const open = gate();
    const { transport, take } = sessionPeer({ methods: { slow: () => open.promise, big: () => "x".repeat(5000) } });
    transport.feed([request(1, "big"), request(2, "slow"), request(3, "big")]);
    await turn();
    expect(transport.kept).toBeGreaterThanOrEqual(10_000);
    expect(transport.kept).toBeLessThan(10_500);
    open.resolve();
    await turn();
    expect(take()).toHaveLength(1);
    expect(transport.kept).toBe(0);
  });
});
