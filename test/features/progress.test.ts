import { beforeEach, describe, expect, it, vi } from "vitest";
import { acp, lsp, mcp, RpcError, type AnyPeer, type Context, type Dialect } from "../../src/index.js";
import { expectEmpty, type AnyOptions } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { gate, Outcomes, pass, rejection, turn, useVirtualClock } from "../support/time.js";
import { cancel, report } from "./kit.js";

useVirtualClock();
// The progress tokens of each connection count from 1.
beforeEach(() => void vi.spyOn(Math, "random").mockReturnValue(0));

const onProgress = (): void => {};

const reciprocPeer = (options: AnyOptions = {}): RawPeer => rawPeer(options, { isReciproc: true });

/** Makes a call with `onProgress`, and returns the reports that it gets until its result. */
async function reported(options: AnyOptions, send: (raw: RawPeer) => void, params: object = {}): Promise<unknown[]> {
  const raw = reciprocPeer(options);
  const reports: unknown[] = [];
  const call = raw.peer.request("m", params, { onProgress: (value) => reports.push(value) });
  send(raw);
  raw.feed(result(1, "done"));
  expect(await call).toBe("done");
  expectEmpty(raw.peer);
  return reports;
}

describe("asking for reports", () => {
  it.each<[string, Dialect | undefined, object | undefined, object]>([
    ["absent params, lsp", lsp, undefined, { workDoneToken: 1 }],
    ["params with a _meta, mcp", mcp, { a: 1, _meta: { b: 2 } }, { a: 1, _meta: { b: 2, progressToken: 1 } }],
    ["params by name, acp", acp, { a: 1 }, { a: 1, _meta: { "reciproc/progress": 1 } }],
    ["the result of the params' own toJSON", lsp, { toJSON: () => ({ a: 1 }) }, { a: 1, workDoneToken: 1 }],
    ["a token of the user's own, lsp", lsp, { partialResultToken: 0 }, { partialResultToken: 0 }],
    ["one of the user's own, on a plain link", undefined, { workDoneToken: "mine" }, { workDoneToken: "mine" }],
  ])("puts a token into %s, and leaves the caller's object alone", async (_name, dialect, params, asked) => {
    const raw = rawPeer({ dialect });
    const before = JSON.stringify(params);
    const reports: unknown[] = [];
    const call = raw.peer.request("m", params, { onProgress: (value) => reports.push(value) });
    expect(raw.messages()).toEqual([request(1, "m", asked)]);
    expect(JSON.stringify(params)).toBe(before);
    raw.feed(report(1, "by the call's id"));
    raw.feed(report("mine", "by the user's token"));
    raw.feed(result(1, null));
    await call;
    const { workDoneToken } = asked as { workDoneToken?: unknown };
    const expected = { mine: ["by the user's token"], 1: ["by the call's id"] };
    expect(reports).toEqual(expected[workDoneToken as keyof typeof expected] ?? []);
    expectEmpty(raw.peer);
  });

  it.each<[string, unknown, object]>([
    ["params", [1], { onProgress }],
    ["onProgress", {}, { onProgress: 5 }],
    ["maxTotalTimeoutMs", {}, { maxTotalTimeoutMs: 0 }],
  ])("is refused for invalid %s, and nothing is sent", async (name, params, options) => {
    const raw = reciprocPeer();
    const error = await rejection(raw.peer.request("m", params, options));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toContain(`Expected \`${name}\` to be `);
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("never confuses a call's id with an equal token of another call", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const note = (name: string) => ({ onProgress: (value: unknown) => void reports.push(`${name} ${value}`) });
    const own = raw.peer.request("m", { workDoneToken: 2 }, note("own token"));
    const second = raw.peer.request("m", {}, note("second"));
    expect(raw.messages().map(({ params }) => params.workDoneToken)).toEqual([2, 1]);
    raw.feed(report(2, "a"));
    raw.feed(report(1, "b"));
    expect(reports).toEqual(["own token a", "second b"]);
    // A token in use cannot be chosen either.
    const error = await rejection(raw.peer.request("m", { workDoneToken: 1 }, note("third")));
    expect(error.message).toContain("waits already");
    for (const id of [1, 2]) raw.feed(result(id, null));
    await Promise.all([own, second]);
  });
});

describe("a received report", () => {
  it("reaches onProgress, in order, with any value, by name and by position", async () => {
    const values = [1, 0, "", false, null, { a: 1 }, [2]];
    const reports = await reported({}, ({ feed }) => {
      for (const value of values) feed(report(1, value));
      for (const value of values) feed(notification("$/progress", [1, value]));
      feed(notification("$/progress", { token: 1 }));
    });
    expect(reports).toEqual([...values, ...values, undefined]);
  });

  it.each<[string, unknown]>([
    ["the token as a string", { token: "1", value: 1 }],
    ["no params", undefined],
    ["an inherited token", JSON.parse('{"__proto__":{"token":1,"value":1}}')],
  ])("with %s goes to the `notification` event, or to a registered handler", async (_name, params) => {
    const events: unknown[] = [];
    const handled: unknown[] = [];
    for (const methods of [{}, { "$/progress": (given: unknown) => void handled.push(given) }]) {
      const reports = await reported({ methods }, (raw) => {
        raw.peer.on("notification", (...event) => events.push(event));
        raw.feed(notification("$/progress", params));
      });
      expect(reports).toEqual([]);
    }
    expect([events, handled]).toEqual([[["$/progress", params]], [params]]);
  });

  it("with a known token reaches onProgress, and neither a registered handler nor the event", async () => {
    const handled: unknown[] = [];
    const reports = await reported({ methods: { "$/progress": (given) => void handled.push(given) } }, (raw) => {
      raw.peer.on("notification", () => handled.push("event"));
      raw.feed(report(1, 5));
    });
    expect([reports, handled]).toEqual([[5], []]);
  });

  it("of a call that was answered is dropped and counted, also beside the answer in a batch", async () => {
    const got: unknown[] = [];
    const note = (...args: unknown[]): void => void got.push(args);
    const raw = reciprocPeer({ methods: { "$/progress": note } });
    raw.peer.on("notification", note);
    const call = raw.peer.request("m", {}, { onProgress: note });
    raw.feed([report(1, "before"), result(1, 1), report(1, "after")]);
    await call;
    raw.feed(report(1, "late"));
    expect([got, raw.errors, raw.peer.stats().unmatched]).toEqual([[["before"]], [], 2]);
    expectEmpty(raw.peer);
  });

  it("with a token that another program has chosen reaches the application, also if it equals an id of this side", async () => {
    vi.mocked(Math.random).mockReturnValue(0.5);
    const got: unknown[] = [];
    const raw = reciprocPeer();
    raw.peer.on("notification", (_method, params) => got.push(params));
    const calls = [1, 2, 3].map(async () => raw.peer.request("m", {}, { onProgress }));
    const tokens = raw.messages().map(({ params }) => params.workDoneToken);
    expect(tokens).toEqual([1, 2, 3].map((n) => 2 ** 29 + n));
    for (const id of [1, 2, 3]) raw.feed(result(id, null));
    await Promise.all(calls);
    const begun = [1, 2, 3, 4, tokens[0] - 1, tokens[2] + 1, String(tokens[0])];
    for (const token of [...begun, ...tokens]) raw.feed(report(token, "begin"));
    expect(got).toEqual(begun.map((token) => ({ token, value: "begin" })));
    expect(raw.peer.stats().unmatched).toBe(3);
  });

  it("for which onProgress throws emits `error`, and affects neither the call nor later reports", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const failing = (value: unknown): unknown => {
      reports.push(value);
      if (value === 1) throw new Error("thrown");
      return value === 2 ? Promise.reject(new Error("rejected")) : undefined;
    };
    const call = raw.peer.request("m", {}, { onProgress: failing as never });
    for (const value of [1, 2, 3]) raw.feed(report(1, value));
    raw.feed(result(1, "done"));
    expect(await call).toBe("done");
    await turn();
    expect([reports, raw.errors]).toEqual([
      [1, 2, 3],
      [new Error("thrown"), new Error("rejected")],
    ]);
  });
});

