/** A protocol's own SDK on one end of a WebSocket and a reciproc peer on the other, and the behaviour that all of them share. */
import { once } from "node:events";
import { expect, it } from "vitest";
import { WebSocket, WebSocketServer, type ServerOptions } from "ws";
import { connect, RpcError, serve, type AnyMethods, type AnyPeer, type Dialect } from "../../../src/node.js";
import { bareHttp } from "../../support/network.js";
import { expectEmpty, type AnyOptions } from "../../support/pair.js";
import { gate, raising, rejection, turn } from "../../support/turns.js";

export type Methods = NonNullable<AnyOptions["methods"]>;

/** The SDK's WebSocket. It records the messages of its connection, parsed, in order. */
export class TappedWebSocket extends WebSocket {
  readonly sent: any[] = [];
  readonly received: any[] = [];

  /** Called as the constructor of `ws`: by a client with a URL, by a server with null. */
  constructor(...args: any[]) {
    super(...(args as ConstructorParameters<typeof WebSocket>));
    this.on("message", (data: Buffer) => this.received.push(JSON.parse(data.toString())));
  }

  override send(...args: [data: any, ...rest: any[]]): void {
    this.sent.push(JSON.parse(String(args[0])));
    super.send(...(args as [any]));
  }
}

/** Both ends. Disposing closes them, and asserts that no state and no unread error is left. */
export interface Joined<T = unknown> extends AsyncDisposable {
  readonly peer: AnyPeer;
  readonly wire: TappedWebSocket;
  readonly theirs: T;
  /** Returns the errors that the SDK reported since the last call. */
  takeComplaints(): unknown[];
}

/** Joins a peer with an SDK. `complaints` receives the errors of the SDK, and `stop` ends what the peer does not close. */
export function joined<T>(
  peer: AnyPeer,
  wire: TappedWebSocket,
  theirs: T,
  complaints: unknown[],
  stop: () => Promise<unknown>,
): Joined<T> {
  const errors: unknown[] = [];
  peer.on("error", (error) => errors.push(error));
  return {
    peer,
    wire,
    theirs,
    takeComplaints: () => complaints.splice(0),
    async [Symbol.asyncDispose]() {
      await peer.close();
      await stop();
      await turn();
      expectEmpty(peer);
      // The peer refused no message of the SDK.
      expect(answersTo(null, wire.received)).toEqual([]);
      expect({ errors, complaints }).toEqual({ errors: [], complaints: [] });
    },
  };
}

/** Starts a reciproc server. `open` connects the SDK's client to it, by that class of a WebSocket. */
export async function joinClient<T>(
  dialect: Dialect,
  methods: Methods,
  complaints: unknown[],
  open: (url: string, Wire: typeof TappedWebSocket) => T | Promise<T>,
): Promise<Joined<T>> {
  const server = await serve<AnyMethods>({ port: 0, dialect, methods });
  const opened = new Promise<AnyPeer>((resolve) => server.once("peer", resolve));
  let wire!: TappedWebSocket;
  class Wire extends TappedWebSocket {
    constructor(...args: any[]) {
      super(...args);
      wire = this;
    }
  }
  const theirs = await open(server.url, Wire);
  return joined(await opened, wire, theirs, complaints, () => server.close());
}

/** Connects a reciproc client to a server of `ws`. `accept` passes the connection to the SDK. */
export async function joinServer<T>(
  options: AnyOptions & { link?: "plain" },
  complaints: unknown[],
  accept: (wire: TappedWebSocket) => T | Promise<T>,
  listen: ServerOptions<any> = {},
): Promise<Joined<T>> {
  const http = await bareHttp();
  const server = new WebSocketServer({ server: http.server, WebSocket: TappedWebSocket, ...listen });
  const accepted = once(server, "connection").then(async ([wire]) => [wire, await accept(wire)] as const);
  const peer: AnyPeer = await connect(http.url, options);
  const [wire, theirs] = await accepted;
  return joined(peer, wire, theirs, complaints, () => http[Symbol.asyncDispose]());
}

export function answersTo(id: unknown, messages: any[]): any[] {
  return messages.filter((message) => message.id === id && message.method === undefined);
}

/** Resolves when the signal is aborted, which it may be before its handler begins. */
export function aborted(signal: AbortSignal): Promise<unknown> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener("abort", resolve));
}

export interface Sdk extends Joined {
  request(method: string, params: object, signal?: AbortSignal): Promise<unknown>;
  notify(method: string, params: object): unknown;
  /** Ends the connection in the SDK's own way. */
  close(): unknown;
}

/** The methods that the SDK serves for the suite. */
export type Handlers = Record<string, (params: any, signal: AbortSignal) => unknown>;

