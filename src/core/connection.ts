/**
 * One connection, from its first message to its end: what goes out, what comes in, and the one place where both are over.
 * A peer is the public face of one; or of several, one after the other, where its transport outlives what was in it.
 */
import { Backlog } from "./backlog.js";
import { soleSlot, type Slot } from "./batch.js";
import type { Conventions, Streaming } from "./conventions.js";
import { Dispatcher, type Host } from "./dispatch.js";
import { Outgoing, type Line } from "./outgoing.js";
import type { EventEmitter } from "./packages.js";
import type { PendingCall } from "./pending.js";
import { Router, type Gate } from "./router.js";
import type { Settings } from "./settings.js";
import { newCounts, type Counts, type PeerStats } from "./stats.js";
import { tell, warnOnce } from "./tell.js";
import {
  cutReason,
  type CloseInfo,
  type Frame,
  type Receiver,
  type Reply,
  type SharedMessage,
  type TickBudget,
  type Ticket,
  type Transport,
} from "./transport.js";

/** What becomes of a message to many for a peer that reads too slowly. */
export type WhenSlow = "drop" | "close";

/** Makes the connection of a peer that goes on where `lost` is over. */
export type Succeed = (lost: Connection, transport: Transport) => Connection;

/** What a peer sits on. */
export class Connection implements Receiver, Line, Host, Gate {
  /** Why it is over; `undefined` while it is not. The whole of its state. */
  ended: Error | undefined;
  /** How the connection ended; `undefined` until its transport has. */
  closeInfo: CloseInfo | undefined;
  declare readonly counts: Counts;
  /** Errors with id null that this connection has sent, less those that have come in since: an implementation may answer each with one. Never below 0. */
  namelessErrors = 0;
  /** What encodes streams, once one was offered here. */
  offering: Streaming | undefined;
  /** Told of all that comes, once a stream was read here. */
  reading: Streaming | undefined;
  /** Told after `close` is emitted. */
  onClosed: ((info: CloseInfo) => void) | undefined;
  /** Whose connection it is: emits its events, and is what handlers are given. */
  declare readonly peer: EventEmitter<any>;
  declare readonly settings: Settings;
  declare readonly outgoing: Outgoing;
  declare readonly incoming: Dispatcher;
  declare readonly router: Router;
  /** Why nothing can be sent but answers, where that is so. */
  declare readonly answersOnly: Error | undefined;
  /** From `suspend` to `resume`: it waits for a socket, or after a loss for what is to be sent before everything else. */
  isSuspended = false;
  /** Whether it waits for a socket. */
  #isDown = false;
  /** Most bytes of broadcasts that are among the unsent ones. */
  #broadcastBytes = 0;
  /** Made when more than `maxUnsentBytes` wait for the first time. */
  #backlog: Backlog | undefined;
  /** What this side ended the connection with, if it did so for a reason of its own. */
  #cause: CloseInfo | undefined;
  readonly #transport: Transport;
  readonly #succeed: Succeed;
  #conventions: Conventions | undefined;

  constructor(peer: EventEmitter<any>, transport: Transport, settings: Settings, succeed: Succeed, lost?: Connection) {
    this.peer = peer;
    this.settings = settings;
    this.#transport = transport;
    this.#succeed = succeed;
    this.answersOnly = transport.answersOnly;
    this.counts = lost?.counts ?? newCounts();
    this.outgoing = new Outgoing(this, settings, lost?.outgoing);
    this.incoming = new Dispatcher(this, settings, lost?.incoming);
    this.router = new Router(this, this.incoming, this.outgoing, settings);
    // After a loss it is not known what the next server understands, so messages wait here until that is known.
    if (settings.owner.opensFirst === true || lost !== undefined) this.outgoing.hold();
    if (lost !== undefined) {
      this.isSuspended = this.#isDown = true;
      this.onClosed = lost.onClosed;
    }
    const { startLater } = settings.owner;
    if (startLater === undefined || lost !== undefined) transport.start(this);
    else startLater(() => transport.start(this));
  }

