/**
 * The server's end of a connection that tabs share. Each tab has a peer of its own, which is a part of that connection: its messages are
 * in the flow of the connection, and its calls count against the limits of the connection, with which it is suspended and ends.
 */
import { LiveFlow, NotificationHandle } from "../features/live.js";
import { Abnormal, Normal } from "../message/close-codes.js";
import { encodeResult, plainText, type MessageText } from "../message/codec.js";
import { InvalidParams, TooManySubscriptions } from "../message/codes.js";
import { member, type NotificationMessage, type RequestMessage } from "../message/message.js";
import type { CloseInfo, Frame, Link, LinkReceiver, SendHandle } from "../message/transport.js";
import { inMicrotask } from "../base/promises.js";
import type { ReadBudget } from "../base/read-budget.js";
import type { Connection } from "../peer/connection.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { Slot } from "../peer/incoming-call.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import type { Server } from "../server/server.js";
import { closeOf, HEAD_BYTES, inTab, METHOD, readTabMessage } from "./wire.js";

/** Most tabs of one connection. */
const MAX_TABS = 64;

/** The flow of a tab. It passes messages to the flow of the shared connection, which queues, drops and limits them. */
class TabFlow extends LiveFlow {
  get #link(): TabLink {
    return this.connection.transport as TabLink;
  }

  get #shared(): LiveFlow {
    return this.#link.shared.flow as LiveFlow;
  }

  override get isDown(): boolean {
    return this.#shared.isDown;
  }

  override get isReady(): boolean {
    return this.#shared.isReady;
  }

  override get unsentBytes(): number {
    return this.#shared.unsentBytes;
  }

  override send(text: MessageText, handle?: SendHandle): boolean {
    return !this.hasEnded && this.#link.send(text, handle);
  }

  override cancel(handle: SendHandle): boolean {
    return this.#shared.cancel(handle);
  }

  override afterRead(then: () => void): boolean {
    return this.#shared.afterRead(then);
  }
}

/** The link of a tab's peer. */
class TabLink implements Link {
  readonly isReciproc = true;
  readonly shared: Connection;
  /** The connection of the tab. */
  receiver!: Connection;
  readonly #tab: number;
  /** The links of the open tabs. */
  readonly #links: Map<unknown, TabLink>;
  /** What the shared connection keeps for the tab; `undefined` once the tab has ended. */
  #kept: number | undefined = 0;

  constructor(tab: number, shared: Connection, links: Map<unknown, TabLink>) {
    this.#tab = tab;
    this.shared = shared;
    this.#links = links;
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver as Connection;
  }

