/** Proves that vscode-jsonrpc over vscode-ws-jsonrpc and a reciproc peer support all features in both directions. */
import { describe, expect, it } from "vitest";
import { CancellationTokenSource, ProgressType, RequestType, RequestType0, ResponseError, Trace } from "vscode-jsonrpc";
import type { CancellationToken, Logger, MessageConnection } from "vscode-jsonrpc";
import { createWebSocketConnection, listen, toSocket } from "vscode-ws-jsonrpc";
import { lsp } from "../../../src/node.js";
import { rejection, turn } from "../../support/turns.js";
import { behavesWithSdk, joinClient, joinServer, type Joined, type Methods, type Traits } from "../support/sdk.js";

/** Joins a vscode-jsonrpc connection with a reciproc peer that serves these methods, and `sync`, as the other side does. */
type Join = (methods?: Methods) => Promise<Joined<MessageConnection>>;

const sync = (): boolean => true;

function start(theirs: MessageConnection): MessageConnection {
  theirs.onRequest("sync", sync);
  theirs.listen();
  return theirs;
}

function loggerOf(complaints: string[]): Logger {
  const note = (message: string): void => void complaints.push(message);
  return { error: note, warn: note, info: () => {}, log: () => {} };
}

const joinTheirClient: Join = (methods) => {
  const complaints: string[] = [];
  const open = async (url: string, Wire: new (address: string) => unknown): Promise<MessageConnection> => {
    const options = { webSocket: new Wire(url) as never, logger: loggerOf(complaints) };
    return start(await new Promise((resolve) => listen({ ...options, onConnection: resolve })));
  };
  return joinClient(lsp, { sync, ...methods }, complaints, open);
};

const joinTheirServer: Join = (methods) => {
  const complaints: string[] = [];
  return joinServer({ link: "plain", dialect: lsp, methods: { sync, ...methods } }, complaints, (wire) =>
    start(createWebSocketConnection(toSocket(wire as never), loggerOf(complaints))),
  );
};

async function settled({ peer, theirs }: Joined<MessageConnection>): Promise<void> {
  await theirs.sendRequest("sync");
  await peer.request("sync");
}

/** Returns a signal that aborts with a token. A token that was cancelled before its handler began never fires its event. */
function signalOf(token: CancellationToken): AbortSignal {
  const controller = new AbortController();
  if (token.isCancellationRequested) controller.abort();
  token.onCancellationRequested(() => controller.abort());
  return controller.signal;
}

function tokenOf(signal: AbortSignal | undefined): CancellationToken {
  const source = new CancellationTokenSource();
  signal?.addEventListener("abort", () => source.cancel());
  return source.token;
}

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

const PROGRESS = [{ kind: "begin" }, 0, null, { kind: "end" }];
const PROGRESS_TYPE = new ProgressType<unknown>();

describe.each<[string, Join]>([
  ["their client and our server", joinTheirClient],
  ["our client and their server", joinTheirServer],
])("vscode-jsonrpc: %s", (_name, join) => {
  behavesWithSdk({
    open: opening(join),
    firstId: 0,
    cancel: (id) => ({ method: "$/cancelRequest", params: { id } }),
    cancelled: -32800,
    error: (code, message, data) => new ResponseError(code, message, data),
    closed: { code: -32097 },
  });

  it("sends params that arrive unchanged: by position, by name, a single value inside an array, absent ones as absent", async () => {
    await using both = await join({ echo: (params) => params ?? "no params" });
    const { theirs } = both;
    expect(await theirs.sendRequest("echo", 1, "two", null)).toEqual([1, "two", null]);
    expect(await theirs.sendRequest("echo", { a: 1 })).toEqual({ a: 1 });
    expect(await theirs.sendRequest("echo", [1, 2])).toEqual([[1, 2]]);
    expect(await theirs.sendRequest("echo", null)).toEqual([null]);
    expect(await theirs.sendRequest("echo")).toBe("no params");
    expect(await theirs.sendRequest(new RequestType0<string, void>("echo"))).toBe("no params");
  });

  it("gets params as its handlers expect them, and refuses others with -32602", async () => {
    await using both = await join();
    const { peer, theirs } = both;
    theirs.onRequest("echo", (...args: unknown[]) => args.slice(0, -1));
    expect(await peer.request("echo", [1, "two", null])).toEqual([1, "two", null]);
    expect(await peer.request("echo", { a: 1 })).toEqual([{ a: 1 }]);
    expect(await peer.request("echo", [[1, 2]])).toEqual([[1, 2]]);
    expect(await peer.request("echo")).toEqual([]);
    theirs.onRequest(new RequestType<object, string, void>("typed"), () => "never");
    expect(await rejection(peer.request("typed"))).toMatchObject({ code: -32602 });
  });

  it("reveals the message of an error that its handler throws, and sets the trace by $/setTrace, which reaches a handler", async () => {
    const values: unknown[] = [];
    await using both = await join({ "$/setTrace": ({ value }) => void values.push(value) });
    both.theirs.onRequest("fail", () => Promise.reject(new Error("disk full")));
    const message = expect.stringContaining("disk full");
    expect(await rejection(both.peer.request("fail"))).toMatchObject({ code: -32603, message });
    await both.theirs.trace(Trace.Verbose, { log: () => {} }, { sendNotification: true });
    await settled(both);
    expect(values).toEqual(["verbose"]);
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
    await settled(both);
    expect(fired).toEqual(["cancelled"]);
  });

  it.each([
    ["workDoneToken", 0],
    ["partialResultToken", "part-1"],
  ])("gets progress of reciproc that it asked for by %s %j, before the result", async (name, token) => {
    await using both = await join({
      build: (_params, { progress }) => {
        for (const value of PROGRESS) progress(value);
        return "built";
      },
    });
    const heard: unknown[] = [];
    both.theirs.onProgress(PROGRESS_TYPE, token, (value) => void heard.push(value));
    heard.push(await both.theirs.sendRequest("build", { [name]: token }));
    expect(heard).toEqual([...PROGRESS, "built"]);
  });

  it("sends progress that reaches `onProgress`, before the result and not after", async () => {
    await using both = await join();
    const { peer, theirs } = both;
    theirs.onRequest("build", async ({ workDoneToken }: { workDoneToken: number }) => {
      for (const value of PROGRESS) await theirs.sendProgress(PROGRESS_TYPE, workDoneToken, value);
      setImmediate(() => void theirs.sendProgress(PROGRESS_TYPE, workDoneToken, "too late"));
      return "built";
    });
    const heard: unknown[] = [];
    heard.push(await peer.request("build", { file: "a" }, { onProgress: (value) => void heard.push(value) }));
    await turn();
    await settled(both);
    expect(heard).toEqual([...PROGRESS, "built"]);
  });

  describe("limitations of vscode-jsonrpc", () => {
    it("reports a close with any code but 1000 as an error before the close", async () => {
      const reported: string[] = [];
      await using both = await join();
      both.theirs.onError(([error]) => reported.push(error.message));
      const closed = new Promise<void>((resolve) => both.theirs.onClose(resolve));
      void closed.then(() => reported.push("closed"));
      await both.peer.close(4000, "moved");
      await closed;
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
