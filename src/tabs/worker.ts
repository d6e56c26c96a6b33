/** The shared worker of the tabs of a page: forwards what they send over its own connection, which it closes after the last one. */
import { setDeadline } from "../base/deadlines.js";
import { open, type ConnectOptions } from "../connect.js";
import type { Supplied } from "../client/credentials.js";
import { Abnormal, GoingAway } from "../message/close-codes.js";
import { Busy } from "../message/codes.js";
import { RpcError } from "../message/errors.js";
import type { CloseInfo } from "../message/transport.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import { connectionOf, type AnyPeer, type PeerOptions, type MethodOptions } from "../peer/peer.js";
import { holdLock, makeLock, whenReleased } from "./locks.js";
import { closeOf, inTab, METHOD, readTabMessage } from "./wire.js";

/** What a tab posts: first the lock that it holds while it lives, then its messages as text, its calls of `reconnect`, and its close. */
export type FromTab =
  { readonly lock: string } | string | { readonly reconnect: true } | { readonly closed: CloseInfo };

/** What the worker posts: the lock that it holds while it lives, the changes of the connection, and the messages of the server. */
export type ToTab =
  | { readonly lock: string }
  | { readonly resumed: { readonly maxMessageBytes: number | undefined } }
  | { readonly suspended: true }
  | { readonly attempt: { readonly number: number; readonly delayMs: number }; readonly reason: string }
  | { readonly lost: string }
  | { readonly message: unknown }
  | { readonly missed: number }
  | { readonly closed: CloseInfo };

/** A tab that is connected to the worker by a port. After a loss, it has another port and number. */
interface Tab {
  readonly number: number;
  readonly port: MessagePort;
  /** Whether its peer is open at the server. */
  isOpen: boolean;
}

const PAGE_ENDED: CloseInfo = { code: GoingAway, reason: "the page has ended" };
/** When the call that opens a tab is repeated, if it was refused because of too many messages. */
const RETRY_MS = 1_000;
/** How long tabs have to connect again after a loss. If none does, the connection is closed. */
const RETURN_MS = 1_000;

/** The options of the connection that tabs share. */
export type ShareOptions = PeerOptions & ConnectOptions & MethodOptions<any, any>;

/** The one connection of the tabs. */
class SharedConnection {
  readonly #url: Supplied<string | URL>;
  readonly #options: ShareOptions;
  /** The tabs by their number, until they are closed or lost. */
  readonly #tabs = new Map<unknown, Tab>();
  readonly #lock = makeLock();
  /** Resolves when this worker holds its lock. */
  readonly #granted = new Promise<void>((granted) => holdLock(this.#lock, granted));
  /** The present connection; `undefined` while there is no tab. */
  #peer: AnyPeer | undefined;
  /** The next attempt to connect, of which tabs learn that come meanwhile. */
  #attempt: { number: number; dueAt: number; reason: string } | undefined;
  #count = 0;

  constructor(url: Supplied<string | URL>, options: ShareOptions) {
    this.#url = url;
    this.#options = options;
  }

