/// <reference lib="esnext.disposable" preserve="true" />
/** The peer: routes what comes in by its shape, sends what goes out, and is done with everything when it closes. */
import { EventEmitter } from "eventemitter3";
import { nanoid } from "nanoid";
import { remoteOf, type Caller } from "./caller.js";
import type {
  AnyMethods,
  CallArgs,
  CallOptions,
  Contract,
  Handler,
  Handlers,
  Item,
  NotifyName,
  Params,
  Remote,
  Result,
  Stream,
  StreamName,
} from "./contract.js";
import { Dispatcher, type Host } from "./dispatch.js";
import { expected } from "./errors.js";
import type { Id } from "./message.js";
import { Outgoing, type Line } from "./outgoing.js";
import type { PeerLimits } from "./limits.js";
import { Router, type Gate } from "./router.js";
import type { StandardSchema } from "./schema.js";
import { checkHandler, Settings } from "./settings.js";
import { tell } from "./tell.js";
import { cutReason, type CloseInfo, type SharedMessage, type Transport } from "./transport.js";

/** What a handler is told about its call. Its members survive destructuring. */
export interface Context<L extends Contract<L> = any, R extends Contract<R> = any, D = unknown> {
  /** The side that calls: call it back, notify it, read its `data`. */
  readonly peer: Peer<L, R, D>;
  /** The method's name as it was called. */
  readonly method: string;
  /** The request's id; `undefined` for a notification. */
  readonly id: string | number | null | undefined;
  /** Aborts when nobody waits for the answer any more: the connection ended while the handler ran. What lives longer than its call watches `peer.closed`. */
  readonly signal: AbortSignal;
  /** Reports progress to a caller that asked for it; to one that did not, it does nothing. */
  readonly progress: (value: unknown) => void;
}

/** What a peer emits. A listener that throws is reported to `error`; without listeners nothing is thrown or logged. */
export type PeerEvents = {
  /** The connection ended, and every call is settled. */
  close(info: CloseInfo): void;
  /** The session lost its socket and waits for another. Never on a plain link. */
  suspend(): void;
  /** The session goes on. Never on a plain link. */
  resume(): void;
  /** A session ended and what was in it is over. Never on a plain link. */
  lost(error: Error): void;
  /** A notification came that nobody handles. */
  notification(method: string, params: unknown): void;
  /** What went wrong on this side without a caller to tell: a handler threw, a notification was refused, a listener failed. */
  error(error: unknown): void;
};

/** One call as `around` sees it. */
export interface Call {
  /** `"incoming"`: the other side calls, and `next` runs the handler. `"outgoing"`: this side calls, and `next` sends it. */
  readonly direction: "incoming" | "outgoing";
  /** The peer it goes through. */
  readonly peer: AnyPeer;
  readonly method: string;
  /** The request's id; `undefined` for a notification. */
  readonly id: Id | undefined;
  /** What `next` goes on with: assign to it to change it. */
  params: any;
  /** What the handler is given; `undefined` for an outgoing call. */
  readonly context: Context | undefined;
}

/**
 * Wraps calls in both directions: logging, permission, tracing. `next` goes on and answers with the result; what `around`
 * returns or throws is the outcome. Not called for what a topic or `server.peers` sends to many, which is encoded once.
 */
export type Around = (call: Call, next: () => Promise<unknown>) => unknown;

/** Options of a peer, whatever it serves. */
export interface PeerOptions<Ctx = any> {
  /** How long a call waits for its answer, in milliseconds, unless it says otherwise. Default 60,000; `Infinity` waits for ever. */
  timeoutMs?: number | undefined;
  /** Called for what no handler is registered for, except the reserved `rpc.*`; `context.method` says which. Its return value is the result. */
  fallback?: ((params: any, context: Ctx) => unknown) | undefined;
  /** Wraps every call, incoming and outgoing. */
  around?: Around | undefined;
  /** What this side accepts. */
  limits?: Partial<PeerLimits> | undefined;
}

/** The options of a peer that serves contract `L`. `methods` may be left out only when no method is required. */
export type Options<L, Ctx> = PeerOptions<Ctx> & {
  /** A Standard Schema for the params of some methods. What does not fit is answered with -32602. Without one, params are unchecked. */
  schemas?: { readonly [K in keyof L]?: StandardSchema<Params<L[K]>> | undefined } | undefined;
} & ({} extends Handlers<L, Ctx> ? { methods?: Handlers<L, Ctx> | undefined } : { methods: Handlers<L, Ctx> });

