/** The shared worker of the tabs of a page: forwards what they send over its own connection, which it closes after the last one. */
import { setDeadline } from "../base/deadlines.js";
import { open, type ConnectOptions } from "../connect.js";
import type { Supplied } from "../client/credentials.js";
import { Abnormal, GoingAway } from "../message/close-codes.js";
import { Busy } from "../message/codes.js";
import type { RpcError } from "../message/errors.js";
import type { CloseInfo } from "../message/transport.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import { connectionOf, type AnyPeer, type PeerOptions, type MethodOptions } from "../peer/peer.js";
import { holdLock, makeLock, whenReleased } from "./locks.js";
import { closeOf, inTab, METHOD, readTabMessage } from "./wire.js";

/** What a tab posts: a message as text, its close, or the lock that it holds while it lives. */
export type FromTab = string | { readonly closed: CloseInfo } | { readonly lock: string };

/** What the worker posts: the lock that it holds while it lives, the changes of the connection, and the messages of the server. */
export type ToTab =
  | { readonly lock: string }
  | { readonly resumed: { readonly maxMessageBytes: number | undefined } }
  | { readonly suspended: true }
  | { readonly lost: string }
  | { readonly message: unknown }
  | { readonly missed: number }
  | { readonly closed: CloseInfo };

/** A tab that is connected to the worker: from the call that opens its peer at the server until either has ended, or the session is lost. */
interface Tab {
  readonly number: number;
  readonly port: MessagePort;
  /** `"waiting"`: the connection is not open yet. `"opening"`: the call that opens its peer is sent. `"open"`: it is answered. */
  state: "waiting" | "opening" | "open";
}

const PAGE_ENDED: CloseInfo = { code: GoingAway, reason: "the page has ended" };
const REFUSED: CloseInfo = { code: GoingAway, reason: "the connection has refused a message" };
/** When a server is asked again that has refused a tab because too many messages came. */
const RETRY_MS = 1_000;

/** The options of the connection that tabs share. */
export type ShareOptions = PeerOptions & ConnectOptions & MethodOptions<any, any>;

/** The one connection of the tabs. */
class SharedConnection {
  readonly #url: Supplied<string | URL>;
  readonly #options: ShareOptions;
  readonly #tabs = new Map<unknown, Tab>();
  readonly #lock = makeLock();
  /** Resolves when this worker holds its lock. */
  readonly #granted = new Promise<void>((granted) => holdLock(this.#lock, granted));
  /** The present connection; `undefined` while there is no tab. */
  #peer: AnyPeer | undefined;
  #count = 0;

  constructor(url: Supplied<string | URL>, options: ShareOptions) {
    this.#url = url;
    this.#options = options;
  }

  add(port: MessagePort): void {
    const tab: Tab = { number: ++this.#count, port, state: "waiting" };
    port.addEventListener("message", ({ data }: { data: FromTab }) => this.#received(tab, data));
    port.start();
    void this.#granted.then(() => port.postMessage({ lock: this.#lock } satisfies ToTab));
    try {
      this.#peer ??= this.#connect();
    } catch (error) {
      post(tab, { closed: { code: Abnormal, reason: String(error) } });
      throw error;
    }
    this.#tabs.set(tab.number, tab);
    const peer = this.#peer;
    // If the peer closes instead, so does the tab.
    peer.opened.then(
      () => this.#begin(tab, peer),
      () => {},
    );
  }

  #connect(): AnyPeer {
    const part: OwnPart = { receiveUnknown: (value) => this.#forward(value) };
    const feature: Feature = { name: "tabs", methods: () => [], create: () => part };
    const peer: AnyPeer = open(this.#url, { ...this.#options, use: [...(this.#options.use ?? []), feature] });
    peer.on("suspend", () => this.#each((tab) => post(tab, { suspended: true })));
    peer.on("resume", () => this.#each((tab) => tab.state === "open" && this.#resumed(tab, peer)));
    peer.on("missed", ({ count }) => this.#each((tab) => post(tab, { missed: count })));
    peer.on("lost", ({ message }) => {
      // Each tab connects again, by another port: what it still posts here belongs to the lost session.
      this.#each((tab) => post(tab, { lost: message }));
      this.#tabs.clear();
    });
    peer.on("close", ({ code, reason }) => {
      if (peer !== this.#peer) return;
      this.#peer = undefined;
      this.#each((tab) => this.#remove(tab, { closed: { code, reason } }));
    });
    return peer;
  }

  /** Opens the peer of a tab at the server, unless the tab has closed meanwhile. */
  async #begin(tab: Tab, peer: AnyPeer): Promise<void> {
    if (!this.#tabs.has(tab.number)) return;
    const connection = connectionOf(peer);
    const { outgoing, flow } = connection;
    tab.state = "opening";
    try {
      await outgoing.requestDirectly(METHOD, { tab: tab.number }, { timeoutMs: Infinity }, flow.sink);
      tab.state = "open";
      this.#resumed(tab, peer);
    } catch (error) {
      // The events `lost` and `close` concern all tabs.
      if (connection.ended !== undefined) return;
      const { code, message } = error as RpcError;
      if (code !== Busy) return this.#remove(tab, { closed: { code: Abnormal, reason: message } });
      setDeadline({ deadline: 0, expire: () => void this.#begin(tab, peer) }, RETRY_MS);
    }
  }

  #resumed(tab: Tab, peer: AnyPeer): void {
    const { maxMessageBytes } = connectionOf(peer).transport;
    post(tab, { resumed: { maxMessageBytes } });
  }

  /** Takes a message of the server. A tab that has ended meanwhile is unknown. */
  #forward(value: unknown): boolean {
    const read = readTabMessage(value);
    const tab = this.#tabs.get(read?.tab);
    if (tab !== undefined && read!.closed === undefined) post(tab, { message: read!.message });
    else if (tab !== undefined) this.#remove(tab, { closed: read!.closed as CloseInfo });
    return read !== undefined;
  }

  #received(tab: Tab, data: FromTab): void {
    if (typeof data !== "string") {
      if ("closed" in data) this.#remove(tab, data, data.closed);
      else whenReleased(data.lock, () => this.#remove(tab, { closed: PAGE_ENDED }, PAGE_ENDED));
    } else if (this.#tabs.has(tab.number) && !connectionOf(this.#peer!).flow.sink.send(inTab(tab.number, data))) {
      post(tab, { suspended: true });
      this.#remove(tab, { lost: REFUSED.reason }, REFUSED);
    }
  }

  /** Removes a tab, and posts why. With `closed`, ends its peer at the server. Closes the connection after the last tab. */
  #remove(tab: Tab, why: ToTab, closed?: CloseInfo): void {
    post(tab, why);
    if (!this.#tabs.delete(tab.number)) return;
    const peer = this.#peer;
    if (peer === undefined) return;
    if (closed !== undefined && tab.state !== "waiting") connectionOf(peer).flow.sink.send(closeOf(tab.number, closed));
    if (this.#tabs.size > 0) return;
    this.#peer = undefined;
    void peer.close();
  }

  /** A copy: what is called may remove a tab. */
  #each(call: (tab: Tab) => void): void {
    for (const tab of Array.from(this.#tabs.values())) call(tab);
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
  addEventListener("connect", (event) => shared.add((event as MessageEvent).ports[0]!));
}
