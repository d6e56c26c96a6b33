/**
 * The server's end of a shared connection. Each tab has a peer of its own here, whose messages go inside `$/tab` of the connection. The
 * call `$/tab {tab}` opens the peer, and is answered when the peer has ended.
 */
import { Abnormal, cutReason, GoingAway, Normal } from "../message/close-codes.js";
import { encodeError, encodeResult } from "../message/text.js";
import { InvalidParams, TooManySubscriptions } from "../message/codes.js";
import { member, type NotificationMessage, type RequestMessage } from "../message/message.js";
import type { CloseInfo, Frame, Link, LinkReceiver } from "../message/transport.js";
import type { Connection } from "../peer/connection.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { Slot } from "../peer/incoming-call.js";
import { isBusy, type AnyPeer } from "../peer/peer.js";

/** The method of the call that is a tab, and of the notifications with its messages. */
export const METHOD = "$/tab";
/** Most tabs of one shared connection. */
const MAX_TABS = 64;
/** What `$/tab` adds to a message, at most, in bytes. */
export const HEAD_BYTES = 80;

/** The part of a server that makes peers. */
interface Accepting {
  accept(transport: Link, auth: unknown): AnyPeer;
}

/** The link of a tab's peer. It is suspended and resumed with the shared connection. */
class TabLink implements Link {
  readonly isReciproc = true;
  receiver!: LinkReceiver;
  readonly #tab: number;
  readonly #shared: Connection;
  #onEnd: ((info: CloseInfo) => void) | undefined;

  /** `onEnd` is called once. */
  constructor(tab: number, shared: Connection, onEnd: (info: CloseInfo) => void) {
    this.#tab = tab;
    this.#shared = shared;
    this.#onEnd = onEnd;
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver;
  }

  send(text: string): boolean {
    return this.#put("message", text);
  }

  reportMissed(count: number): void {
    this.#put("missed", String(count));
  }

  close(code: number = Normal, reason = ""): void {
    const info = { code, reason };
    if (this.#left(info)) queueMicrotask(() => this.receiver.closed(info));
  }

  /** The tab or the shared connection has ended. */
  end(info: CloseInfo): void {
    if (this.#left(info)) this.receiver.closed(info);
  }

  /** Returns true for the first end. */
  #left(info: CloseInfo): boolean {
    const onEnd = this.#onEnd;
    this.#onEnd = undefined;
    onEnd?.(info);
    return onEnd !== undefined;
  }

  #put(name: string, json: string): boolean {
    const params = `{"tab":${this.#tab},"${name}":${json}}`;
    return this.#shared.flow.send(`{"jsonrpc":"2.0","method":"${METHOD}","params":${params}}`);
  }

  // What counts against the session counts against that of the shared connection.

  get unsentBytes(): number {
    return this.#shared.flow.unsentBytes;
  }

  get maxMessageBytes(): number | undefined {
    const { maxMessageBytes } = this.#shared.transport;
    return maxMessageBytes && maxMessageBytes - HEAD_BYTES;
  }

  get currentFrame(): Frame | undefined {
    return this.#shared.transport.currentFrame;
  }

  keeps(...given: [by: number, isBroadcast?: boolean]): void {
    this.#shared.transport.keeps?.(...given);
  }

  acceptsBroadcast(length: number): boolean {
    return this.#shared.transport.acceptsBroadcast?.(length) !== false;
  }
}

/** A tab. */
interface Tab {
  readonly link: TabLink;
  readonly peer: AnyPeer;
}

/** The tabs of one connection. */
class Tabs implements OwnPart {
  readonly #shared: Connection;
  readonly #tabs = new Map<number, Tab>();
  readonly #suspend = (): void => this.#each(({ receiver }) => receiver.suspended());

  constructor(shared: Connection) {
    this.#shared = shared;
  }

  isBusy(): boolean {
    return [...this.#tabs.values()].some(({ peer }) => isBusy(peer));
  }

  receive(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { hooks, transport } = this.#shared;
    // A peer of a tab has no tabs, and neither has the client.
    if (hooks.server === undefined || transport instanceof TabLink) return false;
    const tab = member(message.params, "tab");
    if ("id" in message) this.#open(message.id, tab, slot, hooks.server as Accepting);
    else this.#dispatch(this.#tabs.get(tab as number)?.link, message.params);
    return true;
  }

  #open(id: RequestMessage["id"], tab: unknown, slot: Slot, server: Accepting): void {
    const refuse = (code: number, message: string): void => void slot.put(encodeError(id, { code, message }));
    if (!Number.isSafeInteger(tab) || this.#tabs.has(tab as number))
      return refuse(InvalidParams, "Expected `tab` to be the number of no other tab");
    if (this.#tabs.size >= MAX_TABS) return refuse(TooManySubscriptions, `More than ${MAX_TABS} tabs`);
    const shared = this.#shared;
    const link = new TabLink(tab as number, shared, ({ code, reason }) => {
      this.#tabs.delete(tab as number);
      slot.put(encodeResult(id, { code, reason }));
    });
    shared.peer.off("suspend", this.#suspend).on("suspend", this.#suspend);
    const sharedPeer = shared.peer as AnyPeer;
    const peer = server.accept(link, sharedPeer.auth);
    // The shared connection renews its credentials for all tabs.
    Object.defineProperty(peer, "auth", { get: () => sharedPeer.auth });
    if (peer.state !== "closed") this.#tabs.set(tab as number, { link, peer });
  }

  /** Takes what a tab sends. One that has ended meanwhile is unknown. */
  #dispatch(link: TabLink | undefined, params: unknown): void {
    const closed = member(params, "closed");
    if (closed === undefined) return link?.receiver.dispatch(member(params, "message"));
    const [code, reason] = [member(closed, "code"), member(closed, "reason")];
    const isCode = Number.isInteger(code) && ((code as number) === GoingAway || (code as number) >= 3000);
    link?.end({
      code: isCode ? (code as number) : Normal,
      reason: typeof reason === "string" ? cutReason(reason) : "",
    });
  }

  resumed(): void {
    this.#each(({ receiver }) => receiver.resumed());
  }

  end(): void {
    this.#shared.peer.off("suspend", this.#suspend);
    this.#each((link) => link.end({ code: Abnormal, reason: "the shared connection has ended" }));
  }

  /** A copy: what is called may end a tab. */
  #each(call: (link: TabLink) => void): void {
    for (const { link } of Array.from(this.#tabs.values())) call(link);
  }
}

/**
 * Lets the tabs of a page share one connection, as an option of the server: `serve({ use: [tabs] })`. Each tab of `openTab` is a peer of
 * the server, with the `auth` of the connection, and takes no connection slot. A connection has at most 64. The event `peer` is emitted for
 * the connection, and not for its tabs. When the connection ends, so do the peers of its tabs, with 1006.
 */
export const tabs: Feature = {
  name: "tabs",
  methods: () => [METHOD],
  create: (connection) => new Tabs(connection as Connection),
};