/** Collects requests and notifications and sends them as one JSON-RPC batch (section 6). */
export interface Batch<R extends Contract<R>> extends Caller<R> {
  /**
   * Sends what was collected, in one array; an empty batch sends nothing. A call that was aborted or timed out before is
   * left out. Throws when called twice.
   */
  send(): void;
}

export type AnyPeer = Peer<any, any, any>;

/** Sends a text that is encoded already, for what goes to many peers; whether it was taken. For the server. */
export let sendShared: (peer: AnyPeer, message: SharedMessage) => boolean;

/** Closes with any code, 1001 and 1008 included. For the server. */
export let endPeer: (peer: AnyPeer, code: number, reason: string) => void;

/** How full a peer's tables are. For tests that assert emptiness, and for the server. */
export let inspect: (peer: AnyPeer) => {
  pending: number;
  openBatches: number;
  running: number;
  owed: number;
  malformed: number;
  unmatched: number;
};

/**
 * One end of a connection: calls the other side, serves it and notifies it. `L` is the contract this side serves, `R` the
 * one the other side serves, `D` the type of `data`.
 *
 * When the connection closes, every pending call rejects, every running handler's `signal` aborts, and no timer is left.
 */
export class Peer<L extends Contract<L> = AnyMethods, R extends Contract<R> = AnyMethods, D = unknown>
  extends EventEmitter<PeerEvents>
  implements Caller<R>
{
  /** The application's own data about this peer; on a server, what `authenticate` answered. Never sent. */
  data!: D;
  readonly #transport: Transport;
  readonly #settings: Settings;
  /** What the parts of this peer share; `ended` is the whole of its state. */
  readonly #line: Line & Host & Gate & { ended: Error | undefined };
  readonly #out: Outgoing;
  readonly #in: Dispatcher;
  readonly #router: Router;
  #id: string | undefined;
  #remote: Remote<R> | undefined;
  #closeInfo: CloseInfo | undefined;
  #closed: Promise<CloseInfo> | undefined;
  #resolveClosed: ((info: CloseInfo) => void) | undefined;

  /** Takes over an open `transport`. Throws a `TypeError` for bad options, naming the option, the rule and the value. */
  constructor(transport: Transport, options: NoInfer<Options<L, Context<L, R, D>>>) {
    super();
    const settings: unknown = options;
    if (typeof transport?.start !== "function") throw expected("transport", "a Transport, with `start`", transport);
    this.#transport = transport;
    this.#settings = settings instanceof Settings ? settings : new Settings(options);
    this.#line = {
      ended: undefined,
      send: (text) => this.#send(text),
      report: (error) => this.#report(error),
      unhandled: (method, params) => this.#tell("notification", method, params),
      end: (code, reason) => this.#end(code, reason),
      idle: transport.idle && (() => transport.idle!()),
    };
    const { answersOnly } = transport;
    // To this side's calls it is as if the connection had ended before they began.
    const line = answersOnly === undefined ? this.#line : { ...this.#line, ended: answersOnly, send: () => false };
    this.#out = new Outgoing(line, this, this.#settings);
    this.#in = new Dispatcher(this.#line, this, this.#settings);
    this.#router = new Router(this.#line, this.#in, this.#out.pending, this.#settings.limits);
    transport.start({
      receive: (text) => this.#router.receive(text),
      dispatch: (value) => this.#router.route(value),
      closed: (info) => this.#finish(info),
    });
  }

  /** A random name for this peer; made when first read, never sent. */
  get id(): string {
    return (this.#id ??= nanoid());
  }

  /** `"open"` until either side closes. `"suspended"`: a session waits for a new socket; never on a plain link. */
  get state(): "open" | "suspended" | "closed" {
    return this.#line.ended === undefined ? "open" : "closed";
  }

  /** Resolves when the connection has ended, with how. Never rejects. */
  get closed(): Promise<CloseInfo> {
    return (this.#closed ??= new Promise((resolve) => {
      if (this.#closeInfo === undefined) this.#resolveClosed = resolve;
      else resolve(this.#closeInfo);
    }));
  }

  get remote(): Remote<R> {
    return (this.#remote ??= remoteOf((method, params, options) => this.#out.request(method, params, options)));
  }

  request<K extends keyof R & string>(method: K, ...args: CallArgs<R[K]>): Promise<Result<R[K]>>;
  request(method: string, params?: unknown, options?: CallOptions): Promise<any> {
    return this.#out.request(method, params, options);
  }

  notify<K extends NotifyName<R>>(method: K, ...args: CallArgs<R[K], []>): boolean;
  notify(method: string, params?: unknown): boolean {
    return this.#out.notify(method, params);
  }

  /** Not in this version: throws. To be: calls, and reads the result as a stream. */
  stream<K extends StreamName<R>>(method: K, ...args: CallArgs<R[K]>): AsyncIterable<Item<R[K]>>;
  stream(): never {
    return noStreams();
  }

  /** Not in this version: throws. To be: reads a stream found inside params or a result. */
  iterate<T>(_stream: Stream<T>): AsyncIterable<T> {
    return noStreams();
  }

  /** Not in this version: throws. To be: makes a stream of an iterable, to stand anywhere in params or a result. */
  offer<T>(_source: AsyncIterable<T> | Iterable<T>): Stream<T> {
    return noStreams();
  }

  /** Starts a batch: its calls wait for `send()`, and time out from now on. */
  batch(): Batch<R> {
    const batch = this.#out.batch();
    return {
      remote: remoteOf((method, params, options) => batch.request(method, params, options)),
      request: (method: string, params?: unknown, options?: CallOptions) =>
        batch.request(method, params, options) as Promise<any>,
      notify: (method: string, params?: unknown) => batch.notify(method, params),
      send: () => batch.send(),
    };
  }

  /**
   * Serves one more method on this peer, over one of that name in `methods`; answers the undo. A name of the reserved
   * `rpc.` space may be registered. Throws when this peer has such a handler already.
   */
  handle<K extends keyof L & string>(method: K, handler: Handler<L[K], Context<L, R, D>>): () => void {
    if (typeof method !== "string") throw expected("method", "a string", method);
    return this.#in.handle(method, checkHandler("handler", handler));
  }

  /**
   * Closes the connection, and resolves when it has ended. Pending calls reject at once with `ConnectionLostError`, and the
   * `signal` of every running handler aborts. `reason` is cut at 123 bytes. Rejects with a `TypeError`, and closes nothing,
   * when `code` is neither 1000 nor 3000 to 4999: the others are not an application's to send (RFC 6455, section 7.4).
   */
  async close(code = 1000, reason = ""): Promise<void> {
    if (code !== 1000 && !(Number.isInteger(code) && code >= 3000 && code <= 4999)) {
      throw expected("code", "1000 or a whole number from 3000 to 4999", code);
    }
    if (typeof reason !== "string") throw expected("reason", "a string", reason);
    this.#end(code, reason);
    await this.closed;
  }

  /** `close()`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #send(text: string): boolean {
    return this.#hand(text, undefined);
  }

  /** A transport that throws breaks its promise; that must not reach whoever called, or stop a loop over many peers. */
  #hand(text: string, shared: SharedMessage | undefined): boolean {
    if (this.#line.ended !== undefined) return false;
    try {
      if (shared === undefined || this.#transport.sendShared === undefined) return this.#transport.send(text);
      return this.#transport.sendShared(shared);
    } catch (error) {
      this.#report(error);
      return false;
    }
  }

  /** Ends the connection from this side. */
  #end(code: number, reason: string): void {
    if (this.#line.ended !== undefined) return;
    this.#stop(new Error(`closed on this side with ${code}${reason && ` (${reason})`}`));
    this.#transport.close(code, cutReason(reason));
  }

  /** The transport says that it is over. */
  #finish(info: CloseInfo): void {
    if (this.#closeInfo !== undefined) return;
    this.#closeInfo = info;
    // Not made in vain: an error notes the stack, which is dear.
    if (this.#line.ended === undefined)
      this.#stop(info.error ?? new Error(`closed with ${info.code}${info.reason && ` (${info.reason})`}`));
    this.#tell("close", info);
    this.#resolveClosed?.(info);
  }

  /** Settles everything. After this no call waits, no timer runs, and nothing is sent. */
  #stop(cause: Error): void {
    if (this.#line.ended !== undefined) return;
    this.#line.ended = cause;
    this.#out.pending.failAll(cause);
    this.#in.abortAll(cause);
    this.#settings.owner.ended(this);
  }

  #report(error: unknown): void {
    tell(this, "error", [error]);
    this.#settings.owner.failed(error, this);
  }

  #tell(event: Exclude<keyof PeerEvents, "error">, ...args: unknown[]): void {
    tell(this, event, args, (error) => this.#report(error));
  }

  static {
    sendShared = (peer, message) => peer.#hand(message.text, message);
    endPeer = (peer, code, reason) => peer.#end(code, reason);
    inspect = (peer) => ({
      pending: peer.#out.pending.size,
      openBatches: peer.#out.pending.openBatches,
      running: peer.#in.running,
      owed: peer.#in.owed,
      ...peer.#router.counts(),
    });
  }
}

function noStreams(): never {
  throw new Error("streams are not in this version");
}
