/** The shared worker of the tabs of a page: forwards what they send inside its own connection, which it closes after the last one. */
import { Abnormal, GoingAway } from "../message/close-codes.js";
import { RpcError } from "../message/errors.js";
import type { CloseInfo } from "../message/transport.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import { holdLock, makeLock, whenReleased } from "./locks.js";
import { METHOD } from "./server.js";

/** What a tab posts: a message as text, its close, the lock that it holds while it lives, or that it has read `lost`. */
export type FromTab = string | { readonly closed: CloseInfo } | { readonly lock: string } | { readonly lost: true };

/** What the worker posts: the lock that it holds while it lives, the changes of the connection, and the messages of the server. */
export type ToTab =
  | { readonly lock: string }
  | { readonly open: { readonly maxMessageBytes: number | undefined } }
  | { readonly suspended: true }
  | { readonly lost: string }
  | { readonly message: unknown }
  | { readonly missed: number }
  | { readonly closed: CloseInfo };

/** A tab that is connected to the worker. */
interface Tab {
  readonly number: number;
  readonly port: MessagePort;
  /** Whether it has not read yet that the connection was lost. What it has sent until then belongs to that, and is dropped. */
  isStale: boolean;
}

function post({ port }: Tab, message: ToTab): void {
  port.postMessage(message);
}

class SharedConnection {
  readonly #open: () => AnyPeer;
  readonly #tabs = new Map<number, Tab>();
  readonly #lock = makeLock();
  /** Resolves when this worker holds its lock. */
  readonly #granted = new Promise<void>((granted) => holdLock(this.#lock, granted));
  /** The present connection; `undefined` while there is no tab. */
  #peer: AnyPeer | undefined;
  #count = 0;

  constructor(open: () => AnyPeer) {
    this.#open = open;
  }

  add(port: MessagePort): void {
    const tab: Tab = { number: ++this.#count, port, isStale: false };
    port.addEventListener("message", ({ data }: { data: FromTab }) => this.#received(tab, data));
    port.start();
    try {
      this.#peer ??= this.#connect();
    } catch (error) {
      post(tab, { closed: { code: Abnormal, reason: String(error) } });
      throw error;
    }
    this.#tabs.set(tab.number, tab);
    void this.#granted.then(() => post(tab, { lock: this.#lock }));
    const peer = this.#peer;
    void this.#begin(tab, peer);
    peer.opened.then(
      () => peer.state === "open" && this.#opened(tab, peer),
      () => {},
    );
  }

  #connect(): AnyPeer {
    const peer = this.#open();
    peer.handle(METHOD, (frame: { tab: number; message?: unknown; missed?: number }) => this.#forward(frame));
    peer.on("resume", () => this.#tabs.forEach((tab) => this.#opened(tab, peer)));
    peer.on("suspend", () => this.#tabs.forEach((tab) => post(tab, { suspended: true })));
    peer.on("lost", ({ message }) => {
      for (const tab of this.#tabs.values()) {
        tab.isStale = true;
        post(tab, { lost: message });
        void this.#begin(tab, peer);
      }
    });
    peer.on("close", ({ code, reason }) => {
      if (peer !== this.#peer) return;
      this.#peer = undefined;
      for (const tab of this.#tabs.values()) this.#close(tab, { code, reason });
    });
    return peer;
  }

  /** Opens the peer of a tab at the server, and closes the tab when that peer has ended. If the connection is lost, so is the call. */
  async #begin(tab: Tab, peer: AnyPeer): Promise<void> {
    try {
      const info = (await peer.request(METHOD, { tab: tab.number }, { timeoutMs: Infinity })) as CloseInfo;
      // The server closes: the connection ends too, and the tab continues on the next one.
      if (info.code !== GoingAway) this.#close(tab, info);
    } catch (error) {
      if (error instanceof RpcError) this.#close(tab, { code: Abnormal, reason: error.message });
    }
  }

  /** Messages of the tab flow. */
  #opened(tab: Tab, peer: AnyPeer): void {
    const { maxMessageBytes } = connectionOf(peer).transport;
    post(tab, { open: { maxMessageBytes } });
  }

  #forward({ tab: number, message, missed }: { tab: number; message?: unknown; missed?: number }): void {
    const tab = this.#tabs.get(number);
    if (tab !== undefined) post(tab, missed === undefined ? { message } : { missed });
  }

  #received(tab: Tab, data: FromTab): void {
    const { number } = tab;
    if (typeof data === "string") {
      if (!tab.isStale && this.#tabs.has(number))
        this.#peer!.notify(METHOD, { tab: number, message: JSON.parse(data) as unknown });
    } else if ("closed" in data) {
      this.#leave(tab, data.closed);
      post(tab, data);
    } else if ("lock" in data) whenReleased(data.lock, () => this.#leave(tab, GONE));
    else tab.isStale = false;
  }

  /** The tab has closed its peer, or is gone. */
  #leave({ number }: Tab, closed: CloseInfo): void {
    if (!this.#tabs.has(number)) return;
    this.#peer!.notify(METHOD, { tab: number, closed });
    this.#remove(number);
  }

  /** The server has closed the peer of the tab, or the connection. */
  #close(tab: Tab, closed: CloseInfo): void {
    if (this.#remove(tab.number)) post(tab, { closed });
  }

  /** Returns true if the tab was here. Closes the connection behind the last one. */
  #remove(number: number): boolean {
    const wasHere = this.#tabs.delete(number);
    if (this.#tabs.size === 0) {
      void this.#peer?.close();
      this.#peer = undefined;
    }
    return wasHere;
  }
}

const GONE: CloseInfo = { code: GoingAway, reason: "the page is gone" };

/**
 * Makes this shared worker the one connection of the tabs that call `openTab`. Call it once, at the top of the worker's script. `open` makes
 * the connection, by `open` of `reciproc`: for the first tab, and again for the next tab after it has ended. The server needs the feature
 * `tabs`. With the last tab, the connection closes.
 */
export function shareConnection(open: () => AnyPeer): void {
  const shared = new SharedConnection(open);
  addEventListener("connect", (event) => shared.add((event as MessageEvent).ports[0]!));
}
