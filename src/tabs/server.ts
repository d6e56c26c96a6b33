/**
 * The server's end of a connection that tabs share. Each tab has a peer of its own, which is a part of that connection: its messages are
 * in the flow of the connection, and its calls count against the limits of the connection, with which it is suspended and ends.
 */
import { LiveFlow, NotificationHandle } from "../features/live.js";
import { Abnormal, cutReason, GoingAway, Normal } from "../message/close-codes.js";
import { plainText, type MessageText } from "../message/codec.js";
import { InvalidParams, TooManySubscriptions } from "../message/codes.js";
import { isObject, member, type Id, type NotificationMessage, type RequestMessage } from "../message/message.js";
import { encodeError, encodeResult } from "../message/text.js";
import type { CloseInfo, Frame, Link, LinkReceiver, SendHandle } from "../message/transport.js";
import type { ReadBudget } from "../base/read-budget.js";
import type { Config } from "../peer/config.js";
import type { Connection } from "../peer/connection.js";
import type { Feature, OwnPart } from "../peer/feature.js";
import type { Slot } from "../peer/incoming-call.js";
import { connectionOf, type AnyPeer } from "../peer/peer.js";
import { closeOf, HEAD_BYTES, inTab, METHOD, readTabMessage } from "./wire.js";

/** Most tabs of one connection. */
const MAX_TABS = 64;

/** The part of a server that makes peers. */
interface Accepting {
  accept(transport: Link, auth: unknown, config: Config): AnyPeer;
}

/** The flow of a tab: that of the shared connection, which alone queues, drops and limits. */
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

  override get hasRoom(): boolean {
    return this.#shared.hasRoom;
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

  /** The shared flow sends what is queued. */
  override resumed(): void {}
}

/** The link of a tab's peer. */
class TabLink implements Link {
  readonly isReciproc = true;
  readonly shared: Connection;
  /** The connection of the tab. */
  receiver!: Connection;
  readonly #tab: number;
  /** Removes the tab. Returns false if it was removed before. */
  readonly #remove: () => boolean;
  /** What the shared connection keeps for the tab; `undefined` once the tab has ended. */
  #kept: number | undefined = 0;

  constructor(tab: number, shared: Connection, remove: () => boolean) {
    this.#tab = tab;
    this.shared = shared;
    this.#remove = remove;
  }

  start(receiver: LinkReceiver): void {
    this.receiver = receiver as Connection;
  }

  send(text: MessageText, handle?: SendHandle): boolean {
    return this.shared.flow.send(inTab(this.#tab, plainText(text)), this.#handleOf(handle));
  }

  /** Peers share the handle of a notification, and it has the key of one peer. Those of calls are of one call each. */
  #handleOf(handle: SendHandle | undefined): SendHandle | undefined {
    if (!(handle instanceof NotificationHandle)) return handle;
    const { droppable, latest, isBroadcast } = handle;
    return new NotificationHandle(droppable, latest && `${this.#tab} ${latest}`, isBroadcast, this.receiver);
  }

  /** This side closes the tab, or the shared connection has ended, whose end is then that of the tab. */
  close(code: number = Normal, reason = ""): void {
    if (!this.#remove()) return;
    this.#release();
    const { shared, receiver } = this;
    const info = { code, reason };
    if (shared.ended !== undefined) return void (shared.peer as AnyPeer).closed.then((end) => receiver.closed(end));
    shared.flow.send(closeOf(this.#tab, info));
    queueMicrotask(() => receiver.closed(info));
  }

  /** The client has closed the tab. */
  end(info: CloseInfo): void {
    this.#remove();
    this.receiver.closed(info);
    this.#release();
  }

  keeps(by: number): void {
    if (this.#kept === undefined) return;
    this.#kept += by;
    this.shared.transport.keeps?.(by);
  }

  /** Forgets what is kept for the tab: an incomplete reply to a batch, which is not sent any more. */
  #release(): void {
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
  }

  /** Takes the call that opens a tab. By HTTP POST, and in a batch, there is no such method, and neither on a client. */
  receive(message: RequestMessage | NotificationMessage, slot: Slot): boolean {
    const { hooks, incoming } = this.#shared;
    if (hooks.server === undefined || slot !== incoming || !("id" in message)) return false;
    this.#open(message.id, member(message.params, "tab"), hooks.server as Accepting);
    return true;
  }

  #open(id: Id, tab: unknown, server: Accepting): void {
    const shared = this.#shared;
    const refuse = (code: number, message: string): boolean => shared.flow.send(encodeError(id, { code, message }));
    if (!Number.isSafeInteger(tab) || this.#links.has(tab))
      return void refuse(InvalidParams, "Expected `tab` to be the number of no other tab");
    if (this.#links.size >= MAX_TABS) return void refuse(TooManySubscriptions, `More than ${MAX_TABS} tabs`);
    shared.flow.send(encodeResult(id, null));
    // What was sent may have ended the connection.
    if (shared.ended !== undefined) return;
    const link = new TabLink(tab as number, shared, () => this.#links.delete(tab));
    if (this.#links.size === 0) shared.peer.off("suspend", this.#suspend).on("suspend", this.#suspend);
    this.#links.set(tab, link);
    const { config, peer: sharedPeer } = shared as Connection & { peer: AnyPeer };
    // A tab has no tabs.
    const use = config.use.filter((feature) => feature !== tabs);
    const peer = server.accept(link, sharedPeer.auth, { ...config, use, Flow: TabFlow });
    connectionOf(peer).incoming.counter = shared.incoming;
    // The shared connection renews its credentials for all tabs.
    Object.defineProperty(peer, "auth", { get: () => sharedPeer.auth });
  }

  receiveUnknown(value: unknown, slot: Slot): boolean {
    const read = readTabMessage(value);
    if (read === undefined || slot !== this.#shared.incoming) return false;
    // A tab that has ended meanwhile is unknown.
    const link = this.#links.get(read.tab);
    if (read.closed === undefined) link?.receiver.dispatch(read.message);
    else link?.end(closeInfoOf(read.closed));
    return true;
  }

  readonly #suspend = (): void => this.#each(({ receiver }) => receiver.emit("suspend"));

  resumed(): void {
    this.#each(({ receiver }) => receiver.resumed());
  }

  end(error: Error): void {
    this.#each(({ receiver }) => receiver.close({ code: Abnormal, reason: "", error }));
  }

  /** A copy: what is called may end a tab. */
  #each(call: (link: TabLink) => void): void {
    for (const link of Array.from(this.#links.values())) call(link);
  }
}

/** Returns a close that a client has sent, as a socket would report it. */
function closeInfoOf(closed: unknown): CloseInfo {
  const { code, reason } = (isObject(closed) ? closed : {}) as { code?: unknown; reason?: unknown };
  const isCode =
    Number.isInteger(code) && (code === GoingAway || ((code as number) >= 3000 && (code as number) <= 4999));
  return { code: isCode ? (code as number) : Normal, reason: typeof reason === "string" ? cutReason(reason) : "" };
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
