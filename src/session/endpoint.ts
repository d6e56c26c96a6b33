/**
 * One end of a link that speaks `reciproc.v1`, as a state machine without timers and clock. It takes frames by `receiveFrame`, and
 * writes frames to the socket of its `Attachment`. `docs/PROTOCOL.md` defines the states and the ten rules of a session. A comment that
 * begins with "Rule" names the rule that its line keeps.
 */
import * as CloseCode from "../message/close-codes.js";
import { exceeds, sentForm, type MessageText } from "../message/codec.js";
import { isObject, member, parse } from "../message/message.js";
import { isCount } from "../message/options.js";
import type { CloseInfo, LinkReceiver, SendHandle } from "../message/transport.js";
import * as Frames from "./frames.js";
import { ROOM_FOR_PONGS, type Socket } from "../socket/socket.js";
import { Session } from "./session.js";
import { COLLECTED_PONGS, frameOf, isTooLong, PACK_LENGTH } from "./sizes.js";
import type { Coalescer } from "../socket/coalescer.js";
import { Attachment, type AttachedKind, type EndpointLimits, type State } from "./state.js";

/** The reasons for which a client discards its session. */
const NO_SESSIONS = "the server keeps no sessions any more";
const NO_SUCH_SESSION = "the server has no such session";

/**
 * The end of a client, which carries one connection after the other, each over one or more sockets. `session/link.ts` gives it its
 * sockets and its times, and `server/link.ts` adds the parts of a server, whose end carries one connection.
 */
export abstract class Endpoint {
  declare state: State;
  /** Whether both sides take binary frames, as far as is known. */
  declare takesBytes: boolean;
  declare readonly limits: EndpointLimits;
  /** Takes the messages, and reports of them. Undefined until `start`. Sockets are read after that. */
  declare receiver: LinkReceiver | undefined;
  /** Whether this end uses sessions. */
  readonly #wantsSession: boolean;
  /** The number of dropped messages that is not reported to the other side yet. */
  #missed = 0;

  constructor(limits: EndpointLimits, wantsSession: boolean) {
    this.state = { kind: "connecting" };
    this.takesBytes = false;
    this.receiver = undefined;
    this.limits = limits;
    this.#wantsSession = wantsSession;
  }

  // What a subclass takes.

  /** Calls `flush` at the end of the tick, and decides what is sent before. */
  abstract readonly tick: Pick<Coalescer, "countMessage" | "schedule">;
  /** Takes the messages of a pack. */
  abstract receivePack(messages: unknown[]): void;
  /** Something waits because the wire is full. When that has drained, the subclass calls `drain`. */
  abstract socketFull(): void;
  /** Messages flow. `wasSuspended`: the receiver has queued its messages until now. */
  abstract reportReady(wasSuspended: boolean): void;
  /** The connection has ended. `isRemote`: the other side ended it, and closes the socket. */
  abstract reportEnd(end: CloseInfo, isRemote: boolean): void;
  /**
   * Client: the server does not have the session. The next connection begins on the same socket, that of `at`. `isAgreed`: as in `begin`.
   */
  abstract reportDiscarded(reason: string, at: Attachment, isAgreed: boolean): void;
  /** Takes a control frame that this class does not know. */
  abstract control(frame: object): void;
  /** Server: the client has the newest token (rule 4). */
  confirmed?(): void;

  /** The present socket, and the last one while it closes. */
  get socket(): Socket | undefined {
    return this.state.socket;
  }

  /** The attachment, if messages may be sent on it: in all its states except `resuming`. */
  get flowing(): Attachment | undefined {
    const { state } = this;
    return state instanceof Attachment && state.kind !== "resuming" ? state : undefined;
  }

  /** Whether the other side is a reciproc peer. Then this end sends packs: a server after its hello, a client after its own. */
  get isReciproc(): boolean {
    const { kind, session } = this.state;
    return session !== undefined || kind === "sessionless" || kind === "greeting";
  }

  /**
   * Returns the attachment if it takes a message at once. Rule 7: no message gets a number while the log or the socket is full. `drain`
   * follows when they have room again. Without a session, the caller learns from the socket whether it is closed.
   */
  protected withRoom(): Attachment | undefined {
    const at = this.flowing;
    if (at?.session === undefined) return at;
    // If messages of this tick are in the send buffer, their check holds for this one too.
    if (at.length > 0) return at.socket.open ? at : undefined;
    const { session, socket } = at;
    const isSocketFull = socket.unsentBytes >= this.limits.highWaterBytes;
    if (isSocketFull) this.socketFull();
    return isSocketFull || !session.hasRoom || !socket.open ? undefined : at;
  }

