/** Progress reports, from the handler's side. */
import { describe, expect, it } from "vitest";
import { acp, RpcError, type AnyPeer, type Options } from "../../src/index.js";
import { useFakeClock } from "../support/clock.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { gate, turn } from "../support/turns.js";

useFakeClock();

const report = (token: unknown, value: unknown): object => notification("$/progress", { token, value });

function cyclic(): object {
  const ring: { self?: object } = {};
  ring.self = ring;
  return ring;
}

function serving(methods: Options<any, any>["methods"], options: object = {}): RawPeer {
  return rawPeer({ ...options, methods });
}

describe("a handler's progress", () => {
  it("is sent as acp defines it, before the result", async () => {
    const raw = serving(
      { m: (_params: unknown, { progress }: any) => (progress(5), progress({ deep: [1] }), "done") },
      { dialect: acp },
    );
    raw.feed(request(1, "m", { _meta: { "reciproc/progress": "t" } }));
    const method = "_reciproc/progress";
    expect(raw.messages()).toEqual([
      { ...report("t", 5), method },
      { ...report("t", { deep: [1] }), method },
      result(1, "done"),
    ]);
  });

  it.each([
    ["absent params", undefined],
    ["params by position", ["t"]],
    ["another dialect's token", { _meta: { progressToken: 1 } }],
  ])("sends nothing for %s, which requests no reports", async (_name, params) => {
    const raw = serving({ m: (_params: unknown, { progress }: any) => [1, 5n].forEach(progress) });
    raw.feed(request(1, "m", params));
    expect(raw.messages()).toEqual([result(1, null)]);
  });

  it("sends nothing for a notification, which cannot request reports", async () => {
    const raw = serving({ m: (_params: unknown, { progress }: any) => progress(1) });
    raw.feed(notification("m", { workDoneToken: "t" }));
    expect(raw.sent).toEqual([]);
  });

  it("sends null for undefined", async () => {
    const raw = serving({ m: (_params: unknown, { progress }: any) => progress(undefined) });
    raw.feed(request(1, "m", { workDoneToken: "t" }));
    expect(raw.messages()[0]).toEqual(report("t", null));
  });

  it("sends nothing after the answer, nor after an error, nor after a cancel, nor after the end", async () => {
    const open = gate();
    const late: ((value: unknown) => void)[] = [];
    const raw = serving({
      answers: (_params: unknown, { progress }: any) => void late.push(progress),
      fails: (_params: unknown, { progress }: any) => {
        late.push(progress);
        throw new RpcError(1, "no");
      },
      waits: (_params: unknown, { progress }: any) => (late.push(progress), open.promise),
    });
    for (const [id, method] of ["answers", "fails", "waits", "waits"].entries()) {
      raw.feed(request(id, method, { workDoneToken: id }));
    }
    raw.feed(notification("$/cancelRequest", { id: 2 }));
    for (const progress of late.slice(0, 3)) progress("late");
    expect(raw.messages()).toEqual([result(0, null), failure(1, 1, "no")]);
    late[3]!("in time");
    expect(raw.messages()[2]).toEqual(report(3, "in time"));
    raw.cut();
    late[3]!("late");
    open.resolve();
    await turn();
    expect(raw.sent).toHaveLength(3);
  });

  it("sends nothing after the handler returned, even if its batch is not answered yet", async () => {
    const open = gate();
    let late!: (value: unknown) => void;
    const raw = serving({
      quick: (_params: unknown, { progress }: any) => ((late = progress), progress("in time"), "quick"),
      slow: () => open.promise,
    });
    raw.feed([request(1, "quick", { workDoneToken: "t" }), request(2, "slow")]);
    late("late");
    open.resolve();
    await turn();
    expect(raw.messages()).toEqual([report("t", "in time"), [result(1, "quick"), result(2, null)]]);
  });

  it.each<[string, (peer: AnyPeer) => unknown]>([
    ["a cycle", () => cyclic()],
    ["a BigInt", () => 5n],
    ["a stream", (peer) => ({ stream: peer.offer([1]) })],
    ["a Map", () => new Map()],
    ["a member that is a Map", () => ({ files: new Map() })],
    ["an entry that is a promise", () => [Promise.resolve(1)]],
  ])("throws in the handler for %s, and sends nothing", async (_name, make) => {
    const seen: unknown[] = [];
    const raw = serving({
      m: (_params: unknown, { progress, peer }: any) => {
        try {
          progress(make(peer));
        } catch (error) {
          seen.push(error);
        }
        return "went on";
      },
    });
    raw.feed(request(1, "m", { workDoneToken: "t" }));
    expect(seen).toEqual([expect.any(TypeError)]);
    expect(raw.messages()).toEqual([result(1, "went on")]);
    expect(raw.errors).toEqual([]);
  });

  it("uses the token of the received params, even if `around` or a schema changed them", async () => {
    const raw = serving(
      { m: (_params: unknown, { progress }: any) => progress(1) },
      {
        around: (call: any, next: any) => ((call.params = []), next()),
        schemas: { m: { "~standard": { validate: () => ({ value: "checked" }) } } },
      },
    );
    raw.feed(request(1, "m", { workDoneToken: "t" }));
    await turn();
    expect(raw.messages()).toEqual([report("t", 1), result(1, null)]);
  });
});
