/** A protocol's own SDK on one end of a WebSocket and a reciproc peer on the other, and the behaviour that all of them share. */
import { expect, it } from "vitest";
import { RpcError, type AnyPeer } from "../../../src/node.js";
import { expectEmpty, type AnyOptions } from "../../support/pair.js";
import { gate, rejection, turn } from "../../support/turns.js";
import type { TappedWebSocket } from "./tapped.js";

/** The methods of a reciproc peer. */
export type Methods = NonNullable<AnyOptions["methods"]>;

/** Both ends. Disposing closes them, and asserts that no state and no unread error is left. */
export interface Joined extends AsyncDisposable {
  readonly peer: AnyPeer;
  /** The SDK's end of the wire. */
  readonly wire: TappedWebSocket;
  /** The number of malformed messages that the peer must have received at the end. Initially 0. */
  malformed: number;
  /** Returns the `error` events of the peer since the last call. */
  takeErrors(): unknown[];
  /** Returns the errors that the SDK reported since the last call. */
  takeComplaints(): unknown[];
}

/** Joins a peer with an SDK. `complaints` receives the errors of the SDK, and `stop` ends what the peer does not close. */
export function joined(
  peer: AnyPeer,
  wire: TappedWebSocket,
  complaints: unknown[],
  stop: () => Promise<unknown>,
): Joined {
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  return {
    peer,
    wire,
    malformed: 0,
    takeErrors: () => errors.splice(0),
    takeComplaints: () => complaints.splice(0),
    async [Symbol.asyncDispose]() {
      await peer.close();
      await stop();
      await turn();
      expectEmpty(peer);
      expect(answersTo(null, wire.received)).toHaveLength(this.malformed);
      expect({ errors, complaints }).toEqual({ errors: [], complaints: [] });
    },
  };
}

/** Returns the answers to the request of this id. */
export function answersTo(id: unknown, messages: any[]): any[] {
  return messages.filter((message) => message.id === id && message.method === undefined);
}

/** Resolves when the signal is aborted, which it may be before its handler begins. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", resolve));
}

/** Both ends, with the SDK behind one interface. */
export interface Sdk extends Joined {
  /** Calls the peer. */
  request(method: string, params: object, signal?: AbortSignal): Promise<unknown>;
  notify(method: string, params: object): unknown;
  /** Ends the connection in the SDK's own way. */
  close(): unknown;
}

/** The methods that the SDK serves for the suite. */
export type Handlers = Record<string, (params: any, signal: AbortSignal) => unknown>;

/** The differences between SDKs, and between the ends of one. */
export interface Traits {
  /** Connects the ends. The SDK serves `handlers`, and passes the params of each notification `_note` to `heard`. */
  open(methods: Methods, handlers: Handlers, heard: (params: unknown) => void): Promise<Sdk>;
  /** The id of the SDK's first request in a test. */
  readonly firstId: number;
  /** The cancel of a call. */
  readonly cancel: (id: unknown) => { method: string; params: object };
  /** The code that answers a cancelled call, or undefined if no answer is sent. */
  readonly cancelled: number | undefined;
  /** An error that a handler of the SDK throws. */
  readonly error: (code: number, message: string, data: object) => unknown;
  /** The error with which the SDK rejects its pending calls when the connection ends. */
  readonly closed: object;
}

const VALUES = [0, "", false, null, [], {}, "ß\u2028\u0000", { deep: [1.5, { "": [] }] }, "long ".repeat(100_000)];