  // Sockets.

  /**
   * Client: begins on a new socket. `isAgreed`: whether the server agreed to `reciproc.v1`. `hello`: the content of its first frame,
   * `undefined` if that is no hello or has not come. `isAwaited`: the client offered to resume, so the server waits for its frame.
   */
  protected begin(at: Attachment, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    at.hello = hello;
    if (hello !== undefined) this.#receiveServerHello(at, hello, isAwaited);
    else if (at.session !== undefined) this.#discard(NO_SESSIONS, at, isAgreed);
    else this.startMessages(at, isAgreed ? "undecided" : "plain");
  }

  /** Drops the attachment: its socket is lost or superseded. `end` has the close code. */
  detach(end: CloseInfo): void {
    const { state } = this;
    const { session } = state;
    if (state.kind === "ended") state.socket = undefined;
    // Rule 6: some closes end the session. Rule 9: any other close also suspends a session that the client has not confirmed yet.
    else if (session === undefined || CloseCode.endsSession(end.code)) this.#forget(end, undefined);
    else {
      // The send handles of the buffered messages say sent, so these messages must be replayed.
      if (state instanceof Attachment && state.messages !== undefined) session.push(`[${state.messages.join(",")}]`);
      this.state = { kind: "suspended", session };
    }
  }

  // Incoming frames.

  /** Takes a frame of the present socket. */
  receiveFrame(text: string): void {
    const { state } = this;
    if (state.kind !== "live" && state.kind !== "sessionless") return this.#receiveUnpacked(state, text);
    const frame = parse(text);
    // A pack or a control frame: the first byte decides.
    if (Array.isArray(frame)) {
      const { maxMessageBytes } = this.limits;
      // A UTF-16 code unit takes at most three bytes.
      if (text.length * 3 > maxMessageBytes && isTooLong(text, maxMessageBytes))
        return this.end(CloseCode.MessageTooBig, CloseCode.TOO_LARGE);
      this.#countFrame(state, text.length);
      this.receivePack(frame);
    } else if (isObject(frame)) {
      if ("missed" in frame) this.#receiveMissed(state, text, frame.missed);
      else this.#receiveControl(state, frame);
      // Without other output, an ack sends the hello.
      if (state.owesHello && state.length === 0 && state.controls === undefined) this.#oweAck(state);
    } else this.fail("neither a pack nor a control frame");
  }