type Report = (value: unknown) => void;

const LONGEST = "t".repeat(1024);

const reporting = (values: unknown[], options: AnyOptions = {}): RawPeer =>
  rawPeer({ ...options, methods: { m: (_params, { progress }) => (values.forEach(progress), "done") } });

describe("a handler's progress", () => {
  it.each<[string, object, object[]]>([
    ["nothing for another dialect's token", request(1, "m", { _meta: { progressToken: 1 } }), [result(1, "done")]],
    // Each report would repeat it.
    ["nothing for a longer token", request(1, "m", { workDoneToken: `${LONGEST}t` }), [result(1, "done")]],
    ["nothing for a notification, which cannot request reports", notification("m", { workDoneToken: "t" }), []],
    ["null for undefined", request(1, "m", { workDoneToken: LONGEST }), [report(LONGEST, null), result(1, "done")]],
  ])("sends %s", (_name, message, sent) => {
    // A value without a JSON form is no error if no reports were requested.
    const raw = reporting(sent.length === 2 ? [undefined] : [1, 5n]);
    raw.feed(message);
    expect(raw.messages()).toEqual(sent);
  });

  it("sends nothing after the answer, nor after an error, nor after a cancel, nor after the end", async () => {
    const open = gate();
    const late: Report[] = [];
    const raw = rawPeer({
      methods: {
        answers: (_params, { progress }) => void late.push(progress),
        fails: (_params, { progress }) => {
          late.push(progress);
          throw new RpcError(1, "no");
        },
        waits: (_params, { progress }) => (late.push(progress), open.promise),
      },
    });
    for (const [id, method] of ["answers", "fails", "waits", "waits"].entries())
      raw.feed(request(id, method, { workDoneToken: id }));
    raw.feed(cancel(2));
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

  it.each<[string, (peer: AnyPeer) => unknown]>([
    ["a stream", (peer) => ({ stream: peer.offer([1]) })],
    ["a value without a JSON form", () => new Map()],
  ])("throws in the handler for %s, and sends nothing", (_name, make) => {
    const m = (_params: unknown, { progress, peer }: Context): void => {
      expect(() => progress(make(peer))).toThrow(TypeError);
    };
    const raw = rawPeer({ methods: { m } });
    raw.feed(request(1, "m", { workDoneToken: "t" }));
    expect([raw.messages(), raw.errors]).toEqual([[result(1, null)], []]);
  });

  it("uses the token of the received params, even if `around` or a schema changed them", async () => {
    const raw = reporting([1], {
      around: (call, next) => ((call.params = []), next()),
      schemas: { m: { "~standard": { validate: () => ({ value: "checked" }) } } },
    });
    raw.feed(request(1, "m", { workDoneToken: "t" }));
    await turn();
    expect(raw.messages()).toEqual([report("t", 1), result(1, "done")]);
  });
});

function calling(options: object): { raw: RawPeer; call: Promise<unknown>; outcomes: Outcomes } {
  const raw = reciprocPeer();
  const call = raw.peer.request("m", {}, { resetTimeoutOnProgress: true, ...options, onProgress });
  return { raw, call, outcomes: new Outcomes().watch("call", call) };
}

it("resetTimeoutOnProgress is off by default", async () => {
  const { raw, outcomes } = calling({ timeoutMs: 100, resetTimeoutOnProgress: undefined });
  await pass(99);
  raw.feed(report(1, null));
  await pass(1);
  expect(outcomes.names).toEqual(["call"]);
});

it("resetTimeoutOnProgress is limited by maxTotalTimeoutMs, to the millisecond", async () => {
  const { raw, call, outcomes } = calling({ timeoutMs: 100, maxTotalTimeoutMs: 250 });
  for (const ms of [90, 90, 69]) {
    await pass(ms);
    raw.feed(report(1, null));
  }
  expect(outcomes.list).toEqual([]);
  await pass(1);
  expect(await rejection(call)).toMatchObject({ name: "TimeoutError", timeoutMs: 250 });
  expect(raw.messages()[1]).toEqual(cancel(1));
  expectEmpty(raw.peer);
});