  connect(port: MessagePort): void {
    const tab: Tab = { number: ++this.#count, port, isOpen: false };
    port.addEventListener("message", ({ data }: { data: FromTab }) => this.#received(tab, data));
    port.start();
    void this.#granted.then(() => post(tab, { lock: this.#lock }));
  }

  #received(tab: Tab, data: FromTab): void {
    if (typeof data === "string") {
      // If the connection refuses the message, the connection is about to end or to be lost, with all tabs.
      if (this.#tabs.has(tab.number)) connectionOf(this.#peer!).flow.sink.send(inTab(tab.number, data));
    } else if ("closed" in data) this.#remove(tab, data, data.closed);
    else if ("reconnect" in data) this.#peer?.reconnect();
    else this.#add(tab, data.lock);
  }

  #add(tab: Tab, lock: string): void {
    try {
      this.#peer ??= this.#open();
    } catch (error) {
      post(tab, { closed: { code: Abnormal, reason: String(error) } });
      throw error;
    }
    this.#tabs.set(tab.number, tab);
    if (this.#peer.state !== "open") this.#postAttempt(tab);
    whenReleased(lock, () => {
      // If the page lives after all, it connects again.
      post(tab, { suspended: true });
      this.#remove(tab, { lost: PAGE_ENDED.reason }, PAGE_ENDED);
    });
    void this.#begin(tab, this.#peer);
  }

  #open(): AnyPeer {
    const part: OwnPart = { receiveUnknown: (value) => this.#forward(value) };
    const feature: Feature = { name: "tabs", methods: () => [], create: () => part };
    const peer: AnyPeer = open(this.#url, { ...this.#options, use: [...(this.#options.use ?? []), feature] });
    this.#attempt = undefined;
    peer.on("suspend", () => {
      this.#attempt = undefined;
      this.#postAll({ suspended: true });
    });
    peer.on("attempt", ({ number, delayMs, error }) => {
      this.#attempt = { number, dueAt: performance.now() + delayMs, reason: error.message };
      this.#tabs.forEach((tab) => this.#postAttempt(tab));
    });
    peer.on("resume", () => this.#tabs.forEach((tab) => tab.isOpen && this.#resumed(tab, peer)));
    peer.on("missed", ({ count }) => this.#postAll({ missed: count }));
    peer.on("lost", ({ message }) => {
      // Each tab connects again, by another port: what it still posts here belongs to the lost session.
      this.#postAll({ lost: message });
      this.#tabs.clear();
      setDeadline({ deadline: 0, expire: () => this.#closeUnused() }, RETURN_MS);
    });
    peer.on("close", ({ code, reason }) => {
      if (peer !== this.#peer) return;
      this.#peer = undefined;
      this.#postAll({ closed: { code, reason } });
      this.#tabs.clear();
    });
    return peer;
  }

  /** Opens the peer of a tab at the server when the connection is open, unless the tab is closed or lost before. */
  async #begin(tab: Tab, peer: AnyPeer): Promise<void> {
    try {
      await peer.opened;
      if (!this.#tabs.has(tab.number)) return;
      const { outgoing, flow } = connectionOf(peer);
      await outgoing.requestDirectly(METHOD, { tab: tab.number }, { timeoutMs: Infinity }, flow.sink);
      tab.isOpen = true;
      this.#resumed(tab, peer);
    } catch (error) {
      if (!this.#tabs.has(tab.number)) return;
      if (error instanceof RpcError && error.code !== Busy)
        this.#remove(tab, { closed: { code: Abnormal, reason: error.message } });
      else setDeadline({ deadline: 0, expire: () => void this.#begin(tab, peer) }, RETRY_MS);
    }
  }

  #postAttempt(tab: Tab): void {
    if (this.#attempt === undefined) return;
    const { number, dueAt, reason } = this.#attempt;
    post(tab, { attempt: { number, delayMs: Math.max(0, dueAt - performance.now()) }, reason });
  }

  #resumed(tab: Tab, peer: AnyPeer): void {
    const { maxMessageBytes } = connectionOf(peer).transport;
    post(tab, { resumed: { maxMessageBytes } });
  }

  /** Takes a message of the server. A tab that has ended meanwhile is unknown. */
  #forward(value: unknown): boolean {
    const read = readTabMessage(value);
    if (read === undefined) return false;
    const tab = this.#tabs.get(read.tab);
    if (tab === undefined) return true;
    if (read.closed === undefined) post(tab, { message: read.message });
    else this.#remove(tab, { closed: read.closed });
    return true;
  }

  /** Removes a tab, and posts why. With `closed`, ends its peer at the server. Closes the connection after the last tab. */
  #remove(tab: Tab, why: ToTab, closed?: CloseInfo): void {
    post(tab, why);
    if (!this.#tabs.delete(tab.number)) return;
    if (closed !== undefined) connectionOf(this.#peer!).flow.sink.send(closeOf(tab.number, closed));
    this.#closeUnused();
  }

  /** Closes the connection, unless a tab uses it. */
  #closeUnused(): void {
    if (this.#tabs.size > 0) return;
    void this.#peer?.close();
    this.#peer = undefined;
  }

  #postAll(message: ToTab): void {
    this.#tabs.forEach((tab) => post(tab, message));
  }
}

function post({ port }: Tab, message: ToTab): void {
  port.postMessage(message);
}

/**
 * Makes this shared worker the one connection of the tabs that call `openTab`. Call it once, at the top of the worker's script, before any
 * `await`. Connects as `open` of `reciproc` does with these arguments, for the first tab, and again for the next tab after the connection has
 * closed. The server needs the feature `tabs`. After the last tab, closes the connection. If `open` throws, the tab closes with 1006, and the error is uncaught.
 */
export function shareConnection(url: Supplied<string | URL>, options: ShareOptions = {}): void {
  const shared = new SharedConnection(url, options);
  addEventListener("connect", (event) => shared.connect((event as MessageEvent).ports[0]!));
}