  /** Takes a frame in a state in which no packs come. */
  #receiveUnpacked(state: State, text: string): void {
    if (state.kind === "resuming") return this.#receiveResumed(state, parse(text));
    if (!(state instanceof Attachment)) return;
    const hello = state.kind === "undecided" ? Frames.helloOf(text) : undefined;
    if (hello !== undefined) return this.#receiveServerHello(state, hello, true);
    // A server's first frame decides for good. A client may send plain frames until its hello.
    if (state.kind === "undecided") state.kind = "plain";
    // The socket accepts longer frames, for packs of several messages.
    if (exceeds(text, this.limits.maxMessageBytes)) this.end(CloseCode.MessageTooBig, CloseCode.TOO_LARGE);
    else this.receiver!.dispatch(parse(text));
  }

  /** Takes a binary frame of the present socket. Returns false if it is text, because not both sides take binary frames. */
  receiveBinary(frame: Uint8Array): boolean {
    const { state } = this;
    if (!this.takesBytes || (state.kind !== "live" && state.kind !== "sessionless")) return false;
    // Checked first: reading a frame parses and copies it.
    if (frame.length > this.limits.maxMessageBytes) this.end(CloseCode.MessageTooBig, CloseCode.TOO_LARGE);
    else {
      const message = this.limits.readBytes!(frame);
      if (message === undefined) this.fail("a binary frame breaks its rules");
      else {
        this.#countFrame(state, frame.length);
        this.receivePack([message]);
      }
    }
    return true;
  }

  /** Counts a received data frame. */
  #countFrame(at: Attachment, length: number): void {
    // Rule 7: acks are sent on receipt. The hello is sent before the first ack.
    const ackDue = at.session?.receive(length);
    if (ackDue === "now" || at.owesHello) this.#oweAck(at);
    else at.ackDue ??= ackDue;
  }

  /** Sends an ack at the end of the tick. */
  #oweAck(at: Attachment): void {
    at.ackDue = "now";
    this.tick.schedule();
  }

  #receiveMissed(at: Attachment, text: string, count: unknown): void {
    if (!isCount(count) || count === 0) return this.fail("`missed` is no count");
    this.#countFrame(at, text.length);
    this.receiver!.missed(count);
  }

  #receiveControl(at: Attachment, frame: object): void {
    if ("ping" in frame) this.#pong(at, frame.ping);
    else if ("ack" in frame) this.#receiveAck(at, frame.ack);
    else if ("bye" in frame) this.#receiveBye(frame.bye);
    else this.control(frame);
  }

  /** Client: takes the server's hello. */
  #receiveServerHello(at: Attachment, hello: unknown, isAwaited: boolean): void {
    const { session } = at;
    this.takesBytes = this.limits.bytes === true && Frames.says(hello, "bytes");
    const offer = this.#wantsSession ? member(hello, "session") : undefined;
    if (!isObject(offer)) {
      if (session !== undefined) return this.#discard(NO_SESSIONS, at);
      this.flushMessages();
      this.write([Frames.sessionlessHello(this.limits.bytes)]);
      this.startMessages(at, "sessionless");
    } else if (session === undefined) this.#open(at, offer, isAwaited);
    // Rule 1: a returning client sends `resume`, and nothing else until `resumed`.
    else this.write([JSON.stringify({ resume: session.resume(this.limits) })]);
  }

  /**
   * Client: accepts the session that the server offers. The data frames of both sides are counted from their hellos on. The session
   * exists with the server's hello (rule 9). So the client's hello is sent with the first other frame, or at once if the server waits
   * for it.
   */
  #open(at: Attachment, offer: unknown, isAwaited: boolean): void {
    const offered = Frames.sessionOf(offer);
    if (offered === undefined) return this.fail("`session` of a hello breaks its rules");
    this.flushMessages();
    at.owesHello = true;
    if (isAwaited) this.write([]);
    this.startMessages(at, "live", new Session(this.limits, offered));
  }

  /** Client: takes the response to `resume`. Any other data frame would belong to no session (rule 1). */
  #receiveResumed(at: Attachment, frame: unknown): void {
    if (!isObject(frame)) return this.fail("data before `resumed`");
    if ("bye" in frame) return this.#receiveBye(frame.bye);
    if (!("resumed" in frame)) return;
    if (member(frame.resumed, "refused") !== undefined) return this.#discard(NO_SUCH_SESSION, at);
    const { session } = at;
    const resumed = Frames.resumedOf(frame.resumed);
    if (resumed === undefined || session?.canHaveReceived(resumed.received) !== true)
      return this.fail("`resumed` breaks its rules");
    // Rule 4: the client acks before all other frames, which confirms the new token to the server.
    session.token = resumed.token;
    this.#sendAck(at, session);
    session.rewind(resumed.received);
    this.startMessages(at, "live", session);
  }

  #receiveAck(at: Attachment, count: unknown): void {
    const { session } = at;
    if (session === undefined) return;
    if (!isCount(count) || count >= session.next) return this.fail("`ack` is no count of the frames sent");
    session.ackTo(count);
    // Rule 4: an ack on the present socket confirms the newest token.
    this.confirmed?.();
    this.drain();
  }

  /** Rule 6: the other side ends the session on purpose. */
  #receiveBye(bye: unknown): void {
    if (!this.#wantsSession) return;
    const end = Frames.byeOf(bye) ?? { code: CloseCode.Normal, reason: "" };
    // No longer than the reason of a close, which an application may pass on.
    this.#end({ ...end, reason: CloseCode.cutReason(end.reason) }, true);
  }

  #pong(at: Attachment, value: unknown): void {
    const { unsentBytes } = at.socket;
    if (unsentBytes >= ROOM_FOR_PONGS) return;
    if (at.session?.owes) this.#oweAck(at);
    const pong = Frames.pongFrame(value);
    if (pong === undefined) return this.fail("a ping that cannot be answered");
    (at.controls ??= []).push(pong);
    // Collected frames do not count as unsent, so few are collected.
    if (unsentBytes > 0 || at.controls.length * pong.length >= COLLECTED_PONGS) this.#flushControls(at);
    else this.tick.schedule();
  }

  // Outgoing messages.

  /** As `Link.send`. */
  send(text: MessageText): boolean | "full" {
    const { session } = this.state;
    if (session !== undefined && exceeds(text, session.theirs.maxMessageBytes)) return false;
    let at = this.withRoom();
    if (at !== undefined && at.length > 0) at = this.makeRoom(at, text);
    if (at === undefined) return this.state.session !== undefined && "full";
    if (typeof text !== "string") {
      if (session === undefined) return at.socket.send(text.frame);
      this.sendData(at, text.frame);
      return true;
    }
    const isDue = this.tick.countMessage(at.length + text.length + 1);
    if (!isDue || at.length > 0) {
      // Without a session, no other socket follows a closed one.
      if (!at.socket.open) return false;
      (at.messages ??= []).push(text);
      at.length += text.length + 1;
      if (isDue) this.flushMessages();
      return true;
    }
    // The send buffer is empty, and all logged frames were written.
    const frame = at.kind === "plain" || at.kind === "undecided" ? text : `[${text}]`;
    if (session === undefined) return at.socket.send(frame);
    if (at.owesHello || at.ackDue !== undefined) this.sendData(at, frame);
    else {
      session.push(frame);
      session.next++;
      at.socket.send(frame);
    }
    return true;
  }

  /** Reports to the other side, if that is reciproc, that so many messages to it were dropped: now, or when messages flow. */
  reportMissed(count: number): void {
    // What is dropped after the end belongs to no later connection of a client.
    if (this.state.kind === "ended") return;
    this.#missed += count;
    this.#sendMissed();
  }

  /** Sends the report of dropped messages in order with the messages, as a data frame, so that it arrives once (rule 5). */
  #sendMissed(): void {
    if (this.#missed === 0 || !this.isReciproc) return;
    this.flushMessages();
    // The messages may have filled the log, or ended the connection.
    const at = this.withRoom();
    if (at === undefined) return;
    // Reports without end would fill the socket of a reader that reads nothing.
    if (at.socket.unsentBytes >= this.limits.highWaterBytes) return this.socketFull();
    this.sendData(at, `{"missed":${this.#missed}}`);
    this.#missed = 0;
  }

  /** Sends the frames of the tick, at its end. */
  flush(): void {
    const { state } = this;
    if (!(state instanceof Attachment)) return;
    if (state.controls !== undefined) this.#flushControls(state);
    if (state.ackDue === "now") this.#sendAck(state, state.session!);
    if (state.messages !== undefined) this.flushMessages();
  }

  /** Sends a control frame, after an ack that is owed. Returns false if it was not sent, because no messages flow. */
  sendControl(frame: string): boolean {
    const at = this.flowing;
    if (at === undefined) return false;
    if (at.session?.owes) this.#sendAck(at, at.session);
    return this.write([frame]);
  }

  /** Sends logged messages: the log or the wire was full, and may have room again. */
  drain(): void {
    const at = this.flowing;
    if (at !== undefined) this.#sendWaiting(at);
  }

  /**
   * Ends the connection for the application of this side: sends all logged and `queued` messages, and then `bye`. A client that
   * waits for `resumed` sends only `bye`. The caller closes the socket.
   */
  sayBye(bye: CloseInfo, queued: Iterable<[SendHandle, MessageText]> = []): void {
    const { flowing } = this;
    const { session } = this.state;
    if (flowing !== undefined) {
      this.flush();
      if (session !== undefined) {
        this.sendData(flowing, undefined, Infinity);
        for (const [handle, text] of queued) handle.sent = this.write([frameOf(sentForm(text, this.takesBytes))]);
      }
    }
    // `retryMs` also asks a client without a session to reconnect.
    if (session !== undefined || (bye.retryMs !== undefined && this.isReciproc)) this.write([Frames.byeFrame(bye)]);
    this.#forget({ code: bye.code, reason: bye.reason }, this.socket);
  }

  /** Client: ends the session with a bye. A new connection follows. */
  restart(reason: string, error: Error): void {
    const end = { code: CloseCode.Superseded, reason };
    // Without the bye, this close code would only suspend the session.
    if (this.state.session !== undefined) this.write([Frames.byeFrame(end)]);
    this.end(end.code, reason, error);
  }

  /** Ends the connection with 1002, because the other side broke the protocol. */
  fail(reason: string): void {
    this.end(CloseCode.ProtocolError, reason);
  }

  /** Ends the connection and its session, for a reason of this side. */
  end(code: number, reason: string, error?: Error): void {
    this.#end({ code, reason, error }, false);
  }

  /** Client: discards the session. The socket stays open, for the next connection. */
  #discard(reason: string, at: Attachment, isAgreed = true): void {
    this.#forget({ code: CloseCode.Normal, reason }, undefined);
    this.reportDiscarded(reason, at, isAgreed);
  }

  #end(end: CloseInfo, isRemote: boolean): void {
    if (this.state.kind === "ended") return;
    this.#forget(end, this.socket);
    this.reportEnd(end, isRemote);
  }

  /** Rule 8: drops all state, so that no message of an ended session is sent, and the session is not resumed. */
  #forget(end: CloseInfo, socket: Socket | undefined): void {
    this.state = { kind: "ended", socket, end, wasFlowing: this.flowing !== undefined };
    this.#missed = 0;
    this.takesBytes = false;
  }

  /** Sends logged messages, and reports that messages flow. */
  protected startMessages(at: Attachment, kind: AttachedKind, session?: Session): void {
    const wasSuspended = at.kind === "resuming";
    at.kind = kind;
    at.session = session;
    at.hello = undefined;
    this.#sendWaiting(at);
    this.reportReady(wasSuspended);
  }

  /**
   * Sends the logged frames (rule 5), until the wire is full. Reports when messages are taken again, which follow. A receiver that is
   * suspended ignores that, and sends them when it is resumed.
   */
  #sendWaiting(at: Attachment): void {
    this.sendData(at);
    this.#sendMissed();
    if (this.withRoom() !== undefined) this.receiver!.drained();
  }

  /**
   * Makes room for a message: a long one, and one with bytes, gets a frame of its own, after the messages that were added before it,
   * which may fill the log or the wire. Returns the attachment, if it still takes messages.
   */
  protected makeRoom(at: Attachment, text: MessageText): Attachment | undefined {
    if (typeof text === "string" && at.length + text.length <= PACK_LENGTH) return at;
    this.flushMessages();
    return this.withRoom();
  }

  #flushControls(at: Attachment): void {
    const { controls } = at;
    at.controls = undefined;
    this.write(controls!);
  }

  /** Sends the messages of this tick: in one data frame, or each plainly if the other side is not reciproc. */
  protected flushMessages(): void {
    const { state } = this;
    if (!(state instanceof Attachment)) return;
    const { messages } = state;
    if (messages === undefined) return;
    state.messages = undefined;
    state.length = 0;
    if (this.isReciproc) this.sendData(state, `[${messages.join(",")}]`);
    else state.socket.send(...(messages as string[]));
  }

  /** Sends frames, after the hello if that is owed. Returns false if there is no socket, or it takes no more frames. */
  protected write(frames: (string | Uint8Array)[]): boolean {
    const { state } = this;
    if (!(state instanceof Attachment)) return false;
    if (state.owesHello) {
      state.owesHello = false;
      frames.unshift(Frames.clientHello(this.limits));
    }
    return state.socket.send(...frames);
  }

  /**
   * Sends a data frame, if there is one. In a session, gives it the next number, and sends the logged frames that were not written to
   * this socket, new or replayed, while the socket has room (rule 7).
   */
  protected sendData(at: Attachment, data?: string | Uint8Array, highWaterBytes = this.limits.highWaterBytes): void {
    const { session, socket } = at;
    if (session === undefined) return void (data && socket.send(data));
    if (data !== undefined) session.push(data);
    if (at.ackDue !== undefined) this.#sendAck(at, session);
    // The ack may have ended the connection.
    if (this.state !== at) return;
    while (session.hasUnsent) {
      if (socket.unsentBytes >= highWaterBytes) return this.socketFull();
      this.write([session.takeUnsent()]);
    }
  }

  /** Sends an ack. If the other side causes acks without end and reads none of them, ends the connection. */
  #sendAck(at: Attachment, session: Session): void {
    const { logLength, highWaterBytes } = this.limits;
    at.ackDue = undefined;
    if (at.socket.unsentBytes <= Math.max(logLength, highWaterBytes)) this.write([`{"ack":${session.ack()}}`]);
    else if (session.logLength === 0) this.end(CloseCode.TryAgainLater, "too many acks wait to be read");
    // Unacknowledged data of this side fills the wire. The ack is sent after that data.
    else {
      at.ackDue = "now";
      this.socketFull();
    }
  }
}
