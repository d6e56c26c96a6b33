/// <reference lib="esnext.disposable" preserve="true" />
/** The peer: one end of a connection, as its users see it. */
import type { BytesCodec } from "../message/bytes.js";
import { Connection, type End, type PeerReports } from "./connection.js";
import type { ContractOptions } from "../contract/checks.js";
import type {
  AnyMethods,
  AppContext,
  CallArgs,
  CallOptions,
  Contract,
  Handler,
  Handlers,
  Item,
  LiveOptions,
  MethodMeta,
  NotifyName,
  Params,
  PeerData,
  Remote,
  Result,
  Stream,
  Streamed,
  StreamName,
  WebStream,
} from "../contract/contract.js";
import type { Dialect } from "./dialect.js";
import { checkClose } from "../message/close-codes.js";
import { shownAs } from "../message/codec.js";
import { afterFailed } from "../message/errors.js";
import type { PeerLimits } from "../message/limits.js";
import type { Id } from "../message/message.js";
import { EventEmitter, nanoid } from "../base/packages.js";
import type { StandardSchema } from "../contract/schema.js";
import { makeConfig, PEER_OPTIONS, type Config } from "./config.js";
import type { Feature, FeaturePart } from "./feature.js";
import { anyFunction, anySignal, anyString, checkOptions, optional, shape } from "../message/options.js";
import { observed } from "../base/promises.js";
import type { FailedCall } from "./hooks.js";
import type { PeerStats } from "./stats.js";
import { onAbort, refuseUnknownEvents } from "../base/tell.js";
import type { CloseInfo, Transport } from "../message/transport.js";
import { callerOf, remoteOf, type Caller } from "./caller.js";

/** The context of a call, which its handler gets. Its members survive destructuring. Wrappers may add members: see `AppTypes`. */
export interface Context<L extends Contract<L> = any, R extends Contract<R> = any, A = unknown> extends AppContext {
  /** The side that calls: call it back, notify it, read its `auth` and `data`. */
  readonly peer: Peer<L, R, A>;
  /** The method's name as it was called. */
  readonly method: string;
  /** The request's id; `undefined` for a notification. */
  readonly id: string | number | null | undefined;
  /**
   * Aborts when the caller no longer waits for the response: it cancelled, or the connection ended, while the handler ran. Aborts
   * after the `timeoutMs` of the method too, if it has one. If the result is a stream, the signal lives as long as the stream. For anything that lives longer, use `peer.closed`.
   */
  readonly signal: AbortSignal;
  /** Reports progress to a caller that asked for it. Does nothing for another caller, and after the response. */
  progress(this: void, value: unknown): void;
}

/** The events of a peer. What a listener throws is emitted as `error`. If an event has no listener, nothing is thrown. */
export type PeerEvents = {
  /**
   * The connection ended, and every call is settled: a pending one rejects by the end of the tick. If this side closed it for a reason of its own (a limit was passed, the
   * server closes or drains), `info` has that code and reason, whatever the other side answered. After `peer.close()`, `info`
   * has what the transport reports: 1006 if the other side never answered.
   */
  close(info: CloseInfo): void;
  /** The connection lost its socket, and the client reconnects. Messages wait meanwhile. If the loss is the end, `close` is emitted instead. */
  suspend(): void;
  /**
   * The client waits for `delayMs`, and then tries to connect. Emitted before each attempt, except the first of a peer. `number`
   * counts the attempts, from 1, since the peer was last open. `error`: why the previous attempt failed, or why the connection was lost.
   * Call `peer.reconnect()` to try without the delay.
   */
  attempt(attempt: { number: number; delayMs: number; error: Error }): void;
  /** Messages flow again. Unless `lost` came in between, nothing came twice, and nothing was lost that `missed` does not report. */
  resume(): void;
  /**
   * The session is lost, and the peer continues with a new one. Pending calls are rejected, with their `outcome`. Running
   * handlers are aborted, streams have ended, and the other side has discarded its peer. It is not known which notifications
   * were delivered. Emitted only between `suspend` and `resume`.
   */
  lost(error: Error): void;
  /**
   * The other side has dropped `count` notifications to this side, since the last event, because this side was suspended or read too
   * slowly: broadcasts, and messages with `latest` beyond 1,024 keys. Load again what they keep current. Emitted in order with
   * messages, once for each dropped message, also if the session is resumed. If the session is lost, `lost` is emitted instead.
   */
  missed(info: { readonly count: number }): void;
  /** A notification came that no handler serves. */
  notification(method: string, params: unknown): void;
  /**
   * An error on this side that has no caller: a handler threw, a notification was refused, a listener failed. `call` names the call
   * or the notification that it came from, if it came from one.
   * While neither the peer nor its server has a listener, the first failure of each method is reported in the runtime's own
   * way: by `process.emitWarning` where there is one (Node, Bun, Deno), else by `reportError`.
   */
  error(error: unknown, call?: FailedCall): void;
};

