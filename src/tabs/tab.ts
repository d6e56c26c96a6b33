/** A tab whose peer speaks through a shared worker. */
import { Abnormal, GoingAway } from "../message/close-codes.js";
import type { CloseInfo, Link, LinkReceiver } from "../message/transport.js";
import type { AnyMethods, Contract } from "../contract/contract.js";
import { endPeer, Peer, type Context, type Options } from "../peer/peer.js";
import { watchPage } from "../client/page.js";
import type { OpenArguments } from "../connect.js";
import { HEAD_BYTES } from "./server.js";
import { holdLock, makeLock, whenReleased } from "./locks.js";
import type { FromTab, ToTab } from "./worker.js";

/** The link of a tab: mirrors the connection of its worker, and loses it with the worker. Then it starts another worker. */
class WorkerLink implements Link {
  readonly isReciproc = true;
  readonly isConnecting = true;
  maxMessageBytes: number | undefined = undefined;
  readonly #makeWorker: () => SharedWorker;
  #receiver!: LinkReceiver;
  #port: MessagePort | undefined;
  /** Ends what the present worker and this tab know of each other. */
  #ends = new AbortController();

  constructor(makeWorker: () => SharedWorker) {
    this.#makeWorker = makeWorker;
  }

  start(receiver: LinkReceiver): void {
    this.#receiver = receiver;
    if (this.#port === undefined) this.#connect();
  }

  send(text: string): boolean {
    this.#post(text);
    return true;
  }

  close(code = 1000, reason = ""): void {
    this.#post({ closed: { code, reason } });
  }

  #post(message: FromTab): void {
    this.#port!.postMessage(message);
  }

  #connect(): void {
    const worker = this.#makeWorker();
    const { port } = worker;
    const { signal } = this.#ends;
    this.#port = port;
    worker.addEventListener("error", () => this.#end({ code: Abnormal, reason: "the shared worker was not loaded" }));
    port.addEventListener("message", ({ data }: { data: ToTab }) => this.#received(data), { signal });
    port.start();
    const lock = makeLock();
    holdLock(lock, () => port.postMessage({ lock }), signal);
  }

  #received(data: ToTab): void {
    const receiver = this.#receiver;
    if ("message" in data) receiver.dispatch(data.message);
    else if ("missed" in data) receiver.missed(data.missed);
    else if ("suspended" in data) receiver.suspended();
    else if ("closed" in data) this.#end(data.closed);
    else if ("lock" in data) whenReleased(data.lock, () => this.#workerEnded(), this.#ends.signal);
    else if ("lost" in data) {
      this.#post({ lost: true });
      receiver.lost(new Error(data.lost));
    } else {
      this.maxMessageBytes = data.open.maxMessageBytes && data.open.maxMessageBytes - HEAD_BYTES;
      receiver.resumed();
    }
  }

  #workerEnded(): void {
    const error = new Error("the shared worker has ended");
    if (this.#receiver.ended !== undefined) return this.#end({ code: Abnormal, reason: error.message });
    this.#ends.abort();
    this.#ends = new AbortController();
    this.#port = undefined;
    // Starts the next one.
    this.#receiver.lost(error);
  }

  #end(info: CloseInfo): void {
    if (this.#ends.signal.aborted) return;
    this.#ends.abort();
    this.#port!.close();
    this.#receiver.closed(info);
  }
}

/**
 * Makes the peer of a tab, which speaks through the connection of a shared worker. `worker` makes that, such as
 * `() => new SharedWorker(url, { type: "module" })`, and again if it ends. Returns `undefined` where there is no SharedWorker, such as in Chrome
 * on Android, and in a page that is not a secure context: then connect by `open`, with the same options.
 *
 * The peer is one of its own, as that of `open`: at the server too. Its state and its events are those of the shared connection: it is
 * `"connecting"` until that is open, `suspend`, `resume` and `lost` concern all tabs, and if the worker ends, the peer emits `lost`. It closes
 * if the connection is closed for good, if the server closes it, with 1006 if the worker cannot be loaded or the server has not the feature
 * `tabs`, and with the page. Throws a `TypeError` for bad options.
 */
export function openTab<S extends Contract<S> = AnyMethods, C extends Contract<C> = AnyMethods>(
  worker: () => SharedWorker,
  ...options: OpenArguments<C, S, Options<NoInfer<C>, Context<C, S>>>
): Peer<C, S> | undefined {
  const page = globalThis as { SharedWorker?: unknown; navigator?: { locks?: unknown } };
  if (page.SharedWorker === undefined || page.navigator?.locks === undefined) return undefined;
  const peer = new Peer<C, S>(new WorkerLink(worker), (options[0] ?? {}) as Options<C, Context<C, S>>);
  const ignorePage = watchPage(
    () => {},
    () => {},
    () => endPeer(peer, { code: GoingAway, reason: "the page is left" }),
  );
  void peer.closed.then(ignorePage);
  return peer;
}
