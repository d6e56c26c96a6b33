/**
 * One connection, from its first message to its end: what goes out, what comes in, and the one place where both are over.
 * A peer is the public face of one.
 */
import type { EventEmitter } from "eventemitter3";
import { soleSlot, type Slot } from "./batch.js";
import type { Conventions } from "./conventions.js";
import { Dispatcher, type Host } from "./dispatch.js";
import { Outgoing, type Line } from "./outgoing.js";
import type { PendingCall } from "./pending.js";
import { Router, type Gate } from "./router.js";
import type { Settings } from "./settings.js";
import { newCounts, type PeerStats } from "./stats.js";
import { tell } from "./tell.js";
import {
  cutReason,
  type CloseInfo,
  type Receiver,
  type Reply,
  type SharedMessage,
  type Transport,
} from "./transport.js";

/** What becomes of a message to many for a peer that reads too slowly. */
export type WhenSlow = "drop" | "close";

/** What a peer sits on. */
export class Connection implements Receiver, Line, Host, Gate {
  /** Why it is over; `undefined` while it is not. The whole of its state. */
  ended: Error | undefined;
  /** How the transport ended; `undefined` until it has. */
  closeInfo: CloseInfo | undefined;
  readonly counts = newCounts();
  /** What encodes streams, once one was offered here. */
  offering: Conventions | undefined;
  /** Told after `close` is emitted. */
  onClosed: ((info: CloseInfo) => void) | undefined;
  /** Whose connection it is: emits its events, and is what handlers are given. */
  readonly peer: EventEmitter<any>;
  readonly settings: Settings;
  readonly outgoing: Outgoing;
  readonly incoming: Dispatcher;
  readonly router: Router;
  /** Why nothing can be sent but answers, where that is so. */
  readonly answersOnly: Error | undefined;
  readonly #transport: Transport;
  #conventions: Conventions | undefined;

  constructor(peer: EventEmitter<any>, transport: Transport, settings: Settings) {
    this.peer = peer;
    this.settings = settings;
    this.#transport = transport;
    this.answersOnly = transport.answersOnly;
    this.outgoing = new Outgoing(this, settings);
    this.incoming = new Dispatcher(this, settings);
    this.router = new Router(this, this.incoming, this.outgoing.pending, settings);
    transport.start(this);
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
    return this.settings.choseDialect || this.#transport.isOurs === true;
  }

  get mute(): Error | undefined {
    return this.answersOnly ?? this.ended;
  }

  receive(text: string, reply?: Reply): void {
    this.router.receive(text, reply && this.#slotOf(reply));
  }

  dispatch(value: unknown, reply?: Reply): void {
    this.router.route(value, reply && this.#slotOf(reply));
  }

  idle(): void {
    this.#transport.idle?.();
  }

  /** The transport says that it is over. */
  closed(info: CloseInfo): void {
    if (this.closeInfo !== undefined) return;
    this.closeInfo = info;
    // Not made in vain: an error notes the stack, which is dear.
    if (this.ended === undefined)
      this.#stop(info.error ?? new Error(`closed with ${info.code}${info.reason && ` (${info.reason})`}`));
    this.#tell("close", info);
    this.onClosed?.(info);
  }

  send(text: string): boolean {
    const { maxUnsentBytes } = this.settings.limits;
    if (this.#unsentBytes > maxUnsentBytes) this.end(1013, `more than ${maxUnsentBytes} bytes wait to be read`);
    return this.#hand(text, undefined);
  }

  /** Sends what goes to many. For a slow reader it is dropped, in good time before that would close the connection. */
  sendShared(message: SharedMessage, whenSlow: WhenSlow): boolean {
    if (whenSlow === "close") return this.send(message.text);
    if (this.#unsentBytes > this.settings.limits.maxUnsentBytes / 2) {
      this.counts.dropped++;
      return false;
    }
    this.counts.notificationsSent++;
    return this.#hand(message.text, message);
  }

  /** What happened so far, and how full everything is. */
  stats(): PeerStats {
    const { received: bytesReceived = 0, sent: bytesSent = 0 } = this.#transport.traffic ?? {};
    return {
      ...this.counts,
      pending: this.outgoing.pending.size,
      running: this.incoming.running,
      streams: this.#conventions?.counts().streams ?? 0,
      unsentBytes: this.#unsentBytes,
      bytesReceived,
      bytesSent,
    };
  }

  get #unsentBytes(): number {
    return this.#transport.unsentBytes ?? 0;
  }

  /** Whatever was not answered yet: the other side need not go on with it. */
  givenUp(call: PendingCall, reason: unknown): void {
    this.conventions.cancel(call, reason);
  }

  report(error: unknown): void {
    tell(this.peer, "error", [error]);
    this.settings.owner.failed(error, this.peer);
  }

  unhandled(method: string, params: unknown): void {
    this.#tell("notification", method, params);
  }

  /** Ends it from this side, with any code. */
  end(code: number, reason: string): void {
    if (this.ended !== undefined) return;
    this.#stop(new Error(`closed on this side with ${code}${reason && ` (${reason})`}`));
    this.#transport.close(code, cutReason(reason));
  }

  #slotOf(reply: Reply): Slot {
    return soleSlot(this.settings.limits.maxReplyBytes, (text) => this.ended === undefined && reply(text));
  }

  /** A transport that throws breaks its promise; that must not reach whoever called, or stop a loop over many peers. */
  #hand(text: string, shared: SharedMessage | undefined): boolean {
    if (this.mute !== undefined) return false;
    try {
      if (shared === undefined || this.#transport.sendShared === undefined) return this.#transport.send(text);
      return this.#transport.sendShared(shared);
    } catch (error) {
      this.report(error);
      return false;
    }
  }

  /** Settles everything. After this no call waits, no timer runs, and nothing is sent. */
  #stop(cause: Error): void {
    if (this.ended !== undefined) return;
    this.ended = cause;
    this.outgoing.pending.failAll(cause);
    this.incoming.abortAll(cause);
    this.#conventions?.end(cause);
    this.settings.owner.ended(this.peer);
  }

  #tell(event: string, ...args: unknown[]): void {
    tell(this.peer, event, args, (error) => this.report(error));
  }
}