  /** The connection that goes on in place of this one, which is lost. */
  successor(transport: Transport): Connection {
    return new Connection(this.peer, transport, this.settings, this.#succeed, this);
  }

  /** What stands on the core. Most connections never need it. */
  get conventions(): Conventions {
    return (this.#conventions ??= this.settings.conventions(this));
  }

  /** The same, when something needed it already. */
  get usedConventions(): Conventions | undefined {
    return this.#conventions;
  }

  /** Whether messages of the dialect may be sent that the application did not write: it chose one, or the other side is ours. */
  get speaksDialect(): boolean {
    return this.settings.choseDialect || this.isToOurs;
  }

  /** Whether the other side is ours. */
  get isToOurs(): boolean {
    return this.#transport.isOurs === true;
  }

  get budget(): TickBudget | undefined {
    return this.#transport.budget;
  }

  get mute(): Error | undefined {
    return this.answersOnly ?? this.ended;
  }

  receive(text: string, reply?: Reply): void {
    this.router.receive(text, reply && this.#slotOf(reply));
  }

  dispatch(value: unknown, reply?: Reply): void {
    if (this.reading !== undefined) this.reading.note(value, this.#transport.currentFrame);
    this.router.route(value, reply && this.#slotOf(reply));
  }

  idle(): void {
    this.#transport.idle?.();
  }

  afterRead(then: () => void): boolean {
    return this.#transport.afterRead?.(then) ?? false;
  }

  /** The transport says that it is over. */
  closed(told: CloseInfo): void {
    if (this.closeInfo !== undefined) return;
    // A slow or broken reader often never answers the close. What the socket then reports, 1006, says nothing about the cause.
    const info = this.#cause === undefined ? told : { ...told, ...this.#cause };
    this.closeInfo = info;
    // Not made in vain: an error notes the stack, which is dear.
    if (this.ended === undefined)
      this.#stop(info.error ?? new Error(`closed with ${info.code}${info.reason && ` (${info.reason})`}`));
    this.settings.owner.closed?.(this.peer, info);
    this.#tell("close", info);
    this.onClosed?.(info);
  }

  suspended(): void {
    this.#isDown = true;
    // It may wait already, for what is to be sent first.
    if (this.isSuspended) return;
    this.isSuspended = true;
    this.#tell("suspend");
  }

  resumed(): void {
    this.#isDown = false;
    // With `onOpen`, messages go on waiting for what it sends.
    if (this.settings.owner.opensFirst !== true) this.outgoing.release();
    this.#resume();
    this.#conventions?.resumed();
    // What waited for a socket waits for its reader now.
    this.checkRoom();
  }

  lost(error: Error, transport = this.#transport): void {
    // First: who hears of the loss, a handler that aborts for it too, has the peer as it goes on, and can close it.
    const next = this.#succeed(this, transport);
    this.#settle(error);
    if (next.ended === undefined) this.#tell("lost", error);
  }

  /** What was to be sent before everything else is sent. */
  release(): void {
    if (this.ended !== undefined) return;
    this.outgoing.release();
    this.#resume();
  }

  #resume(): void {
    if (this.ended !== undefined || !this.isSuspended || this.#isDown || this.outgoing.isHeld) return;
    this.isSuspended = false;
    this.#tell("resume");
  }

  send(text: string): boolean {
    this.checkRoom();
    return this.hand(text, undefined);
  }

  checkRoom(): void {
    const { unsentBytes } = this;
    this.#forgetSent(unsentBytes);
    if (unsentBytes > this.settings.limits.maxUnsentBytes && this.ended === undefined)
      (this.#backlog ??= new Backlog(this)).exceeded();
  }

  tooSlow(reason: string): void {
    if (this.#transport.tooSlow?.(reason) !== true) this.end(1013, reason);
  }

  /** Whether the connection waits for a socket: then nothing is to be produced for the other side. */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Counts what is kept here for the other side, as `Transport.keeps` does. */
  keep(by: number): void {
    this.#transport.keeps?.(by);
  }

  /** Keeps a frame, by default the one that is received at present, until `dropFrame`. Returns it; `undefined` where frames are not counted. */
  keepFrame(frame = this.#transport.currentFrame): Frame | undefined {
    if (frame !== undefined && frame.users++ === 0) this.keep(frame.length);
    return frame;
  }

  /** One user of a frame needs it no more. */
  dropFrame(frame: Frame | undefined): void {
    if (frame !== undefined && --frame.users === 0) this.keep(-frame.length);
  }

  /** Whether what can wait on this side may be sent, and not wait in the connection: far from where that ends it. */
  get hasRoom(): boolean {
    return !this.#isDown && this.unsentBytes <= this.settings.limits.maxUnsentBytes / 4;
  }

  /** Longest single answer, or all answers to a batch. */
  get maxReplyBytes(): number {
    return Math.min(this.settings.limits.maxReplyBytes, this.maxSentBytes);
  }

  get refusal(): Error {
    const waits = this.isSuspended || this.outgoing.isHeld;
    const reason = waits ? "too much waits for a connection already" : "the connection is closing";
    return this.mute ?? new Error(reason);
  }

  get maxSentBytes(): number {
    return this.#transport.maxMessageBytes ?? Infinity;
  }

  withdraw(call: PendingCall): void {
    const ticket = call.batch ?? call;
    this.outgoing.withdraw(ticket);
    this.#transport.withdraw?.(ticket);
  }

  /** What happened so far, and how full everything is. */
  stats(): PeerStats {
    const { received: bytesReceived = 0, sent: bytesSent = 0 } = this.#transport.traffic ?? {};
    return {
      ...this.counts,
      pending: this.outgoing.waiting,
      running: this.incoming.running,
      streams: this.#conventions?.counts().streams ?? 0,
      unsentBytes: this.unsentBytes,
      bytesReceived,
      bytesSent,
    };
  }

  /** Bytes that wait to be sent. */
  get unsentBytes(): number {
    return this.#transport.unsentBytes ?? 0;
  }

  /** At least so many of them are no broadcasts. Only these can close the connection. */
  get ordinaryUnsentBytes(): number {
    return this.unsentBytes - this.#broadcastBytes;
  }

  /** Sends a broadcast, or drops it if the other side reads too slowly. Returns true if it is sent, or waits. */
  broadcast(message: SharedMessage): boolean {
    const { unsentBytes } = this;
    this.#forgetSent(unsentBytes);
    const isTaken =
      unsentBytes <= this.settings.limits.maxUnsentBytes / 2 && this.hand(message.text, undefined, message);
    if (!isTaken) return false;
    this.#broadcastBytes += message.unsentBytes;
    return true;
  }

  /** Earlier broadcasts have left unless as many bytes are unsent. While there is no socket, they wait and are not unsent. */
  #forgetSent(unsentBytes: number): void {
    if (this.#broadcastBytes > unsentBytes && !this.#isDown) this.#broadcastBytes = unsentBytes;
  }

  /** Whatever was not answered yet: the other side need not go on with it. */
  givenUp(call: PendingCall, reason: unknown): void {
    this.conventions.cancel(call, reason);
  }

  report(error: unknown, method?: string): void {
    const { owner, warned } = this.settings;
    const isHeard = tell(this.peer, "error", [error]);
    if (!owner.failed(error, this.peer) && !isHeard && method !== undefined) warnOnce(warned, method, error);
  }

  /** An error records its stack, which costs several microseconds: too much for each message of a flood that no listener hears of. */
  reportIfHeard(make: () => unknown): void {
    if (this.peer.listenerCount("error") > 0 || this.settings.owner.hasErrorListener) this.report(make());
  }

  unhandled(method: string, params: unknown): void {
    this.#tell("notification", method, params);
  }

  /** Ends the connection for a reason of this side's own, with any code. That reason is reported, whatever the other side answers. */
  end(code: number, reason: string, retryMs?: number): void {
    if (this.ended === undefined) this.#cause = { code, reason: cutReason(reason) };
    this.close(code, reason, retryMs);
  }

  /** Ends the connection for the application. What is reported is how the transport ended. */
  close(code: number, reason: string, retryMs?: number): void {
    if (this.ended !== undefined) return;
    this.#stop(new Error(`closed on this side with ${code}${reason && ` (${reason})`}`));
    this.#transport.close(code, cutReason(reason), retryMs);
  }

  #slotOf(reply: Reply): Slot {
    return soleSlot(this.maxReplyBytes, (text) => this.ended === undefined && reply(text));
  }

  /** A transport that throws breaks its promise; that must not reach whoever called, or stop a loop over many peers. */
  hand(text: string, ticket: Ticket | undefined, shared?: SharedMessage): boolean {
    if (this.mute !== undefined) return false;
    try {
      if (shared === undefined || this.#transport.sendShared === undefined) return this.#transport.send(text, ticket);
      return this.#transport.sendShared(shared);
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  /** Settles everything. After this no call waits, no timer runs, and nothing is sent. */
  #stop(cause: Error): void {
    if (this.ended !== undefined) return;
    this.#settle(cause);
    this.settings.owner.ended(this.peer);
  }

  /** From here on nothing of this connection is taken or sent, whoever still holds on to it. */
  #settle(cause: Error): void {
    this.ended = cause;
    this.#backlog?.stop();
    this.outgoing.failAll(cause);
    this.incoming.abortAll(cause);
    this.#conventions?.end(cause);
  }

  #tell(event: string, ...args: unknown[]): void {
    tell(this.peer, event, args, (error) => this.report(error));
  }
}

/** Sends a broadcast to one peer, and counts it. Returns true if it was taken. A broadcast for a slow reader is dropped, and never ends its connection. */
export function sendToOne(connection: Connection, message: SharedMessage, whenSlow: WhenSlow): boolean {
  const { counts } = connection;
  if (whenSlow === "close") {
    counts.notificationsSent++;
    return connection.send(message.text);
  }
  const isTaken = connection.broadcast(message);
  counts[isTaken ? "notificationsSent" : "dropped"]++;
  return isTaken;
}