const EVENTS: Record<keyof PeerEvents, 0> = {
  close: 0,
  suspend: 0,
  attempt: 0,
  resume: 0,
  lost: 0,
  missed: 0,
  notification: 0,
  error: 0,
};

/** One call as `around` sees it. */
export type Call = (IncomingDirection | OutgoingDirection) & {
  /** The peer it goes through. */
  readonly peer: AnyPeer;
  readonly method: string;
  /** The request's id; `undefined` for a notification. */
  readonly id: Id | undefined;
  /** The params that `next` uses. Assign to change them. */
  params: any;
  /** The `meta` of the method in the contract of the side that serves it; `undefined` if there is none. */
  readonly meta: MethodMeta | undefined;
};

/** The other side calls, and `next` runs the handler. */
interface IncomingDirection {
  readonly direction: "incoming";
  /** The context that the handler gets. Assign members that `AppTypes` declares, to add them for the handler. */
  readonly context: Context;
}

/** This side calls, and `next` sends the call. */
interface OutgoingDirection {
  readonly direction: "outgoing";
  readonly context: undefined;
}

/**
 * Wraps calls in both directions: logging, permission, tracing. `next` continues, with the next wrapper of a list or with the call, and
 * promises the result. A second `next()` runs the handler again, or makes another call. What `around` returns or throws is the outcome. The `around` of a server also wraps messages to groups: see `ServerAround`.
 */
export type Around = (call: Call, next: () => Promise<unknown>) => unknown;

/** Options of a peer, whatever it serves. */
export interface PeerOptions<Ctx = any> {
  /** How long a call waits for its response, in milliseconds, unless its options say otherwise. Default 60,000; `Infinity` waits for ever. */
  timeoutMs?: number | undefined;
  /** Whether calls are made again after a loss, unless their options say otherwise: see `CallOptions`. Default false. */
  retry?: "not-sent" | "always" | false | undefined;
  /** Called for methods without a handler, except the reserved `rpc.*`. `context.method` names the method. Its return value is the result. */
  fallback?: ((params: any, context: Ctx) => unknown) | undefined;
  /** Wraps every call, incoming and outgoing. Of a list, each wraps those after it: the first sees a call first, and its outcome last. */
  around?: Around | readonly Around[] | undefined;
  /** Bounds on what this side accepts. */
  limits?: Partial<PeerLimits> | undefined;
  /**
   * The messages for cancelling and progress: `lsp`, `mcp`, `acp`, or your own dialect. Default: `lsp` is understood, and sent
   * to a reciproc peer. Another JSON-RPC peer gets only messages that you wrote.
   */
  dialect?: Dialect | undefined;
  /**
   * `"1.0"` understands messages of JSON-RPC 1.0 as well, which have no `jsonrpc`, and answers them in kind. An error then has
   * `result: null` beside it only if the request carried `"jsonrpc": "1.0"`: programs that speak 2.0 without `jsonrpc` take a
   * null result for success. Requires the feature `compat`. Default: such messages are refused (-32600).
   */
  compat?: "1.0" | undefined;
  /**
   * Takes messages of another protocol on the same connection, such as `{"event": "playing"}`: objects with neither `jsonrpc`
   * nor `method`, nor `result` or `error` beside an `id`. They get no reply and do not count as malformed, and
   * `limits.maxMessagesPerSecond` counts them. Members of a batch, values that are not objects, and text that is not JSON are
   * refused as without it. What it throws or rejects with is emitted as `error`. Requires the feature
   * `compat`. Default: such messages are refused (-32600).
   */
  onForeignMessage?: ((message: Record<string, unknown>, peer: PeerOf<Ctx>) => unknown) | undefined;
  /**
   * The features of the peer: the exports `streams`, `progress`, `batches`, `live`, `renewal`, `schemas`, `compat` and `bytes`. A page contains the code of no others. With `bytes`, the
   * peer takes and sends bytes in binary frames if the other side does too, and a view that a stream yields need not be marked;
   * without it, bytes come and go as base64. Default: none in `reciproc`. A server and the peers of
   * `reciproc/node` and `reciproc/testing` always have all of them, and `use` adds features of an application. A member that needs a feature which is not here throws a `TypeError` that names it.
   */
  use?: readonly (Feature | BytesCodec)[] | undefined;
}