/** Runs the suite. */
export function behavesWithSdk({ open, firstId, cancel, cancelled, error, closed }: Traits): void {
  const join = (methods: Methods = {}, handlers: Handlers = {}, heard: (params: unknown) => void = () => {}) => {
    const sync = (): object => ({});
    return open({ _sync: sync, ...methods }, { _sync: sync, ...handlers }, heard);
  };
  /** Resolves when each side has handled all messages of the other. */
  const settled = async ({ peer, request }: Sdk): Promise<void> => {
    await request("_sync", {});
    await peer.request("_sync", {});
  };

  it("carries params and results unchanged, in both directions", async () => {
    await using sdk = await join({ _echo: (params) => params }, { _echo: (params) => params });
    for (const value of VALUES) {
      expect(await sdk.request("_echo", { value })).toEqual({ value });
      expect(await sdk.peer.request("_echo", { value })).toEqual({ value });
    }
  });

  it("rejects calls with code, message and data of an error, in both directions", async () => {
    const data = { retry: false };
    const fail = (thrown: unknown) => (): never => {
      throw thrown;
    };
    const methods = { _fail: fail(new RpcError(-32803, "no such symbol", data)) };
    await using sdk = await join(methods, { _fail: fail(error(-32803, "no such symbol", data)) });
    const expected = { code: -32803, message: expect.stringContaining("no such symbol"), data };
    expect(await rejection(sdk.request("_fail", {}))).toMatchObject(expected);
    expect(await rejection(sdk.peer.request("_fail", {}))).toMatchObject({ ...expected, method: "_fail" });
  });

  it("sends no details of a handler's failure", async () => {
    const failure = new Error("the password is hunter2");
    await using sdk = await join({ _fail: () => Promise.reject(failure) });
    const received = await rejection(sdk.request("_fail", {}));
    expect(received).toMatchObject({ code: -32603, message: expect.stringContaining("Internal error") });
    expect(JSON.stringify(sdk.wire.received)).not.toContain("hunter2");
    expect(sdk.takeErrors()).toEqual([failure]);
  });

  it("refuses an unknown method with -32601, in both directions", async () => {
    await using sdk = await join();
    for (const method of ["_none", "toString", "__proto__"]) {
      expect(await rejection(sdk.request(method, {}))).toMatchObject({ code: -32601 });
    }
    expect(await rejection(sdk.peer.request("_none", {}))).toMatchObject({ code: -32601 });
  });

  it("delivers notifications in order and unanswered, in both directions", async () => {
    const [ours, theirs]: unknown[][] = [[], []];
    await using sdk = await join({ _note: (params) => void ours!.push(params) }, {}, (params) => theirs!.push(params));
    await settled(sdk);
    const notes = [{ n: 1 }, { n: 2 }, { n: 3 }];
    const before = [sdk.wire.sent.length, sdk.wire.received.length];
    for (const note of notes) {
      await sdk.notify("_note", note);
      sdk.peer.notify("_note", note);
    }
    await settled(sdk);
    expect([ours, theirs]).toEqual([notes, notes]);
    // The requests of `settled` and their answers are sent besides.
    expect([sdk.wire.sent.length, sdk.wire.received.length]).toEqual(before.map((count) => count + notes.length + 2));
  });

  it("settles each of many calls in both directions with its own answer", async () => {
    const release = gate();
    const slow = async ({ n }: { n: number }): Promise<object> => {
      if (n % 3 === 0) await release.promise;
      return { n };
    };
    await using sdk = await join({ _slow: slow }, { _slow: slow });
    const numbers = Array.from({ length: 200 }, (_, n) => ({ n }));
    const calls = numbers.flatMap((n) => [sdk.request("_slow", n), sdk.peer.request("_slow", n)]);
    await settled(sdk);
    release.resolve();
    expect(await Promise.all(calls)).toEqual(numbers.flatMap((n) => [n, n]));
  });

  it("serves calls that call back during a call", async () => {
    let sdk!: Sdk;
    const down = ({ n }: { n: number }, { peer }: { peer: AnyPeer }): unknown =>
      n === 0 ? { at: "the bottom" } : peer.request("_down", { n: n - 1 });
    sdk = await join({ _down: down as never }, { _down: ({ n }) => sdk.request("_down", { n: n - 1 }) });
    await using _ = sdk;
    expect(await sdk.request("_down", { n: 4 })).toEqual({ at: "the bottom" });
  });

  it("aborts the handler's signal when the SDK cancels a call, and answers it as the protocol says", async () => {
    const started = gate();
    const ended = gate<unknown>();
    await using sdk = await join({
      _wait: async (_params, { signal }) => {
        started.resolve();
        await aborted(signal);
        ended.resolve(signal.reason);
        throw signal.reason;
      },
    });
    const controller = new AbortController();
    const outcome = rejection(sdk.request("_wait", {}, controller.signal));
    await started.promise;
    controller.abort();
    expect(await ended.promise).toMatchObject({ name: "AbortError" });
    await outcome;
    await settled(sdk);
    const { id } = sdk.wire.sent.find(({ method }) => method === "_wait");
    expect(id).toBe(firstId);
    expect(sdk.wire.sent).toContainEqual(expect.objectContaining({ jsonrpc: "2.0", ...cancel(id) }));
    const answers = cancelled === undefined ? [] : [{ error: { code: cancelled } }];
    expect(answersTo(id, sdk.wire.received)).toMatchObject(answers);
    expect(answersTo(id, sdk.wire.received)).toHaveLength(answers.length);
  });

  it.each(["signal", "timeout"])(
    "cancels the SDK's handler by the %s of a call, and ignores the answer",
    async (how) => {
      const started = gate();
      const ended = gate();
      await using sdk = await join(
        {},
        {
          _wait: async (_params, signal) => {
            started.resolve();
            await aborted(signal);
            ended.resolve();
            throw Object.assign(new Error("stopped"), { name: "AbortError" });
          },
        },
      );
      const controller = new AbortController();
      const options = how === "signal" ? { signal: controller.signal } : { timeoutMs: 1 };
      const outcome = rejection(sdk.peer.request("_wait", {}, options));
      const reason = new Error("the user typed on");
      if (how === "signal") {
        await started.promise;
        controller.abort(reason);
        expect(await outcome).toBe(reason);
      } else expect(await outcome).toMatchObject({ code: "TIMEOUT" });
      await ended.promise;
      await settled(sdk);
      const { id } = sdk.wire.received.find(({ method }) => method === "_wait");
      expect(sdk.wire.received).toContainEqual(expect.objectContaining({ jsonrpc: "2.0", ...cancel(id) }));
      const answers = cancelled === undefined ? 0 : 1;
      expect(answersTo(id, sdk.wire.sent)).toHaveLength(answers);
      expect(sdk.peer.stats()).toMatchObject({ pending: 0 });
    },
  );

  it.each(["reciproc", "SDK"])("settles the calls of both sides when the %s end closes", async (who) => {
    const running = [gate(), gate()] as const;
    const ended = gate<unknown>();
    await using sdk = await join(
      {
        _wait: async (_params, { signal }) => {
          running[0].resolve();
          await aborted(signal);
          ended.resolve(signal.reason);
        },
      },
      { _wait: () => (running[1].resolve(), new Promise(() => {})) },
    );
    const theirs = rejection(sdk.request("_wait", {}));
    const ours = rejection(sdk.peer.request("_wait", {}));
    await Promise.all(running.map(({ promise }) => promise));
    await (who === "SDK" ? sdk.close() : sdk.peer.close());
    expect(await ours).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await theirs).toMatchObject(closed);
    expect(await ended.promise).toBeInstanceOf(Error);
    await sdk.peer.closed;
    expect(await rejection(sdk.peer.request("_wait", {}))).toMatchObject({ outcome: "not-sent" });
    await turn();
    expect(sdk.peer.stats().running).toBe(0);
  });
}