  send(text: MessageText, handle?: SendHandle): boolean {
    return this.shared.flow.send(inTab(this.#tab, plainText(text)), this.#handleOf(handle));
  }

  /**
   * Returns the handle for the shared flow. Several peers may share the handle of a notification: in the shared flow, each needs its own
   * handle and key. A handle of calls belongs to one peer.
   */
  #handleOf(handle: SendHandle | undefined): SendHandle | undefined {
    if (!(handle instanceof NotificationHandle)) return handle;
    const { droppable, latest, isBroadcast } = handle;
    return new NotificationHandle(droppable, latest && `${this.#tab} ${latest}`, isBroadcast, this.receiver);
  }

  /** Closes the tab. If the shared connection has ended, the tab reports the end of that. */
  close(code: number = Normal, reason = ""): void {
    this.#remove();
    const { shared, receiver } = this;
    const info = { code, reason };
    if (shared.ended !== undefined) return void (shared.peer as AnyPeer).closed.then((end) => receiver.closed(end));
    shared.flow.send(closeOf(this.#tab, info));
    inMicrotask(() => receiver.closed(info));
  }

  /** Ends the tab, which the client has closed. */
  end(info: CloseInfo): void {
    this.receiver.closed(info);
    this.#remove();
  }

  keeps(by: number): void {
    if (this.#kept === undefined) return;
    this.#kept += by;
    this.shared.transport.keeps?.(by);
  }

  /** Removes the tab, whose peer has ended. What is still kept is an incomplete reply to a batch, which is not sent any more. */
  #remove(): void {
    this.#links.delete(this.#tab);
    this.keeps(-this.#kept!);
    this.#kept = undefined;
  }

  reportMissed(count: number): void {
    this.shared.transport.reportMissed?.(count);
  }

  get maxMessageBytes(): number | undefined {
    const { maxMessageBytes } = this.shared.transport;
    return maxMessageBytes && maxMessageBytes - HEAD_BYTES;
  }

  get currentFrame(): Frame | undefined {
    return this.shared.transport.currentFrame;
  }

  get budget(): ReadBudget | undefined {
    return this.shared.transport.budget;
  }
}

/** The tabs of one connection. */
class Tabs implements OwnPart {
  readonly #shared: Connection;
  readonly #links = new Map<unknown, TabLink>();

  constructor(shared: Connection) {
    this.#shared = shared;
    shared.peer.on("suspend", () => this.#links.forEach(({ receiver }) => receiver.emit("suspend")));
  }

  /** Takes the call that opens a tab. There is no such method on a client, by HTTP POST, and in a batch. */
  receive(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { config, incoming } = this.#shared;
    if (config.hooks.server === undefined || slot !== incoming || !("id" in message)) return false;
    const { id } = message;
    const tab = member(message.params, "tab");
    const refuse = (code: number, text: string): void => incoming.putError(id, { code, message: text }, slot);
    if (!Number.isSafeInteger(tab) || this.#links.has(tab))
      refuse(InvalidParams, "Expected `tab` to be the number of no other tab");
    else if (this.#links.size >= MAX_TABS) refuse(TooManySubscriptions, `More than ${MAX_TABS} tabs`);
    // What is sent may end the connection.
    else if (slot.put(encodeResult(id, null)) && this.#shared.ended === undefined)
      this.#open(tab as number, config.hooks.server as Server<any, any, any>);
    return true;
  }

  #open(tab: number, server: Server<any, any, any>): void {
    const shared = this.#shared as Connection & { peer: AnyPeer };
    const link = new TabLink(tab, shared, this.#links);
    this.#links.set(tab, link);
    // A tab has no tabs.
    const use = shared.config.use.filter((feature) => feature !== tabs);
    const peer = server.accept(link, shared.peer.auth, { ...shared.config, use, Flow: TabFlow });
    connectionOf(peer).incoming.counter = shared.incoming;
    // The shared connection renews its credentials for all tabs.
    Object.defineProperty(peer, "auth", { get: () => shared.peer.auth });
  }

  receiveUnknown(value: unknown, slot: Slot): boolean {
    const read = readTabMessage(value);
    if (read === undefined || slot !== this.#shared.incoming) return false;
    // A tab that has ended meanwhile is unknown.
    const link = this.#links.get(read.tab);
    if (read.closed === undefined) link?.receiver.dispatch(read.message);
    else link?.end(read.closed);
    return true;
  }

  resumed(): void {
    this.#links.forEach(({ receiver }) => receiver.resumed());
  }

  end(error: Error): void {
    this.#links.forEach(({ receiver }) => receiver.end({ code: Abnormal, reason: "", error }, false));
  }
}

/**
 * Lets the tabs of a page share one connection, as an option of the server: `serve({ use: [tabs] })`. Each tab of `openTab` is a peer of
 * the server, with the `auth` of the connection, and takes no connection slot. All tabs count against the limits of the connection, which
 * has at most 64 of them. The event `peer` is emitted for the connection, and not for its tabs. When the connection is closed, its tabs
 * close with the same code.
 */
export const tabs: Feature = {
  name: "tabs",
  methods: () => [METHOD],
  create: (connection): OwnPart => new Tabs(connection as Connection),
};
