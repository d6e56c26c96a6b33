/** Progress reports: how they are requested, their messages, and their delivery. */
import { describe, expect, it, vi } from "vitest";
import { acp, lsp, mcp, type Dialect } from "../../src/index.js";
import { inspect } from "../../src/peer/peer.js";
import { useNoChance } from "../support/chance.js";
import { pass, useFakeClock } from "../support/clock.js";
import { expectEmpty } from "../support/pair.js";
import { failure, notification, rawPeer, request, result, type RawPeer } from "../support/raw.js";
import { rejection, turn } from "../support/turns.js";

useFakeClock();

useNoChance();

const report = (token: unknown, value: unknown): object => notification("$/progress", { token, value });
const mcpReport = (params: object): object => notification("notifications/progress", params);

/** Returns a peer whose other side is a reciproc peer, so that reports are requested. */
const reciprocPeer = (options: Parameters<typeof rawPeer>[0] = {}): RawPeer => rawPeer(options, { isReciproc: true });

describe("asking for reports", () => {
  it.each<[string, Dialect, object | undefined, object]>([
    ["absent params, lsp", lsp, undefined, { workDoneToken: 1 }],
    ["params by name, lsp", lsp, { a: 1 }, { a: 1, workDoneToken: 1 }],
    ["absent params, mcp", mcp, undefined, { _meta: { progressToken: 1 } }],
    ["params with a _meta, mcp", mcp, { a: 1, _meta: { b: 2 } }, { a: 1, _meta: { b: 2, progressToken: 1 } }],
    ["params by name, acp", acp, { a: 1 }, { a: 1, _meta: { "reciproc/progress": 1 } }],
    ["a token of the user's own, lsp", lsp, { workDoneToken: "mine" }, { workDoneToken: "mine" }],
    ["another of the user's own, lsp", lsp, { partialResultToken: 0 }, { partialResultToken: 0 }],
    ["one of the user's own, mcp", mcp, { _meta: { progressToken: "" } }, { _meta: { progressToken: "" } }],
  ])("puts a token into %s, and leaves the caller's object alone", async (_name, dialect, params, asked) => {
    const raw = rawPeer({ dialect });
    const before = JSON.stringify(params);
    const call = raw.peer.request("m", params, { onProgress: () => {} });
    expect(raw.messages()).toEqual([request(1, "m", asked)]);
    expect(JSON.stringify(params)).toBe(before);
    raw.feed(result(1, null));
    await call;
    expectEmpty(raw.peer);
  });

  it("puts the token into the result of the params' own toJSON", async () => {
    const raw = reciprocPeer();
    const params = { toJSON: () => ({ a: 1 }) };
    const call = raw.peer.request("m", params, { onProgress: () => {} });
    expect(raw.messages()).toEqual([request(1, "m", { a: 1, workDoneToken: 1 })]);
    raw.feed(result(1, null));
    await call;
  });

  it.each<[string, unknown, string]>([
    ["an array", [1], "an array"],
    ["null", null, "`null`"],
    ["a number", 5, "`5` (number)"],
    ["a date", new Date(0), "an object"],
  ])("is refused in %s, and nothing is sent", async (_name, params, shown) => {
    const raw = reciprocPeer();
    const error = await rejection(raw.peer.request("m", params, { onProgress: () => {} }));
    expect(error).toBeInstanceOf(TypeError);
    expect(error.message).toBe(`Expected \`params\` to be an object or absent with \`onProgress\`, got ${shown}`);
    expect(raw.sent).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("by a token in the user's own params works on a plain link too, where nothing is added", async () => {
    const raw = rawPeer();
    const reports: unknown[] = [];
    const onProgress = (value: unknown): void => void reports.push(value);
    const call = raw.peer.request("m", { workDoneToken: "mine" }, { onProgress });
    expect(raw.messages()).toEqual([request(1, "m", { workDoneToken: "mine" })]);
    raw.feed(report("mine", 1));
    raw.feed(result(1, null));
    await call;
    expect(reports).toEqual([1]);
    expectEmpty(raw.peer);
  });

  it("is refused for the token of a pending call, until that is settled", async () => {
    const raw = reciprocPeer();
    const options = { onProgress: () => {} };
    const first = raw.peer.request("m", { workDoneToken: "t" }, options);
    const error = await rejection(raw.peer.request("m", { workDoneToken: "t" }, options));
    expect(error.message).toBe('a call with the progress token "t" waits already');
    expect(raw.sent).toHaveLength(1);
    expect(inspect(raw.peer)).toMatchObject({ pending: 1, progress: 1 });
    raw.feed(result(1, null));
    await first;
    const again = raw.peer.request("m", { workDoneToken: "t" }, options);
    raw.feed(result(3, null));
    await again;
    expectEmpty(raw.peer);
  });

  it("never confuses a call's id with an equal token of another call", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const note =
      (name: string) =>
      (value: unknown): void =>
        void reports.push([name, value]);
    const calls = [
      raw.peer.request("m", { workDoneToken: 2 }, { onProgress: note("own token") }),
      raw.peer.request("m", {}, { onProgress: note("second") }),
    ];
    const [own, second] = raw.messages().map(({ params }) => params.workDoneToken);
    expect(own).toBe(2);
    expect(second).not.toBe(2);
    raw.feed(report(own, 1));
    raw.feed(report(second, 2));
    expect(reports).toEqual([
      ["own token", 1],
      ["second", 2],
    ]);
    // An id that is already a token cannot be chosen either.
    const error = await rejection(raw.peer.request("m", { workDoneToken: second }, { onProgress: note("third") }));
    expect(error.message).toContain("waits already");
    for (const id of [1, 2]) raw.feed(result(id, null));
    await Promise.all(calls);
    expectEmpty(raw.peer);
  });

  it("does not use the call's id as a token beside the user's own", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const call = raw.peer.request("m", { workDoneToken: "t" }, { onProgress: (value) => reports.push(value) });
    raw.feed(report(1, "by its id"));
    raw.feed(report("t", "by its token"));
    raw.feed(result(1, null));
    await call;
    expect(reports).toEqual(["by its token"]);
  });

  it("refuses an onProgress that is not a function", async () => {
    const raw = reciprocPeer();
    for (const onProgress of [5, 0, null]) {
      const error = await rejection(raw.peer.request("m", {}, { onProgress: onProgress as never }));
      expect(error.message).toMatch("Expected `onProgress` to be a function, got `" + String(onProgress));
    }
    expect(raw.sent).toEqual([]);
  });
});

