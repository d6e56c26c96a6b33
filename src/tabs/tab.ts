/** A tab whose peer speaks through a shared worker. */
import { Abnormal, GoingAway, Normal } from "../message/close-codes.js";
import { exceeds } from "../message/codec.js";
import type { CloseInfo, Link, LinkReceiver, SocketSource } from "../message/transport.js";
import type { AnyMethods, Contract } from "../contract/contract.js";
import type { Connection } from "../peer/connection.js";
import { endPeer, Peer, type Context, type Options } from "../peer/peer.js";
import { inMicrotask } from "../base/promises.js";
import { watchPage } from "../client/page.js";
import type { OpenArguments } from "../connect.js";
import { HEAD_BYTES } from "./wire.js";
import { holdLock, makeLock, whenReleased } from "./locks.js";
import type { FromTab, ToTab } from "./worker.js";

/**
 * The link of a tab, over a port to its worker. Its state is that of the connection of the worker. If that connection or the worker is
 * lost, the link takes another port, by which the worker opens another peer at the server.
 */
class WorkerLink implements Link {
  readonly isReciproc = true;
  readonly isConnecting = true;
  maxMessageBytes: number | undefined = undefined;
  /** Tries to connect now: the worker does, for all its tabs. */
  readonly delegate: SocketSource = { reconnect: () => (this.#post({ reconnect: true }), true) };
  readonly #makeWorker: () => SharedWorker;
  #receiver!: Connection;
  #port: MessagePort | undefined;
  /** Removes the listeners of the present port, and releases its lock. */
  #ends!: AbortController;

  constructor(makeWorker: () => SharedWorker) {
    this.#makeWorker = makeWorker;
  }

  start(receiver: LinkReceiver): void {
    this.#receiver = receiver as Connection;
    this.#ends = new AbortController();
    try {
      this.#connect(this.#makeWorker(), this.#ends.signal);
    } catch (error) {
      inMicrotask(() => this.#end({ code: Abnormal, reason: String(error), error: error as Error }));
    }
  }

  send(text: string): boolean {
    if (exceeds(text, this.maxMessageBytes ?? Infinity)) return false;
    this.#post(text);
    return true;
  }

  /**
   * Closes the tab. Does not wait for the worker, which may hang. Keeps the lock until the worker has read the close, because the worker
   * would learn of its release first.
   */
  close(code: number = Normal, reason = ""): void {
    this.#post({ closed: { code, reason } });
    inMicrotask(() => this.#receiver.closed({ code, reason }));
  }

  /** Gives up the session for this tab only: too much was queued while the connection was suspended. */
  endSession(reason: string): boolean {
    const { signal } = this.#ends;
    inMicrotask(() => signal.aborted || this.#lose(reason));
    return true;
  }

  #post(message: FromTab): void {
    this.#port?.postMessage(message);
  }

  #connect(worker: SharedWorker, signal: AbortSignal): void {
    const port = (this.#port = worker.port);
    let isLoaded = false;
    // Some browsers also report errors of a worker that runs.
    const failed = (): void => {
      if (!isLoaded) this.#end({ code: Abnormal, reason: "the shared worker was not loaded" });
    };
    const received = ({ data }: { data: ToTab }): void => {
      isLoaded = true;
      this.#received(data);
    };
    worker.addEventListener("error", failed, { signal });
    port.addEventListener("message", received, { signal });
    port.start();
    const lock = makeLock();
    const granted = (): void => {
      // The worker takes a tab with its lock. It must not take one that is closed by then.
      if (this.#receiver.ended === undefined) this.#post({ lock });
    };
    holdLock(lock, granted, signal);
  }

  #received(data: ToTab): void {
    const receiver = this.#receiver;
    if ("closed" in data) return this.#end(data.closed);
    // The worker has not read the close yet.
    if (receiver.ended !== undefined) return;
    if ("message" in data) receiver.dispatch(data.message);
    else if ("missed" in data) receiver.missed(data.missed);
    else if ("suspended" in data) receiver.suspended();
    else if ("attempt" in data) receiver.emit("attempt", { ...data.attempt, error: new Error(data.reason) });
    else if ("lost" in data) this.#lose(data.lost);
    else if ("lock" in data) whenReleased(data.lock, () => this.#workerEnded(), this.#ends.signal);
    else {
      const { maxMessageBytes } = data.resumed;
      this.maxMessageBytes = maxMessageBytes && maxMessageBytes - HEAD_BYTES;
      receiver.resumed();
    }
  }

  #workerEnded(): void {
    if (this.#receiver.ended === undefined) this.#receiver.suspended();
    this.#lose("the shared worker has ended");
  }

  /** Drops the port. The next receiver takes another, unless a listener of `suspend` has closed the peer. */
  #lose(reason: string): void {
    this.#dropPort();
    if (this.#receiver.ended === undefined) this.#receiver.lost(new Error(reason));
  }

  #end(info: CloseInfo): void {
    this.#dropPort();
    this.#receiver.closed(info);
  }

  #dropPort(): void {
    this.#ends.abort();
    this.#port?.close();
    this.#port = undefined;
  }
}

/**
 * Makes the peer of a tab, which speaks through the connection of a shared worker. `makeWorker` is called at once, and again after each
 * loss. It returns a new object each time, such as `() => new SharedWorker(url, { type: "module" })`. Returns `undefined` where there is no
 * SharedWorker, such as in Chrome on Android, and in a page that is not a secure context: then connect by `open`, with the same options.
 *
 * The peer is one of its own, as that of `open`: at the server too. Its state and its events are those of the shared connection: it is
 * `"connecting"` until that is open, and `suspend`, `attempt`, `resume`, `lost` and `missed` concern all tabs. If the worker ends, the peer emits `lost`.
 * The peer closes if the connection is closed for good, and if the server closes the tab, with that code. It closes with 1006 if the worker cannot
 * be made or loaded, or the server does not use the feature `tabs` or has 64 tabs of the connection, and with 1001 when the page ends. `close`
 * waits for nothing. Throws a `TypeError` for bad options, also for those of a connection, such as `reconnect` and `auth`: they belong to
 * `shareConnection`.
 */
export function openTab<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  makeWorker: () => SharedWorker,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>>>
): Peer<C, S> | undefined {
  const page = globalThis as { SharedWorker?: unknown; navigator?: { locks?: unknown } };
  if (page.SharedWorker === undefined || page.navigator?.locks === undefined) return undefined;
  const peer = new Peer<C, S>(new WorkerLink(makeWorker), (options[0] ?? {}) as Options<C, Context<C, S>>);
  const ignorePage = watchPage(
    () => {},
    () => {},
    () => endPeer(peer, { code: GoingAway, reason: "the page has ended" }),
  );
  void peer.closed.then(ignorePage);
  return peer;
}
