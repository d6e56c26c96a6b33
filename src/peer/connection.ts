/**
 * One connection, from its first message to its end: its state, its transport, and where each incoming message goes. A peer
 * has one connection at a time: after a loss, `lost` makes the next one, on the same link.
 */
import * as ErrorCode from "../message/codes.js";
import type { Config } from "./config.js";
import { Parts } from "./feature.js";
import type { Flow, FlowConnection } from "./flow.js";
import type { FailedCall } from "./hooks.js";
import type { AbortCause, Slot } from "./incoming-call.js";
import { IncomingCalls } from "./incoming-calls.js";
import { classify, isObject, parse, type Unchecked } from "../message/message.js";
import { OptionalCancel } from "./outgoing-call.js";
import { OutgoingCalls } from "./outgoing-calls.js";
import type { EventEmitter } from "../base/packages.js";
import { newCounts, type Counts } from "./stats.js";
import { runReporting, tell, warnOnce } from "../base/tell.js";
import { errorOfEnd, type CloseInfo, type LinkReceiver, type Link } from "../message/transport.js";
import { Abnormal, cutReason } from "../message/close-codes.js";

/** Why a connection has ended, and how. */
export class End implements AbortCause {
  /** What is reported; `undefined` until the transport has ended. */
  info: CloseInfo | undefined = undefined;
  /** How this side ended it, for a reason of its own. That is reported, whatever the other side answers. */
  readonly own: CloseInfo | undefined;
  readonly #what: string;
  readonly #how: CloseInfo;
  #reason: Error | undefined;

  /** `what`: what has ended, and how. */
  constructor(what: string, how: CloseInfo, own?: CloseInfo) {
    this.#what = what;
    this.#how = how;
    this.own = own;
  }

  /** Made when it is first read: an error records its stack, which takes several microseconds. */
  get reason(): Error {
    return (this.#reason ??= errorOfEnd(this.#what, this.#how));
  }
}

/** What a connection reports to its peer besides events. All peers share these functions. */
export interface PeerReports {
  /** The connection is lost, and `next` follows. */
  replaced(peer: EventEmitter<any>, next: Connection): void;
  /** Messages of the application flow for the first time. With `failure`: the connection has ended, whether they have flowed or not. */
  opened(peer: EventEmitter<any>, failure?: End): void;
  /** The event `close` was emitted, with `info`. */
  closed(peer: EventEmitter<any>, info: CloseInfo): void;
}

/** The connection of a peer. */
export class Connection implements LinkReceiver, FlowConnection {
  /** Why the connection has ended; `undefined` while it has not. */
  declare ended: End | undefined;
  /** True until messages of the application flow for the first time. Still true if the connection ended before that. */
  declare wasNeverOpen: boolean;
  /** The parts of the features, once one was needed. */
  declare madeParts: Parts | undefined;
  declare readonly counts: Counts;
  /** Emits the events of this connection. Handlers get it as `context.peer`. */
  declare readonly peer: EventEmitter<any>;
  declare readonly transport: Link;
  declare readonly config: Config;
  /** The messages on their way out. */
  declare readonly flow: Flow;
  declare readonly outgoing: OutgoingCalls;
  declare readonly incoming: IncomingCalls;
  readonly #reports: PeerReports;

  /** `previous`: the connection that this one follows. */
  constructor(peer: EventEmitter<any>, transport: Link, config: Config, reports: PeerReports, previous?: Connection) {
    this.ended = this.madeParts = undefined;
    this.wasNeverOpen = previous?.wasNeverOpen ?? transport.isConnecting === true;
    this.peer = peer;
    this.transport = transport;
    this.config = config;
    this.#reports = reports;
    this.counts = previous?.counts ?? newCounts();
    // A connection that follows a lost one waits for a socket. Until then it is not known what the next server understands.
    const isDown = this.wasNeverOpen || previous !== undefined;
    this.flow = new config.Flow(this, isDown);
    this.outgoing = new OutgoingCalls(this, previous?.outgoing);
    this.incoming = new IncomingCalls(this, previous?.incoming);
  }

  /** The parts of the features. Most connections never need one. */
  get parts(): Parts {
    return (this.madeParts ??= new Parts(this.config.use, this));
  }

  /** Receives one text. The reply goes into `slot`. */
  receive(text: string, slot?: Slot): void {
    this.dispatch(parse(text), slot);
  }

  /**
   * Receives one parsed message, or a member of a batch; `undefined` for text that is not JSON. `slot` takes the reply to a request and to
   * a malformed message. Any other message leaves it out.
   */
  dispatch(value: unknown, slot: Slot = this.incoming): void {
    if (this.ended !== undefined) return;
    let kind = classify(value);
    if (kind === "invalid" || kind === "broken") {
      // A feature may take the value: a batch, or a message of another version. Otherwise this side answers with an error.
      if (value === undefined) return this.incoming.refuse(null, ErrorCode.ParseError, "Parse error", slot);
      if (this.parts.first("receiveUnknown", value, slot)) return;
      // As vscode-jsonrpc does.
      if (this.config.dialect.readsNullParams && isObject(value) && value.params === null) {
        delete value.params;
        kind = classify(value);
      }
      if (kind === "broken" && !this.outgoing.isMeantAsResponse(value as Unchecked)) kind = "invalid";
    }
    if (kind === "response" || kind === "broken") this.outgoing.settle(kind, value as Unchecked, slot);
    else this.incoming.receive(kind, value, slot);
    // Notifications and responses get no response. The slot of a batch or of a POST must know that, or its reply would wait.
    if (slot !== this.incoming && kind !== "request" && kind !== "invalid") slot.leaveOut();
  }