async function reported(options: Parameters<typeof rawPeer>[0], send: (raw: RawPeer) => void): Promise<unknown[]> {
  const raw = reciprocPeer(options);
  const reports: unknown[] = [];
  const call = raw.peer.request("m", {}, { onProgress: (value) => reports.push(value) });
  send(raw);
  raw.feed(result(1, "done"));
  expect(await call).toBe("done");
  expectEmpty(raw.peer);
  return reports;
}

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

  it("reaches it under mcp without the token", async () => {
    const reports = await reported({ dialect: mcp }, ({ feed }) => {
      feed(mcpReport({ progressToken: 1, progress: 0.5, total: 1, message: "half" }));
      feed(mcpReport({ progressToken: 1, progress: 1 }));
    });
    expect(reports).toEqual([{ progress: 0.5, total: 1, message: "half" }, { progress: 1 }]);
  });

  it("reaches it inside a batch, but never after the result beside it", async () => {
    const reports = await reported({}, ({ feed }) =>
      feed([report(1, "before"), result(1, "done"), report(1, "after")]),
    );
    expect(reports).toEqual(["before"]);
  });

  it.each<[string, unknown]>([
    ["another token", { token: 2, value: 1 }],
    ["the token as a string", { token: "1", value: 1 }],
    ["a token that is none", { token: {}, value: 1 }],
    ["a token that is null", { token: null, value: 1 }],
    ["no token", { value: 1 }],
    ["no params", undefined],
    ["no members", []],
    ["an inherited token", JSON.parse('{"__proto__":{"token":1,"value":1}}')],
  ])("with %s goes to the `notification` event, or to a registered handler", async (_name, params) => {
    const events: unknown[] = [];
    const none = await reported({}, (raw) => {
      raw.peer.on("notification", (...event) => events.push(event));
      raw.feed(notification("$/progress", params));
    });
    const handled: unknown[] = [];
    const none2 = await reported({ methods: { "$/progress": (given) => void handled.push(given) } }, (raw) => {
      raw.peer.on("notification", (...event) => events.push(event));
      raw.feed(notification("$/progress", params));
    });
    expect([none, none2]).toEqual([[], []]);
    expect(events).toEqual([["$/progress", params]]);
    expect(handled).toEqual([params]);
  });

  it("with a known token reaches onProgress, and neither a registered handler nor the event", async () => {
    const handled: unknown[] = [];
    const reports = await reported({ methods: { "$/progress": (given) => void handled.push(given) } }, (raw) => {
      raw.peer.on("notification", () => handled.push("event"));
      raw.feed(report(1, 5));
    });
    expect(reports).toEqual([5]);
    expect(handled).toEqual([]);
  });

  it.each<[string, object, (raw: RawPeer, controller: AbortController) => unknown]>([
    ["was answered", {}, (raw) => raw.feed(result(1, 1))],
    ["was answered with an error", {}, (raw) => raw.feed(failure(1, 5, "no"))],
    ["was aborted", {}, (_raw, controller) => controller.abort()],
    ["has timed out", { timeoutMs: 1_000 }, () => pass(1_000)],
  ])("of a call that %s is dropped and counted", async (_name, options, settle) => {
    const got: unknown[] = [];
    const raw = reciprocPeer({ methods: { "$/progress": (given) => void got.push(given) } });
    raw.peer.on("notification", (...event) => got.push(event));
    const controller = new AbortController();
    const call = raw.peer.request(
      "m",
      {},
      { onProgress: (value) => got.push(value), signal: controller.signal, ...options },
    );
    const settled = Promise.allSettled([call]);
    await settle(raw, controller);
    await settled;
    raw.feed(report(1, "late"));
    raw.feed([report(1, "late in a batch")]);
    expect([got, raw.errors, raw.peer.stats().unmatched]).toEqual([[], [], 2]);
    expectEmpty(raw.peer);
  });

  it("with a token that another program has chosen reaches the application, also if it equals an id of this side", async () => {
    vi.mocked(Math.random).mockReturnValue(0.5);
    const got: unknown[] = [];
    const raw = reciprocPeer();
    raw.peer.on("notification", (_method, params) => got.push(params));
    const calls = [1, 2, 3].map(async () => raw.peer.request("m", {}, { onProgress: () => {} }));
    const tokens = raw.messages().map(({ params }) => params.workDoneToken);
    expect(tokens).toEqual([1, 2, 3].map((n) => 2 ** 29 + n));
    for (const id of [1, 2, 3]) raw.feed(result(id, null));
    await Promise.all(calls);
    const begun = [1, 2, 3, 4, tokens[0] - 1, tokens[2] + 1, String(tokens[0])];
    for (const token of [...begun, ...tokens]) raw.feed(report(token, "begin"));
    expect(got).toEqual(begun.map((token) => ({ token, value: "begin" })));
    expect(raw.peer.stats().unmatched).toBe(3);
  });

  it("is ignored after a result, an error, an abort, and the end", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const onProgress = (value: unknown): void => void reports.push(value);
    const controller = new AbortController();
    const calls = [
      raw.peer.request("m", {}, { onProgress }),
      raw.peer.request("m", {}, { onProgress }),
      raw.peer.request("m", {}, { onProgress, signal: controller.signal }),
      raw.peer.request("m", {}, { onProgress }),
    ];
    const settled = Promise.allSettled(calls);
    raw.feed(result(1, 1));
    raw.feed(failure(2, 5, "no"));
    controller.abort("x");
    for (const token of [1, 2, 3]) raw.feed(report(token, "late"));
    expect(inspect(raw.peer).progress).toBe(1);
    raw.cut();
    raw.feed(report(4, "late"));
    await settled;
    expect(reports).toEqual([]);
    expectEmpty(raw.peer);
  });

  it("for which onProgress throws emits `error`, and affects neither the call nor later reports", async () => {
    const raw = reciprocPeer();
    const reports: unknown[] = [];
    const onProgress = (value: unknown): unknown => {
      reports.push(value);
      if (value === 1) throw new Error("thrown");
      return value === 2 ? Promise.reject(new Error("rejected")) : undefined;
    };
    const call = raw.peer.request("m", {}, { onProgress: onProgress as never });
    for (const value of [1, 2, 3]) raw.feed(report(1, value));
    raw.feed(result(1, "done"));
    expect(await call).toBe("done");
    expect(reports).toEqual([1, 2, 3]);
    await turn();
    expect(raw.errors).toEqual([new Error("thrown"), new Error("rejected")]);
  });

  it("may make onProgress close the peer", async () => {
    const raw = reciprocPeer();
    const call = raw.peer.request("m", {}, { onProgress: () => void raw.peer.close() });
    raw.feed([report(1, 1), result(1, "unread")]);
    expect(await rejection(call)).toMatchObject({ code: "CONNECTION_LOST" });
    expectEmpty(raw.peer);
  });
});
