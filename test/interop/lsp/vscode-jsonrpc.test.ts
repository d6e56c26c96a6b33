/** Proves that vscode-jsonrpc over vscode-ws-jsonrpc and a reciproc peer support all features in both directions. */
import { describe, expect, it } from "vitest";
import {
  CancellationTokenSource,
  NotificationType0,
  ProgressType,
  RequestType,
  RequestType0,
  ResponseError,
  Trace,
  type CancellationToken,
} from "vscode-jsonrpc";
import { lsp, RpcError } from "../../../src/node.js";
import { inspect } from "../../../src/peer/peer.js";
import type { AnyOptions } from "../../support/pair.js";
import { gate, rejection, turn } from "../../support/turns.js";
import { theyDial, weDial, type Join } from "./joined.js";

type Methods = NonNullable<AnyOptions["methods"]>;

/** Resolves when a vscode-jsonrpc token is cancelled. A token cancelled before its handler began never fires its event. */
function cancelled(token: CancellationToken): Promise<void> {
  if (token.isCancellationRequested) return Promise.resolve();
  return new Promise((resolve) => void token.onCancellationRequested(() => resolve()));
}

const echo: Methods = { echo: (params) => params ?? "no params" };

describe.each<[string, Join]>([
  ["their client and our server", theyDial],
  ["our client and their server", weDial],
])("vscode-jsonrpc: %s", (_name, dial) => {
  const join = (methods: Methods = {}, options: AnyOptions = {}): ReturnType<Join> =>
    dial({ dialect: lsp, methods: { sync: () => true, ...methods }, ...options });

  describe("params", () => {
    it("of vscode-jsonrpc arrive unchanged: by position, by name, a single array inside another, absent ones as absent", async () => {
      await using both = await join(echo);
      const { theirs, wire } = both;
      expect(await theirs.sendRequest("echo", 1, "two", null)).toEqual([1, "two", null]);
      expect(await theirs.sendRequest("echo", { a: 1 })).toEqual({ a: 1 });
      expect(await theirs.sendRequest("echo", [1, 2])).toEqual([[1, 2]]);
      expect(await theirs.sendRequest("echo", null)).toEqual([null]);
      expect(await theirs.sendRequest("echo")).toBe("no params");
      expect(await theirs.sendRequest(new RequestType0<string, void>("echo"))).toBe("no params");
      expect(wire.sent.map(({ id }) => id)).toEqual([0, 1, 2, 3, 4, 5]);
      expect(wire.sent[5]).toEqual({ jsonrpc: "2.0", id: 5, method: "echo" });
    });

    it("of reciproc arrive as vscode-jsonrpc expects them", async () => {
      await using both = await join();
      both.theirs.onRequest("echo", (...args: unknown[]) => args.slice(0, -1));
      const { peer } = both;
      expect(await peer.request("echo", [1, "two", null])).toEqual([1, "two", null]);
      expect(await peer.request("echo", { a: 1 })).toEqual([{ a: 1 }]);
      expect(await peer.request("echo", [[1, 2]])).toEqual([[1, 2]]);
      expect(await peer.request("echo")).toEqual([]);
      both.theirs.onRequest(new RequestType<object, string, void>("typed"), () => "never");
      expect(await rejection(peer.request("typed"))).toMatchObject({ code: -32602 });
    });
  });

  describe("a result", () => {
    it.each([[0], [""], [false], [null], [[]], [{}], ["ß\u2028\u0000"]])(
      "of %j is unchanged, in both directions",
      async (value) => {
        await using both = await join({ get: () => value });
        both.theirs.onRequest("get", () => value);
        expect(await both.theirs.sendRequest("get")).toEqual(value);
        expect(await both.peer.request("get")).toEqual(value);
      },
    );

    it("that is undefined arrives as null, in both directions", async () => {
      await using both = await join({ get: () => undefined });
      both.theirs.onRequest("get", () => undefined);
      expect(await both.theirs.sendRequest("get")).toBe(null);
      expect(await both.peer.request("get")).toBe(null);
    });

    it("may be long, in both directions", async () => {
      const text = "long ".repeat(100_000);
      await using both = await join(echo);
      both.theirs.onRequest("echo", (given: string) => [given]);
      expect(await both.theirs.sendRequest("echo", text)).toEqual([text]);
      expect(await both.peer.request("echo", [text])).toEqual([text]);
    });
  });

  describe("an error", () => {
    it("keeps its code, its message and its data, in both directions", async () => {
      const data = { retry: false };
      await using both = await join({
        fail: () => {
          throw new RpcError(-32803, "no such symbol", data);
        },
      });
      both.theirs.onRequest("fail", () => new ResponseError(-32803, "no such symbol", data));
      const atThem = await rejection(both.theirs.sendRequest("fail"));
      expect(atThem).toBeInstanceOf(ResponseError);
      expect(atThem).toMatchObject({ code: -32803, message: "no such symbol", data });
      const atUs = await rejection(both.peer.request("fail"));
      expect(atUs).toBeInstanceOf(RpcError);
      expect(atUs).toMatchObject({ code: -32803, message: "no such symbol", data, method: "fail" });
    });

    it("of any other kind is -32603, and reciproc sends no details of it", async () => {
      await using both = await join({
        fail: () => {
          throw new Error("the password is hunter2");
        },
      });
      both.theirs.onRequest("fail", () => Promise.reject(new Error("disk full")));
      expect(await rejection(both.theirs.sendRequest("fail"))).toMatchObject({
        code: -32603,
        message: "Internal error",
      });
      expect(both.takeErrors()).toMatchObject([{ message: "the password is hunter2" }]);
      expect(await rejection(both.peer.request("fail"))).toMatchObject({
        code: -32603,
        message: expect.stringContaining("disk full"),
      });
    });
  });

  describe("a notification", () => {
    it("arrives with its params, in both directions, in order, and is not answered", async () => {
      const ours: unknown[] = [];
      const at: unknown[] = [];
      await using both = await join({ told: (params) => void ours.push(params) });
      both.theirs.onNotification("told", (...args: unknown[]) => void at.push(args));
      const { peer, theirs, wire } = both;
      await theirs.sendNotification("told", 1, 2);
      await theirs.sendNotification("told", { a: 1 });
      await theirs.sendNotification(new NotificationType0("told"));
      for (const params of [[1, 2], { a: 1 }, undefined]) peer.notify("told", params);
      await both.settled();
      expect(ours).toEqual([[1, 2], { a: 1 }, undefined]);
      expect(at).toEqual([[1, 2], [{ a: 1 }], []]);
      // One answer each way: to the `sync` of `settled`.
      expect(wire.received.filter((message) => !("method" in message))).toHaveLength(1);
      expect(wire.sent.filter((message) => !("method" in message))).toHaveLength(1);
    });

    it("without a handler is reported by its receiver, in both directions", async () => {
      await using both = await join();
      const [ours, at]: unknown[][] = [[], []];
      both.peer.on("notification", (...args) => ours!.push(args));
      both.theirs.onUnhandledNotification(({ method, params }) => at!.push([method, params]));
      await both.theirs.sendNotification("stray", { a: 1 });
      both.peer.notify("stray", { a: 1 });
      await both.settled();
      expect(ours).toEqual([["stray", { a: 1 }]]);
      expect(at).toEqual([["stray", { a: 1 }]]);
    });
  });

  it("refuses an unknown method with -32601, in both directions", async () => {
    await using both = await join();
    expect(await rejection(both.theirs.sendRequest("nowhere"))).toMatchObject({ code: -32601 });
    expect(await rejection(both.peer.request("nowhere"))).toMatchObject({ code: -32601 });
  });

  describe("methods that begin with $/", () => {
    it("an unknown notification is ignored and an unknown request refused with -32601, in both directions", async () => {
      await using both = await join();
      await both.theirs.sendNotification("$/hint", { a: 1 });
      both.peer.notify("$/hint", { a: 1 });
      expect(await rejection(both.theirs.sendRequest("$/ask"))).toMatchObject({ code: -32601 });
      expect(await rejection(both.peer.request("$/ask"))).toMatchObject({ code: -32601 });
      expect(both.wire.sent).toHaveLength(3);
      expect(both.wire.received).toHaveLength(3);
    });

    it("$/setTrace reaches a handler, and without one the `notification` event", async () => {
      const values: unknown[] = [];
      await using both = await join();
      const { peer, theirs } = both;
      peer.on("notification", (method, params) => values.push([method, params]));
      const tracer = { log: () => {} };
      await theirs.trace(Trace.Verbose, tracer, { sendNotification: true });
      await both.settled();
      peer.handle("$/setTrace", ({ value }) => void values.push(value));
      await theirs.trace(Trace.Off, tracer, { sendNotification: true });
      await both.settled();
      expect(values).toEqual([["$/setTrace", { value: "verbose" }], "off"]);
    });

    it("$/logTrace of reciproc reaches the vscode-jsonrpc tracer", async () => {
      const lines: unknown[] = [];
      await using both = await join();
      const traced = { log: (...args: unknown[]) => void lines.push(args) };
      await both.theirs.trace(Trace.Verbose, traced as never);
      both.peer.notify("$/logTrace", { message: "looked it up", verbose: "twice" });
      await both.settled();
      expect(lines).toContainEqual(["looked it up", "twice"]);
    });
  });

  describe("a cancel of vscode-jsonrpc", () => {
    it("aborts the handler's signal, also for id 0, and its AbortError becomes the answer -32800", async () => {
      const started = gate();
      await using both = await join({
        wait: (_params, { signal }) => {
          started.resolve();
          return new Promise((_resolve, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
          });
        },
      });
      const source = new CancellationTokenSource();
      const answer = rejection(both.theirs.sendRequest("wait", source.token));
      await started.promise;
      source.cancel();
      expect(await answer).toMatchObject({ code: -32800 });
      expect(both.wire.sent[1]).toEqual({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 0 } });
    });

    it("does not change the result of a handler that ignores it", async () => {
      await using both = await join({
        partial: (_params, { signal }) =>
          new Promise((resolve) => {
            signal.addEventListener("abort", () => resolve("half of it"));
          }),
      });
      const source = new CancellationTokenSource();
      const answer = both.theirs.sendRequest("partial", source.token);
      source.cancel();
      expect(await answer).toBe("half of it");
    });

    it("of one call does not affect others, and is not sent after the answer", async () => {
      const signals: AbortSignal[] = [];
      const open = gate();
      await using both = await join({
        wait: async (_params, { signal }) => {
          signals.push(signal);
          await open.promise;
          return signal.aborted;
        },
      });
      const sources = [0, 1, 2].map(() => new CancellationTokenSource());
      const answers = sources.map(({ token }) => both.theirs.sendRequest("wait", token));
      sources[1]!.cancel();
      await both.settled();
      expect(signals.map(({ aborted }) => aborted)).toEqual([false, true, false]);
      open.resolve();
      expect(await Promise.all(answers)).toEqual([false, true, false]);
      for (const source of sources) source.cancel();
      await both.settled();
      expect(both.wire.sent.filter(({ method }) => method === "$/cancelRequest")).toHaveLength(1);
    });
  });

  describe("an abort of reciproc", () => {
    it("rejects at once with the reason, cancels the token, and ignores the late answer", async () => {
      const [started, told] = [gate(), gate()];
      await using both = await join();
      both.theirs.onRequest("wait", async (token: CancellationToken) => {
        started.resolve();
        await cancelled(token);
        told.resolve();
        return new ResponseError(-32800, "stopped");
      });
      const controller = new AbortController();
      const answer = rejection(both.peer.request("wait", undefined, { signal: controller.signal }));
      await started.promise;
      const reason = new Error("the user typed on");
      controller.abort(reason);
      expect(await answer).toBe(reason);
      await told.promise;
      await both.settled();
      expect(inspect(both.peer)).toMatchObject({ pending: 0, unmatched: 1 });
      expect(both.wire.received[1]).toEqual({ jsonrpc: "2.0", method: "$/cancelRequest", params: { id: 1 } });
    });

    it("before the handler started gives it a cancelled token, whose event never fires", async () => {
      const fired: string[] = [];
      await using both = await join();
      both.theirs.onRequest("wait", (token: CancellationToken) => {
        token.onCancellationRequested(() => fired.push("event"));
        fired.push(token.isCancellationRequested ? "cancelled" : "not yet");
      });
      const controller = new AbortController();
      const answer = rejection(both.peer.request("wait", undefined, { signal: controller.signal }));
      controller.abort("gone");
      expect(await answer).toBe("gone");
      await both.settled();
      expect(fired).toEqual(["cancelled"]);
    });

    it("may be a timeout", async () => {
      const told = gate();
      await using both = await join();
      both.theirs.onRequest("wait", async (token: CancellationToken) => {
        await cancelled(token);
        told.resolve();
      });
      expect(await rejection(both.peer.request("wait", undefined, { timeoutMs: 1 }))).toMatchObject({
        code: "TIMEOUT",
      });
      await told.promise;
      await both.settled();
    });

    it("sends nothing without a dialect, which a plain JSON-RPC peer may not understand", async () => {
      await using both = await join({}, { dialect: undefined });
      const open = gate();
      both.theirs.onRequest("wait", () => open.promise);
      const controller = new AbortController();
      const answer = rejection(both.peer.request("wait", undefined, { signal: controller.signal }));
      controller.abort("gone");
      expect(await answer).toBe("gone");
      open.resolve();
      await both.settled();
      expect(both.wire.received.filter(({ method }) => method !== undefined).map(({ method }) => method)).toEqual([
        "wait",
        "sync",
      ]);
    });
  });

  describe("progress", () => {
    const type = new ProgressType<unknown>();

    it.each([
      ["workDoneToken", 0],
      ["workDoneToken", "work-1"],
      ["partialResultToken", 7],
    ])("of reciproc reaches the caller that asked by %s %j, before the result", async (name, token) => {
      await using both = await join({
        build: (_params, { progress }) => {
          for (const value of [{ kind: "begin" }, 0, null, { kind: "end" }]) progress(value);
          return "built";
        },
      });
      const heard: unknown[] = [];
      both.theirs.onProgress(type, token, (value) => void heard.push(value));
      const answer = both.theirs.sendRequest("build", { [name]: token }).then((result) => heard.push(result));
      await answer;
      expect(heard).toEqual([{ kind: "begin" }, 0, null, { kind: "end" }, "built"]);
    });

    it("of reciproc is not sent to a caller that did not ask", async () => {
      await using both = await join({ build: (_params, { progress }) => progress(1) });
      await both.theirs.sendRequest("build", { file: "a" });
      expect(both.wire.received).toHaveLength(1);
    });

    it("of vscode-jsonrpc reaches `onProgress`, before the result and not after", async () => {
      await using both = await join();
      const { peer, theirs } = both;
      theirs.onRequest("build", async ({ workDoneToken, file }: { workDoneToken: number; file: string }) => {
        for (const value of [{ kind: "begin" }, 0, null]) await theirs.sendProgress(type, workDoneToken, value);
        setImmediate(() => void theirs.sendProgress(type, workDoneToken, "too late"));
        return file;
      });
      const heard: unknown[] = [];
      const onProgress = (value: unknown): void => void heard.push(value);
      heard.push(await peer.request("build", { file: "a" }, { onProgress }));
      await turn();
      await both.settled();
      expect(heard).toEqual([{ kind: "begin" }, 0, null, "a"]);
    });

    it("that belongs to no call reaches a handler of $/progress, and without one the `notification` event", async () => {
      const heard: unknown[] = [];
      await using both = await join({ "window/workDoneProgress/create": () => null });
      both.peer.on("notification", (...args) => heard.push(args));
      const at: unknown[] = [];
      both.theirs.onUnhandledProgress((params) => at.push(params));
      await both.theirs.sendRequest("window/workDoneProgress/create", { token: "index" });
      await both.theirs.sendProgress(type, "index", { kind: "begin", title: "Indexing" });
      await both.settled();
      both.peer.handle("$/progress", (params) => void heard.push(params));
      await both.theirs.sendProgress(type, "index", { kind: "end" });
      both.peer.notify("$/progress", { token: "index", value: { kind: "begin", title: "Indexing" } });
      await both.settled();
      const report = { token: "index", value: { kind: "begin", title: "Indexing" } };
      expect(heard).toEqual([["$/progress", report], { token: "index", value: { kind: "end" } }]);
      expect(at).toEqual([report]);
    });
  });

  describe("many calls", () => {
    it("in flight in both directions each get their own answer", async () => {
      const open = gate();
      await using both = await join({
        slow: async ([n]: [number]) => {
          if (n % 3 === 0) await open.promise;
          return -n;
        },
      });
      both.theirs.onRequest("slow", async (n: number) => {
        if (n % 3 === 0) await open.promise;
        return -n;
      });
      const numbers = Array.from({ length: 300 }, (_, i) => i);
      const theirs = numbers.map((n) => both.theirs.sendRequest<number>("slow", n));
      const ours = numbers.map((n) => both.peer.request("slow", [n]));
      await both.settled();
      open.resolve();
      // 0 has no negative in JSON.
      const expected = numbers.map((n) => (n === 0 ? 0 : -n));
      expect((await Promise.all(theirs)).map(Number)).toEqual(expected);
      expect((await Promise.all(ours)).map(Number)).toEqual(expected);
    });

    it("that call back during a call do not wait for each other", async () => {
      await using both = await join({
        down: ([n]: [number], { peer }) => (n === 0 ? ["bottom"] : peer.request("down", [n - 1])),
      });
      both.theirs.onRequest("down", async (n: number) => [n, ...(await both.theirs.sendRequest<unknown[]>("down", n))]);
      expect(await both.peer.request("down", [3])).toEqual([3, 2, 1, 0, "bottom"]);
    });
  });

  describe("closing", () => {
    it("by reciproc rejects the other side's pending calls, aborts reciproc's handlers, and is reported to the other side", async () => {
      const [started, closed] = [gate(), gate()];
      await using both = await join({
        wait: (_params, { signal }) => {
          started.resolve();
          return new Promise((_resolve, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
          });
        },
      });
      both.theirs.onClose(() => closed.resolve());
      const answer = rejection(both.theirs.sendRequest("wait"));
      await started.promise;
      await both.peer.close();
      await closed.promise;
      expect(await answer).toMatchObject({ code: -32097 });
      expect(inspect(both.peer).running).toBe(0);
    });

    it("by vscode-jsonrpc rejects reciproc's pending calls as unknown", async () => {
      const started = gate();
      await using both = await join();
      both.theirs.onRequest("wait", () => (started.resolve(), new Promise(() => {})));
      const answer = rejection(both.peer.request("wait"));
      await started.promise;
      both.wire.close();
      expect(await answer).toMatchObject({ code: "CONNECTION_LOST", outcome: "unknown" });
      expect(await rejection(both.peer.request("wait"))).toMatchObject({ outcome: "not-sent" });
      expect(await both.peer.closed).toMatchObject({ code: 1005 });
    });
  });

  describe("limitations of vscode-jsonrpc", () => {
    it("reports a close with any code but 1000 as an error before the close", async () => {
      const told: string[] = [];
      const closed = gate();
      await using both = await join();
      both.theirs.onError(([error]) => told.push(error.message));
      both.theirs.onClose(() => {
        told.push("closed");
        closed.resolve();
      });
      await both.peer.close(4000, "moved");
      await closed.promise;
      expect(told).toEqual([expect.stringContaining("code = 4000, reason = moved"), "closed"]);
    });

    it("reports a batch as an error and never answers it, but answers later messages", async () => {
      await using both = await join();
      const batch = both.peer.batch();
      const never = rejection(batch.request("sync"));
      batch.send();
      expect(await both.peer.request("sync")).toBe(true);
      expect(both.takeComplaints()).toEqual([expect.stringContaining("neither a response nor a notification")]);
      expect(inspect(both.peer).pending).toBe(1);
      await both.peer.close();
      expect(await never).toMatchObject({ outcome: "unknown" });
    });

    it("leaves the connection open after end() and dispose(), and answers nothing after dispose()", async () => {
      await using both = await join();
      both.theirs.end();
      expect(await both.peer.request("sync")).toBe(true);
      both.theirs.dispose();
      const answer = rejection(both.peer.request("sync"));
      await turn();
      expect(both.peer.state).toBe("open");
      both.wire.close();
      expect(await answer).toMatchObject({ outcome: "unknown" });
    });
  });
});