  /** Ends the connection, whose transport has ended. */
  closed(reported: CloseInfo): void {
    if (this.ended?.info !== undefined) return;
    const own = this.ended?.own;
    // A slow or broken reader often never answers the close. The socket then reports 1006, which says nothing about the cause.
    const info = own === undefined ? reported : { ...reported, ...own };
    const end = this.ended ?? new End("closed", info);
    end.info = info;
    if (this.ended === undefined) this.#stop(end);
    this.config.hooks.closed?.(this.peer, info);
    this.emit("close", info);
    this.#reports.closed(this.peer, info);
  }

  suspended(): void {
    // A connection that waits for `release` is suspended already.
    const { isSuspended } = this.flow;
    this.flow.suspended();
    if (!isSuspended) this.emit("suspend");
  }

  drained(): void {
    this.flow.drained();
  }

  missed(count: number): void {
    if (this.ended === undefined) this.emit("missed", { count });
  }

  resumed(): void {
    this.flow.resumed();
    this.madeParts?.each("resumed");
    // With `onOpen`, messages stay queued until that is done.
    if (!this.config.hasOnOpen || this.flow.openingQueue === undefined) this.release();
  }

  lost(error: Error): void {
    const { transport } = this;
    // The next connection is made first: code that reacts to the loss, such as an aborted handler, must be able to close it.
    const next = new Connection(this.peer, transport, this.config, this.#reports, this);
    this.#reports.replaced(this.peer, next);
    transport.start(next);
    this.#settleAll(new End("lost", { code: Abnormal, reason: "", error }), next.outgoing);
    // A peer that was never open has lost nothing of its application.
    if (next.ended === undefined && !this.wasNeverOpen) this.emit("lost", error);
  }

  /** Messages of the application flow, for the first time or again, unless the socket is lost by now: `onOpen` is done. */
  release(): void {
    if (this.ended !== undefined) return;
    this.flow.release((text, handle) => {
      if (this.speaksDialect) return this.madeParts?.first("rewriteQueued", text, handle) ?? text;
      if (handle instanceof OptionalCancel) this.flow.cancel(handle);
      return text;
    });
    // What was sent may have ended the connection.
    if (this.ended !== undefined || this.flow.isSuspended) return;
    if (!this.wasNeverOpen) return this.emit("resume");
    this.wasNeverOpen = false;
    this.#reports.opened(this.peer);
  }

  /** Whether messages of the dialect may be sent that the application did not write. */
  get speaksDialect(): boolean {
    return this.config.choseDialect || this.transport.isReciproc === true;
  }

  /** Emits an error that has no caller. `name`: where it was thrown, one of a bounded number of names. */
  report(error: unknown, call?: FailedCall, name?: string): void {
    const { hooks } = this.config;
    const isHeard = tell(this.peer, "error", [error, call]);
    if (!hooks.error?.(error, this.peer, call) && !isHeard && name !== undefined)
      warnOnce(hooks.server ?? this.peer, name, error);
  }

  /**
   * Emits an error that the other side can cause with each message. Its stack is expensive, so `make` runs only if there is a
   * listener.
   */
  reportToListeners(make: () => unknown, call?: FailedCall): void {
    if (this.peer.listenerCount("error") > 0 || this.config.hooks.hasErrorListener?.()) this.report(make(), call);
  }

  /** Emits an event. What its listeners throw is reported. */
  emit(event: string, ...args: unknown[]): void {
    tell(this.peer, event, args, (error) => this.report(error));
  }

  /**
   * Ends the connection from this side, with any code. Calls reject with `end.error` as their cause, if there is one. With `isReported`,
   * `end` is reported, whatever the other side answers. Otherwise, it is reported how the transport ended.
   */
  end(end: CloseInfo, isReported = true): void {
    this.flow.flush();
    // Sending what was queued may end the connection, as its other side reads too slowly.
    if (this.ended !== undefined) return;
    const { transport } = this;
    const { code, error } = end;
    const reason = cutReason(end.reason);
    const own = { code, reason, ...(error !== undefined && { error }) };
    const unsent = this.#stop(new End("closed on this side", end, isReported ? own : undefined));
    transport.sayBye?.({ ...end, reason }, unsent);
    runReporting(
      () => transport.close(code, reason),
      (failure) => {
        this.report(failure);
        // A transport that cannot be closed does not report its end.
        this.closed({ code: Abnormal, reason: "" });
      },
    );
  }

  /** Returns the messages that a full transport has not taken. */
  #stop(end: End): ReturnType<Flow["stop"]> {
    const unsent = this.#settleAll(end);
    this.#reports.opened(this.peer, end);
    this.config.hooks.ended?.(this.peer);
    return unsent;
  }

  /**
   * Settles every call, except those that `next` makes again. After this no call waits, no timer runs, and nothing of this connection
   * is received or sent.
   */
  #settleAll(end: End, next?: OutgoingCalls): ReturnType<Flow["stop"]> {
    this.ended = end;
    const unsent = this.flow.stop();
    this.outgoing.rejectAll(end, next);
    this.incoming.abortAll(end);
    this.madeParts?.each("end", end.reason);
    return unsent;
  }
}
