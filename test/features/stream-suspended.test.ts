/** Streams of a connection without a socket: no value is read ahead, and buffered values are counted. */
import { describe, expect, it } from "vitest";
import { countDeadlines } from "../../src/core/deadlines.js";
import { restless, type Restless } from "../support/restless.js";
import { gate, turn } from "../support/turns.js";

/** A source whose values the test supplies, and that counts its requests. */
class Pulled implements AsyncIterableIterator<string> {
  pulls = 0;
  returns = 0;
  #resolve: ((result: IteratorResult<string>) => void) | undefined;

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<string>> {
    this.pulls++;
    return new Promise((resolve) => (this.#resolve = resolve));
  }

  async return(): Promise<IteratorResult<string>> {
    this.returns++;
    return { done: true, value: undefined };
  }

  /** Supplies one value if one was requested. */
  async give(value: string): Promise<void> {
    this.#resolve?.({ done: false, value });
    await turn();
  }
}

function call(id: number, method: string, params?: object): object {
  return { jsonrpc: "2.0", id, method, ...(params && { params }) };
}

function next(id: number, token: number): object {
  return call(id, "$/enumerator/next", { token });
}

/** Returns a peer whose stream is being read under a known token. */
async function reading(): Promise<Restless & { source: Pulled; token: number }> {
  const source = new Pulled();
  const ends = restless({ methods: { pull: () => source } });
  ends.transport.feed(call(1, "pull"));
  await turn();
  await source.give("first");
  const [{ result }] = ends.take();
  return { ...ends, source, token: result.token as number };
}

describe("a stream of a connection without a socket", () => {
  it("keeps the value already requested and requests no other from its source until there is a socket again", async () => {
    const { transport, source, token, take } = await reading();
    expect(source.pulls).toBe(2);
    transport.suspend();
    await source.give("second");
    await source.give("not asked for");
    expect(source.pulls).toBe(2);
    transport.resume();
    expect(source.pulls).toBe(3);
    await source.give("third");
    transport.feed(next(2, token));
    await turn();
    expect(take()).toEqual([{ jsonrpc: "2.0", id: 2, result: { values: ["second", "third"], finished: false } }]);
    transport.end({ code: 1000, reason: "" });
  });

  it("answers an earlier request when there is a socket, and sets no timer until then", async () => {
    const { transport, source, token, take } = await reading();
    transport.feed(next(2, token));
    await turn();
    transport.suspend();
    await source.give("late");
    expect(countDeadlines().waiting).toBe(0);
    expect([transport.waiting, take()]).toEqual([[], []]);
    transport.resume();
    await turn();
    expect(take()).toEqual([{ jsonrpc: "2.0", id: 2, result: { values: ["late"], finished: false } }]);
    transport.end({ code: 1000, reason: "" });
  });

  it("is answered even if its source yields nothing before there is a socket again", async () => {
    const { transport, source, token, take } = await reading();
    // The requested value arrives while there is no socket, and is sent on the next one.
    transport.suspend();
    await source.give("second");
    transport.resume();
    transport.feed(next(2, token));
    await turn();
    expect(take()).toHaveLength(1);
    transport.feed(next(3, token));
    await turn();
    transport.suspend();
    transport.resume();
    await source.give("third");
    expect(take()).toEqual([{ jsonrpc: "2.0", id: 3, result: { values: ["third"], finished: false } }]);
    transport.end({ code: 1000, reason: "" });
  });

  it("is not begun if it is returned without a socket, and is read from its beginning afterwards", async () => {
    const open = gate<Pulled>();
    const source = new Pulled();
    const { transport, take } = restless({ methods: { later: () => open.promise } });
    transport.feed(call(1, "later"));
    transport.suspend();
    open.resolve(source);
    await turn();
    expect(source.pulls).toBe(0);
    transport.resume();
    expect(source.pulls).toBe(1);
    await source.give("first");
    const [{ result }] = take();
    expect(result.values).toEqual(["first"]);
    transport.end({ code: 1000, reason: "" });
  });

  it("is stopped when the connection ends without a socket", async () => {
    const { transport, source } = await reading();
    transport.suspend();
    await source.give("second");
    transport.end({ code: 1006, reason: "" });
    await turn();
    expect([source.pulls, source.returns, transport.kept]).toEqual([2, 1, 0]);
  });
});

describe("the data that a connection buffers for the other side", () => {
  it("includes each value that was read ahead, until it is sent", async () => {
    const { transport, source, token, take } = await reading();
    const empty = transport.kept;
    await source.give("x".repeat(1000));
    await source.give("y".repeat(2000));
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
    for (let i = 0; i < 100; i++) await source.give("");
    expect(transport.kept - empty).toBeGreaterThanOrEqual(3000);
    transport.end({ code: 1000, reason: "" });
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
      const { transport, take } = restless({ methods: { values } }, { isReciproc: true });
      transport.feed(call(1, "values"));
      await turn();
      open.resolve();
      await turn();
      const [{ result }] = take();
      expect(transport.kept).toBeGreaterThan(1000);
      const { token } = result as { token: number };
      if (how.startsWith("aborted")) {
        transport.feed({ jsonrpc: "2.0", method: "$/enumerator/abort", params: { token } });
      } else if (how.startsWith("cancelled")) {
        transport.feed({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 1 } });
      } else {
        for (let id = 2; id < 4; id++) {
          transport.feed(next(id, token));
          await turn();
        }
      }
      await turn();
      expect(transport.kept).toBe(0);
      transport.end({ code: 1000, reason: "" });
    },
  );

  it("includes each reply of a batch, until the batch is answered", async () => {
    const open = gate();
    const { transport, take } = restless({ methods: { slow: () => open.promise, big: () => "x".repeat(5000) } });
    transport.feed([call(1, "big"), call(2, "slow"), call(3, "big")]);
    await turn();
    expect(transport.kept).toBeGreaterThanOrEqual(10_000);
    expect(transport.kept).toBeLessThan(10_500);
    open.resolve();
    await turn();
    expect(take()).toHaveLength(1);
    expect(transport.kept).toBe(0);
    transport.end({ code: 1000, reason: "" });
  });
});
