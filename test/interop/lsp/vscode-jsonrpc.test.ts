/** Proves that vscode-jsonrpc over vscode-ws-jsonrpc and a reciproc peer support all features in both directions. */
import { describe, expect, it } from "vitest";
import {
  CancellationTokenSource,
  ProgressType,
  RequestType,
  RequestType0,
  ResponseError,
  Trace,
  type CancellationToken,
} from "vscode-jsonrpc";
import { gate, rejection, turn } from "../../support/turns.js";
import { behavesWithSdk, type Methods, type Traits } from "../support/sdk.js";
import { joinClient, joinServer, type Join } from "./joined.js";

/** Returns a signal that aborts with a token. A token that was cancelled before its handler began never fires its event. */
function signalOf(token: CancellationToken): AbortSignal {
  const controller = new AbortController();
  if (token.isCancellationRequested) controller.abort();
  token.onCancellationRequested(() => controller.abort());
  return controller.signal;
}

/** Returns a token that is cancelled with a signal. */
function tokenOf(signal: AbortSignal | undefined): CancellationToken {
  const source = new CancellationTokenSource();
  signal?.addEventListener("abort", () => source.cancel());
  return source.token;
}

/** Returns how the shared suite opens both ends. */
function opening(join: Join): Traits["open"] {
  return async (methods, handlers, heard) => {
    const both = await join(methods);
    const { theirs, wire } = both;
    for (const [name, run] of Object.entries(handlers)) {
      theirs.onRequest(name, async (params: unknown, token: CancellationToken) => {
        try {
          return await run(params, signalOf(token));
        } catch (error) {
          return (error as Error).name === "AbortError" ? new ResponseError(-32800, "stopped") : Promise.reject(error);
        }
      });
    }
    theirs.onNotification("_note", heard);
    return {
      ...both,
      request: (method, params, signal) => theirs.sendRequest(method, params, tokenOf(signal)),
      notify: (method, params) => theirs.sendNotification(method, params),
      close: () => wire.close(),
    };
  };
}

const echo: Methods = { echo: (params) => params ?? "no params" };

describe.each<[string, Join]>([
  ["their client and our server", joinClient],
  ["our client and their server", joinServer],
])("vscode-jsonrpc: %s", (_name, join) => {
  behavesWithSdk({
    open: opening(join),
    firstId: 0,
    cancel: (id) => ({ method: "$/cancelRequest", params: { id } }),
    cancelled: -32800,
    error: (code, message, data) => new ResponseError(code, message, data),
    closed: { code: -32097 },
  });

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

  it("turns the result undefined into null, in both directions", async () => {
    await using both = await join({ get: () => undefined });
    both.theirs.onRequest("get", () => undefined);
    expect(await both.theirs.sendRequest("get")).toBe(null);
    expect(await both.peer.request("get")).toBe(null);
  });

  it("reveals the message of an error that its handler throws", async () => {
    await using both = await join();
    both.theirs.onRequest("fail", () => Promise.reject(new Error("disk full")));
    expect(await rejection(both.peer.request("fail"))).toMatchObject({
      code: -32603,
      message: expect.stringContaining("disk full"),
    });
  });

  it("reports a notification without a handler by its receiver, in both directions", async () => {
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
  });

  it("gets the result of a handler that ignores its cancel", async () => {
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

  it("gives its handler a cancelled token, whose event never fires, if the handler had not begun", async () => {
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

  describe("limitations of vscode-jsonrpc", () => {
    it("reports a close with any code but 1000 as an error before the close", async () => {
      const reported: string[] = [];
      const closed = gate();
      await using both = await join();
      both.theirs.onError(([error]) => reported.push(error.message));
      both.theirs.onClose(() => {
        reported.push("closed");
        closed.resolve();
      });
      await both.peer.close(4000, "moved");
      await closed.promise;
      expect(reported).toEqual([expect.stringContaining("code = 4000, reason = moved"), "closed"]);
    });

    it("reports a batch as an error and never answers it, but answers later messages", async () => {
      await using both = await join();
      const batch = both.peer.batch();
      const never = rejection(batch.request("sync"));
      batch.send();
      expect(await both.peer.request("sync")).toBe(true);
      expect(both.takeComplaints()).toEqual([expect.stringContaining("neither a response nor a notification")]);
      expect(both.peer.stats().pending).toBe(1);
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
