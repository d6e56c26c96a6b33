import { describe, expect, it } from "vitest";
import { ConnectionLostError, RpcError, TimeoutError } from "../../src/index.js";
import { countDeadlines } from "../../src/core/deadlines.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, rawPeer, result, type RawPeer } from "../support/raw.js";
import { Outcomes, rejection, turn } from "../support/turns.js";

useFakeClock();

/** The four events that may settle a call, and the outcome of each. */
const ENDS: Record<string, { happen: (one: Race) => void | Promise<void>; outcome: object }> = {
  answer: { happen: ({ raw }) => raw.feed(result(1, "answered")), outcome: { value: "answered" } },
  timeout: { happen: () => pass(1000), outcome: { reason: expect.any(TimeoutError) } },
  abort: { happen: ({ controller }) => controller.abort("aborted"), outcome: { reason: "aborted" } },
  close: { happen: ({ raw }) => raw.cut(), outcome: { reason: expect.any(ConnectionLostError) } },
};

interface Race {
  raw: RawPeer;
  controller: AbortController;
}

function permutations(names: string[]): string[][] {
  if (names.length < 2) return [names];
  return names.flatMap((first) => permutations(names.filter((name) => name !== first)).map((rest) => [first, ...rest]));
}

describe("a call", () => {
  it.each(permutations(Object.keys(ENDS)).map((order) => [order.join(", "), order] as const))(
    "settles once, by the first of %s",
    async (_name, order) => {
      const raw = rawPeer();
      const controller = new AbortController();
      const outcomes = new Outcomes();
      const { signal } = controller;
      outcomes.watch("call", raw.peer.request("m", undefined, { timeoutMs: 1000, signal }));
      for (const name of order) {
        await ENDS[name]!.happen({ raw, controller });
        await turn();
        expect(outcomes.list).toEqual([{ name: "call", ...ENDS[order[0]!]!.outcome }]);
        expect(countDeadlines()).toEqual({ waiting: 0, armed: false });
      }
      expectEmpty(raw.peer);
    },
  );

  it.each(
    permutations(Object.keys(ENDS).filter((name) => name !== "timeout")).map((order) => [order.join(", "), order]),
  )("settles once when %s occur in one tick", async (_name, order) => {
    const raw = rawPeer();
    const controller = new AbortController();
    const outcomes = new Outcomes();
    outcomes.watch("call", raw.peer.request("m", undefined, { signal: controller.signal }));
    for (const name of order) void ENDS[name]!.happen({ raw, controller });
    await turn();
    expect(outcomes.list).toEqual([{ name: "call", ...ENDS[order[0]!]!.outcome }]);
  });

  it("is settled by an answer inside send() even if send() then returns false", async () => {
    const raw = rawPeer({}, { onSend: (text, self) => (self.feed(result(JSON.parse(text).id, "at once")), false) });
    expect(await raw.peer.request("m")).toBe("at once");
  });

  it("is lost with outcome unknown when the connection ends inside send()", async () => {
    const raw = rawPeer({}, { onSend: (_text, self) => self.cut() });
    expect(await rejection(raw.peer.request("m"))).toMatchObject({ outcome: "unknown" });
    expectEmpty(raw.peer);
  });

  it("rejects with the code, message and data of the error, falsy data included", async () => {
    const raw = rawPeer();
    const call = raw.peer.request("m");
    raw.feed(failure(1, 0, "", 0));
    const error = await rejection(call);
    expect(error).toBeInstanceOf(RpcError);
    expect(error).toMatchObject({ code: 0, message: "", data: 0 });
  });

  it("never reuses an id, and starts at 1", async () => {
    const raw = rawPeer();
    const calls = [raw.peer.request("m"), raw.peer.request("m")];
    raw.feed(result(1, 1));
    raw.feed(result(2, 2));
    calls.push(raw.peer.request("m"));
    expect(raw.messages().map(({ id }) => id)).toEqual([1, 2, 3]);
    raw.feed(result(3, 3));
    expect(await Promise.all(calls)).toEqual([1, 2, 3]);
  });
});