export interface Traits {
  /** Connects the ends. The SDK serves `handlers`, and passes the params of each notification `_note` to `heard`. */
  open(methods: Methods, handlers: Handlers, heard: (params: unknown) => void): Promise<Sdk>;
  /** The id of the SDK's first request in a test. */
  readonly firstId: number;
  readonly cancel: (id: unknown) => { method: string; params: object };
  /** The code that answers a cancelled call, or undefined if no answer is sent. */
  readonly cancelled: number | undefined;
  /** An error that a handler of the SDK throws. */
  readonly error: (code: number, message: string, data: object) => unknown;
  /** The error with which the SDK rejects its pending calls when the connection ends. */
  readonly closed: object;
}

const VALUES = [0, "", false, null, [], {}, "ß\u2028\u0000", { deep: [1.5, { "": [] }] }, "long ".repeat(100_000)];

export function behavesWithSdk({ open, firstId, cancel, cancelled, error, closed }: Traits): void {
  const join = (methods: Methods = {}, handlers: Handlers = {}, heard: (params: unknown) => void = () => {}) => {
    const sync = (): object => ({});
    return open({ _sync: sync, ...methods }, { _sync: sync, ...handlers }, heard);
  };
  const settled = async (sdk: Sdk): Promise<void> => {
    await sdk.request("_sync", {});
    await sdk.peer.request("_sync", {});
  };

  it("carries params, results and errors unchanged, in both directions", async () => {
    const data = { retry: false };

    const echo = (params: unknown): unknown => params;
    const methods = { _echo: echo, _fail: raising(new RpcError(-32803, "no such symbol", data)) };
    await using sdk = await join(methods, { _echo: echo, _fail: raising(error(-32803, "no such symbol", data)) });
    const expected = { code: -32803, message: expect.stringContaining("no such symbol"), data };
    for (const caller of [sdk, sdk.peer]) {
      for (const value of VALUES) expect(await caller.request("_echo", { value })).toEqual({ value });
      expect(await rejection(caller.request("_fail", {}))).toMatchObject(expected);
      expect(await rejection(caller.request("_none", {}))).toMatchObject({ code: -32601 });
    }
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
    const waiter = waiting();
    await using sdk = await join({
      _wait: async (_params, { signal }) => {
        await waiter.wait(signal);
        throw signal.reason;
      },
    });
    const controller = new AbortController();
    const outcome = rejection(sdk.request("_wait", {}, controller.signal));
    await waiter.started;
    controller.abort();
    expect(await waiter.ended).toMatchObject({ name: "AbortError" });
    await outcome;
    await settled(sdk);
    const { sent, received } = sdk.wire;
    expect(sent.find(({ method }) => method === "_wait").id).toBe(firstId);
    expect(sent).toContainEqual(expect.objectContaining({ jsonrpc: "2.0", ...cancel(firstId) }));
    const codes = answersTo(firstId, received).map(({ error: { code } }) => code);
    expect(codes).toEqual(cancelled === undefined ? [] : [cancelled]);
  });

  it("cancels the SDK's handler when the signal of a call aborts, and ignores the answer", async () => {
    const waiter = waiting();
    const handlers: Handlers = {
      _wait: async (_params, signal) => {
        await waiter.wait(signal);
        throw Object.assign(new Error("stopped"), { name: "AbortError" });
      },
    };
    await using sdk = await join({}, handlers);
    const controller = new AbortController();
    const outcome = rejection(sdk.peer.request("_wait", {}, { signal: controller.signal }));
    await waiter.started;
    controller.abort("the user typed on");
    expect(await outcome).toBe("the user typed on");
    await waiter.ended;
    await settled(sdk);
    const { sent, received } = sdk.wire;
    const { id } = received.find(({ method }) => method === "_wait");
    expect(received).toContainEqual(expect.objectContaining({ jsonrpc: "2.0", ...cancel(id) }));
    expect(answersTo(id, sent)).toHaveLength(cancelled === undefined ? 0 : 1);
  });

  it.each(["reciproc", "SDK"])("settles the calls of both sides when the %s end closes", async (end) => {
    const [ours, running] = [waiting(), gate()];
    await using sdk = await join(
      { _wait: (_params, { signal }) => ours.wait(signal) },
      { _wait: () => (running.resolve(), new Promise(() => {})) },
    );
    const calls = [sdk.peer.request("_wait", {}), sdk.request("_wait", {})].map(rejection);
    await Promise.all([ours.started, running.promise]);
    await (end === "SDK" ? sdk.close() : sdk.peer.close());
    expect(await calls[0]).toMatchObject({ name: "ConnectionLostError", outcome: "unknown" });
    expect(await calls[1]).toMatchObject(closed);
    expect(await ours.ended).toBeInstanceOf(Error);
    await sdk.peer.closed;
  });
}

/** Returns a wait for the abort of a signal, with promises for its start and for the reason of the abort. */
function waiting(): { started: Promise<void>; ended: Promise<unknown>; wait(signal: AbortSignal): Promise<void> } {
  const [started, ended] = [gate(), gate<unknown>()];
  const wait = async (signal: AbortSignal): Promise<void> => {
    started.resolve();
    await aborted(signal);
    ended.resolve(signal.reason);
  };
  return { started: started.promise, ended: ended.promise, wait };
}