/** The peer in a handler's context. */
type PeerOf<Ctx> = Ctx extends Context ? Ctx["peer"] : AnyPeer;

/** The options of a peer that serves contract `L`. `methods` may be left out only when no method is required. */
export type Options<L, Ctx> = PeerOptions<Ctx> & MethodOptions<L, Ctx>;

/** What a peer serves. Only whether `methods` is required depends on a condition, so that TypeScript sees the types of handlers before it infers `L`. */
export type MethodOptions<L, Ctx> = Pick<ContractOptions<L, any>, "contract" | "check"> & {
  /**
   * A Standard Schema for the params of some methods. What does not fit is answered with -32602: the first issue in its message,
   * the first 100 in its data. Without one, params are unchecked. Throws a `TypeError` for a name that no method has, also where
   * `handle` adds the method later; where there is a `fallback`, a schema of such a name checks what that is called with. On a page, it
   * needs the feature `schemas`.
   */
  schemas?: { readonly [K in keyof L]?: StandardSchema<Params<L[K]>> | undefined } | undefined;
  methods?: Handlers<L, Ctx> | undefined;
} & ({} extends L ? {} : { methods: object });

/** Collects requests and notifications and sends them as one JSON-RPC batch (section 6). */
export interface Batch<R extends Contract<R>> extends Caller<R> {
  /**
   * Sends what was collected, in one array; an empty batch sends nothing. A call that was aborted or timed out before is
   * left out. Throws when called twice.
   */
  send(): void;
}

/** A peer of any contracts, with any `auth`: for code that serves several applications. Its calls are not checked by the compiler. */
export type AnyPeer = Peer<any, any, any>;

/** A transport, which an application may write. */
export const aTransport = shape<Transport>({ start: anyFunction, send: anyFunction, close: anyFunction });

let readConnection: (peer: AnyPeer) => Connection;
let peerReports: PeerReports;
let replaceAuth: (peer: AnyPeer, auth: unknown) => void;

/** Returns the present connection of a peer. For the server, and for the driver of a client. */
export function connectionOf(peer: AnyPeer): Connection {
  return readConnection(peer);
}

/** Sets the `auth` of a peer. For the server. */
export function setAuth(peer: AnyPeer, auth: unknown): void {
  replaceAuth(peer, auth);
}

function configOf(options: object | undefined, features: PeerOptions["use"]): Config {
  const checked = checkOptions("options", options, PEER_OPTIONS);
  return makeConfig({ ...checked, use: [...(features ?? []), ...(checked.use ?? [])] });
}

/** Makes a peer whose transport and options were checked before. Nothing comes in or goes out until `startPeer`. */
export function createPeer<L extends Contract<L>, R extends Contract<R>, A = unknown>(
  transport: Transport,
  config: Config,
): Peer<L, R, A> {
  return new Peer<L, R, A>(transport, undefined, config);
}

/** Starts the transport of a peer that `createPeer` made. */
export function startPeer(peer: AnyPeer): void {
  const connection = connectionOf(peer);
  connection.transport.start(connection);
}

/** Returns what calls and notifies past the opening queue of the connection that a peer has now: the parameter of `onOpen`. */
export function openingCaller(peer: AnyPeer): Caller<any> {
  const { outgoing, flow } = connectionOf(peer);
  const caller = callerOf({
    request: (method, params, options) => outgoing.request(method, params, options, flow),
    notify: (method, params) => outgoing.notify(method, params, flow),
  });
  return caller;
}

/**
 * Closes with any code, 1001 and 1008 included, and reports that code even if the other side never answers. Pending calls reject with
 * `end.error` as their cause, if there is one.
 */
export function endPeer(peer: AnyPeer, end: CloseInfo): void {
  connectionOf(peer).end(end);
}

/**
 * One end of a connection: calls the other side, serves it and notifies it. `L` is the contract this side serves, `R` the
 * one the other side serves, `A` the type of `auth`.
 *
 * When the connection is lost or closes, every pending call rejects, every running handler's `signal` aborts, and every timer is cleared.
 *
 * It emits the events of `PeerEvents` and no others: `on`, `once` and `emit` throw a `TypeError` for another name.
 */
export class Peer<L extends Contract<L> = AnyMethods, R extends Contract<R> = AnyMethods, A = unknown>
  extends EventEmitter<PeerEvents>
  implements Caller<R>
{
  /** The features that each peer of this class has. @internal */
  static readonly features: PeerOptions["use"];

  #connection: Connection;
  #auth: A | undefined;
  #data: PeerData | undefined;
  #id: string | undefined;
  #remote: Remote<R> | undefined;
  #opened: Promise<void> | undefined;
  #closed: Promise<CloseInfo> | undefined;
  /** Settles `opened`, while that is pending. */
  #settleOpened: ((failure?: End) => void) | undefined;
  /** Settles `closed`, once that was asked for. */
  #settleClosed: ((info: CloseInfo) => void) | undefined;

  /**
   * Takes over an open `transport`, and starts it. Throws a `TypeError` for bad options, naming the option, the rule and the
   * value.
   */
  constructor(transport: Transport, options: NoInfer<Options<L, Context<L, R, A>>> & ContractOptions<L, R>);
  /** Does not start the transport: see `createPeer`. @internal */
  constructor(transport: Transport, options: undefined, config: Config);
  constructor(transport: Transport, options: NoInfer<Options<L, Context<L, R, A>>> | undefined, config?: Config) {
    super();
    if (config === undefined) aTransport(transport, "transport");
    const all = config ?? configOf(options, new.target.features);
    this.#connection = new Connection(this, transport, all, peerReports);
    if (config === undefined) transport.start(this.#connection);
  }

  /**
   * Server: what `authenticate` returned for this client, and `undefined` without `authenticate`. Replaced when the client resumes
   * its session or calls `reauthenticate()`, and then the server emits `refresh`. Client: `undefined`. Never sent.
   */
  get auth(): A {
    return this.#auth as A;
  }

  /**
   * What the application keeps about this peer: an object that is empty at first. It lasts as long as the peer, also when the session
   * is resumed or lost. The library neither reads nor replaces it. Never sent. For its type, see `AppTypes`.
   */
  get data(): PeerData {
    return (this.#data ??= {} as PeerData);
  }

  /** A random name for this peer. Made when first read. The library sends it to clients only in the list of members of a topic. */
  get id(): string {
    return (this.#id ??= nanoid());
  }

  /**
   * `"connecting"`: `open` has returned the peer, and `opened` is pending. `"open"`: messages flow. `"suspended"`: between the events
   * `suspend` and `resume`. `"closed"`: for good.
   */
  get state(): "connecting" | "open" | "suspended" | "closed" {
    const { ended, flow, wasNeverOpen } = this.#connection;
    if (ended !== undefined) return "closed";
    return wasNeverOpen ? "connecting" : flow.isSuspended ? "suspended" : "open";
  }

  /**
   * Resolves when the peer is open for the first time, and its `onOpen` is done. Rejects if the peer closes before: with a
   * `ConnectError`, with what `onOpen` failed with, with the reason of `signal`, or with an error that names the close. Calls that
   * were pending reject with a `ConnectionLostError` whose `cause` is the same. If it is not awaited, its rejection is ignored.
   */
  get opened(): Promise<void> {
    return (this.#opened ??= observed(
      new Promise((resolve, reject) => {
        const { wasNeverOpen, ended } = this.#connection;
        if (!wasNeverOpen) resolve();
        else if (ended !== undefined) reject(ended.reason);
        else this.#settleOpened = (failure) => (failure === undefined ? resolve() : reject(failure.reason));
      }),
    ));
  }

  /** Resolves when the connection has ended and its calls have rejected, with what `close` is emitted with. Never rejects. */
  get closed(): Promise<CloseInfo> {
    return (this.#closed ??= new Promise((resolve) => {
      const past = this.#connection.ended?.info;
      if (past === undefined) this.#settleClosed = (info) => resolve(afterFailed(info));
      else resolve(past);
    }));
  }

  get remote(): Remote<R> {
    return (this.#remote ??= remoteOf((method, params, options) =>
      this.#connection.outgoing.request(method, params, options),
    ));
  }

  request<K extends keyof R & string>(method: K, ...args: CallArgs<R[K]>): Promise<Result<R[K]>>;
  request(method: string, params?: unknown, options?: CallOptions): Promise<any> {
    return this.#connection.outgoing.request(method, params, options);
  }

  /**
   * As `Caller.notify`, with the options `volatile` and `latest` for a message that a newer one makes obsolete. Returns false for a
   * volatile message that is dropped. Throws a `TypeError` for bad options.
   */
  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], [options?: LiveOptions]>): boolean;
  notify(method: string, params?: unknown, options?: LiveOptions): boolean {
    return this.#connection.outgoing.notify(method, params, undefined, options);
  }

  /**
   * Calls, and reads the result as a stream, once. The call is made when reading begins; `timeoutMs` ends with its first
   * reply. If the result has neither `token` nor `values`, rejects with a `ProtocolError`. Breaking the loop, or aborting `signal`, aborts the producer. Reading rejects as `request` does, and with what the
   * producer failed with; when the connection is lost or closes, with `ConnectionLostError`. Its `method` is the one called
   * here, and its `outcome` is that of this call: `"unknown"` as soon as it was sent, however many values were read.
   */
  stream<K extends StreamName<R>>(method: K, ...args: CallArgs<R[K]>): AsyncIterable<Item<R[K]>>;
  stream(method: string, params?: unknown, options?: CallOptions): AsyncIterable<any> {
    return this.#connection.parts.get("streams").stream(method, params, options);
  }

  /**
   * Reads a stream found inside params or a result, once. The receiver never guesses: elsewhere it is plain data. One that
   * came in params ends with the answer to its request. Throws a `TypeError` for what is no object. When the connection is
   * lost or closes, reading rejects with `ConnectionLostError` of outcome `"unknown"`: the call that the stream belongs to
   * was sent. The stream does not name that call, so `method` is `"$/enumerator/next"`.
   */
  iterate<T>(stream: Stream<T>): AsyncIterable<T> {
    return this.#connection.parts.get("streams").iterate(stream) as AsyncIterable<T>;
  }

  /**
   * Makes a stream of an iterable, for any place in the params of a request or in a result, once. It is read a little
   * ahead (64 KiB, or 256 KiB of bytes) and no further than the other side reads, and not at all while the peer has no socket; one in params ends with its call, one in a result with the connection.
   * Then, and when the other side stops reading, the iterator's `return()` is called. A web stream, such as `blob.stream()`, is
   * read by its reader, which is then cancelled. Views are sent as bytes, if the peer uses `bytes`. Throws a `TypeError`
   * for what is neither an iterable nor a web stream.
   */
  offer<T>(source: AsyncIterable<T> | Iterable<T> | WebStream<T>): Stream<Streamed<T>> {
    return this.#connection.parts.get("streams").offer(source) as Stream<Streamed<T>>;
  }

  /**
   * Returns the part of a feature on the present connection of this peer, which its `create` has made. After `lost`, it is another. Throws
   * a `TypeError` if the peer does not use the feature.
   */
  feature<P extends FeaturePart>(feature: Feature<P>): P {
    return this.#connection.parts.get(feature.name) as P;
  }

  /** Starts a batch: its calls wait for `send()`, and time out from now on. Throws a `TypeError` if the peer does not use `batches`. */
  batch(): Batch<R> {
    return callerOf(this.#connection.parts.get("batches").batch());
  }

  /**
   * Serves one more method on this peer, over one of that name in `methods`. Returns a function that removes the handler. A name of the reserved
   * `rpc.` space may be registered. Throws when this peer has such a handler already.
   */
  handle<K extends keyof L & string>(method: K, handler: Handler<L[K], Context<L, R, A>>): () => void {
    return this.#connection.incoming.handle(anyString(method, "method"), anyFunction(handler, "handler"));
  }

  /**
   * Client: sends a fresh `auth` on the open connection, such as a new token before the old one expires. Calls the function `auth`
   * with attempt number 0. Resolves when the server has accepted it: then `peer.auth` there is the new result of `authenticate`. If
   * the server refuses it, or the `principal` would change, the server closes the connection with 4401. While the peer is
   * suspended or not open yet it waits, and its timeout runs. A call that is made while another is pending shares its `auth` and its reply.
   *
   * Rejects as `request` does: with `ConnectionLostError` when the connection is lost or closes, with `TimeoutError` or the
   * signal's reason. Rejects with what the function `auth` threw, and with a `TypeError` if `connect` had no option `auth`, or the
   * server has not asked for it: it does not speak `reciproc.v1`, or has no `authenticate`. Only the server closes anything then. On a page, it needs the feature `renewal`.
   */
  async reauthenticate(options?: Pick<CallOptions, "timeoutMs" | "signal">): Promise<void> {
    return this.#connection.parts.get("renewal").reauthenticate(options);
  }

  /**
   * Closes the connection, and resolves when it has ended. If the other side does not complete the close within 5 s, the
   * connection ends with 1006. Pending calls reject at once with `ConnectionLostError`, and the
   * `signal` of every running handler aborts. `reason` is cut at 123 bytes. Rejects with a `TypeError`, and closes nothing,
   * when `code` is neither 1000 nor 3000 to 4999: the others are not an application's to send (RFC 6455, section 7.4). Send none of
   * 4000 to 4099, which have a meaning in `reciproc.v1`.
   */
  async close(code = 1000, reason = ""): Promise<void> {
    this.#connection.end({ code, reason: checkClose(code, reason) }, false);
    await this.closed;
  }

  /**
   * Tries to connect now, if the client waits for its next attempt, also if the server asked it to wait. An open connection is only
   * checked, and only if it has a heartbeat: if the server does not answer a ping within 5 s, the client drops the socket and
   * reconnects. Returns false, and does nothing, if the peer is closed, or was not made by `open`, `connect` or `openTab`.
   */
  reconnect(): boolean {
    const { ended, transport } = this.#connection;
    return ended === undefined && transport.delegate?.reconnect?.() === true;
  }

  /**
   * Resolves with the arguments of the next `event`, as `once` of `node:events` does. If the peer is closed already, the event `close`
   * is the past one. Rejects with the reason of `signal`, with the reason of the end if the peer closes before another event, and
   * with a `TypeError` for bad options or an unknown event. Default: no signal.
   */
  waitFor<E extends keyof PeerEvents>(event: E, options?: { signal?: AbortSignal }): Promise<Parameters<PeerEvents[E]>>;
  waitFor(event: keyof PeerEvents, options?: object): Promise<any> {
    return new Promise((resolve, reject) => {
      const { signal } = checkOptions("options", options, { signal: optional(anySignal) });
      const { ended } = this.#connection;
      if (signal?.aborted) throw signal.reason;
      if (event === "close" && ended?.info !== undefined) return resolve([ended.info]);
      if (event !== "close" && ended !== undefined) throw ended.reason;
      const emitted = (...args: unknown[]): void => resolve((leave(), args));
      const closed = (): void => reject((leave(), this.#connection.ended!.reason));
      // The first to settle wins: at `close`, that is `emitted` if `event` is `close`.
      this.once(event, emitted).once("close", closed);
      const ignore = signal && onAbort(signal, () => reject((leave(), signal.reason)));
      const leave = (): void => {
        this.off(event, emitted).off("close", closed);
        ignore?.();
      };
    });
  }

  /** Returns what happened on this connection so far, and how full everything is. Cheap: the numbers are counted anyway. */
  stats(): PeerStats {
    const { counts, outgoing, incoming, flow, transport } = this.#connection;
    const { received: bytesReceived = 0, sent: bytesSent = 0 } = transport.traffic ?? {};
    return {
      ...counts,
      pending: outgoing.size,
      running: incoming.running,
      streams: incoming.streams,
      unsentBytes: flow.unsentBytes,
      bytesReceived,
      bytesSent,
    };
  }

  /**
   * Returns `id`, for logs and test matchers. In a message it throws a `TypeError`, so that nothing sends by mistake what the application
   * keeps in a peer: send `peer.id`, or those fields of your own data that the other side may know.
   */
  toJSON(key?: string): never {
    return shownAs(this.id, "peer", "write `peer.id`", key);
  }

  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The class and the `id`: test matchers find two peers different, and `console.log` shows the `id`. */
  get [Symbol.toStringTag](): string {
    return `Peer ${this.id}`;
  }

  static {
    readConnection = (peer) => peer.#connection;
    replaceAuth = (peer, auth) => void (peer.#auth = auth);
    peerReports = {
      replaced(peer, next) {
        (peer as AnyPeer).#connection = next;
      },
      opened(peer, failure) {
        (peer as AnyPeer).#settleOpened?.(failure);
        // The promise is settled. Its closures would live as long as the peer.
        (peer as AnyPeer).#settleOpened = undefined;
      },
      closed(peer, info) {
        (peer as AnyPeer).#settleClosed?.(info);
      },
    };
    refuseUnknownEvents(Peer.prototype, EVENTS);
  }
}
