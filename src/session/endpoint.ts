/**
 * One end of a connection that speaks `reciproc.v1`, as a state machine without I/O: no timer, no clock, and of its socket only a `Wire`. It takes
 * frames by `frame`, and sends frames through a `Wire`. `docs/PROTOCOL.md` defines the states and the ten rules of a session. A
 * comment that begins with "Rule" names the rule that its line keeps.
 */
import * as CloseCode from "../close-codes.js";
import { exceeds, sentForm, type MessageText } from "../core/codec.js";
import { isObject, member } from "../core/message.js";
import type { CloseInfo, SendHandle } from "../core/transport.js";
import * as Frames from "./frames.js";
import { ROOM_FOR_PONGS } from "../link/socket.js";
import { Session } from "./session.js";
import { COLLECTED_PONGS, frameOf, isTooLong, PACK_LENGTH } from "./sizes.js";
import type { EndpointLimits, State, Tick, Wire } from "./state.js";

/** The reasons for which a client discards its session. */
const NO_SESSIONS = "the server keeps no sessions any more";
const UNKNOWN_SESSION = "the server has no such session";
const TOO_LARGE = "message is too large";

const NONE: string[] = [];

/**
 * One end of one connection, from its first frame to its end, over one socket, or several one after the other. This class is the end of
 * a client. `session/link.ts` gives it its sockets and its times, and `server/link.ts` adds the parts of a server.
 */
export abstract class Endpoint {
  declare state: State;
  /** The length of the messages of this tick, in a pack. */
  declare length: number;
  /** Whether both sides take binary frames, as far as is known. */
  declare takesBytes: boolean;
  /** The number of received frames, on all sockets. A server tells them apart by it. */
  declare heard: number;
  /** The length of the frame that was received last. */
  declare protected frameLength: number;
  declare readonly limits: EndpointLimits;
  /** The present socket, and the last one while it closes. */
  declare socket: Wire | undefined;
  /** Whether this end uses sessions. */
  readonly #wantsSession: boolean;
  /** The frames for the end of the tick: the control frames, and then the messages, in one pack if this end packs. */
  #controls = NONE;
  #messages = NONE;
  /** Whether an ack is due at the end of the tick. */
  #isAckDue = false;
  /** Client: whether its hello is not sent yet. It is sent before the first other frame. */
  #owesHello = false;
  /** Whether the log or the wire is full. Then no message is taken. */
  #isFull = false;
  /** The number of dropped messages that is not reported to the other side yet. */
  #missed = 0;

  constructor(limits: EndpointLimits, wantsSession: boolean) {
    this.state = { kind: "connecting", session: undefined };
    this.length = this.heard = this.frameLength = 0;
    this.takesBytes = false;
    this.socket = undefined;
    this.limits = limits;
    this.#wantsSession = wantsSession;
  }

  // What a subclass takes.

  /** Calls `flush` at the end of the tick, and decides what is sent before. */
  abstract readonly tick: Tick;
  /** Takes a frame of an other side that sends no packs: one message or one batch. */
  abstract receiveText(text: string): void;
  /** Takes the messages of a pack. */
  abstract receivePack(messages: unknown[]): void;
  /** Something waits because the wire is full. When that has drained, the subclass calls `drain`. */
  abstract wireFull(): void;
  /** Takes the number of messages that the other side has dropped since its last report. */
  abstract missed(count: number): void;
  /** Messages are taken again, after `send` has returned `"full"`. */
  abstract drained(): void;
  /** Messages flow, for the first time or again. */
  abstract flows(): void;
  /** The connection has ended. `isRemote`: the other side ended it, and closes the socket. */
  abstract ended(end: CloseInfo, isRemote: boolean): void;
  /** The other side does not have the session. The socket stays open without it. On a client, a new session can begin there. */
  abstract discarded(reason: string): void;
  /** Takes a control frame that this class does not know. */
  abstract control(frame: object): void;
  /** Server: the client has the newest token (rule 4). */
  confirmed?(): void;

  /** Whether messages may be sent: in all states with a socket, except `resuming` and `suspended`. */
  get isFlowing(): boolean {
    const { kind } = this.state;
    return kind === "live" || kind === "packed" || kind === "plain" || kind === "opening" || kind === "greeting";
  }

  /** Whether the other side is a reciproc peer. Then this end sends packs: a server after its hello, a client after its own. */
  get isReciproc(): boolean {
    const { kind, session } = this.state;
    return session !== undefined || kind === "packed" || kind === "greeting";
  }

  /** Whether a message can be sent at once. */
  protected get canSend(): boolean {
    return !this.#isFull && this.isFlowing && this.socket!.open;
  }

  // Sockets.

  /**
   * Client: takes a socket. `isAgreed`: whether the server agreed to `reciproc.v1`. `hello`: the content of its first frame,
   * `undefined` if that is no hello or has not come. `isAwaited`: the client offered to resume, so the server waits for its frame.
   */
  attach(wire: Wire, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    // Rule 2: the old socket is detached, so no frame of it is counted after the count in `resume` is read.
    this.socket = wire;
    if (hello !== undefined) return this.#receiveServerHello(hello, isAwaited);
    if (this.state.session === undefined) {
      this.state = { kind: isAgreed ? "opening" : "plain", session: undefined };
      this.flow();
    } else if (!isAgreed) this.#discard(NO_SESSIONS);
  }

  /** Detaches the socket, which is lost or superseded. `end` has its close code. */
  detach(end: CloseInfo): void {
    const { session, kind } = this.state;
    if (kind === "ended") return;
    this.socket = undefined;
    // Rule 6: some closes end the session. Rule 9: any other close also suspends a session that the client has not confirmed yet.
    if (session === undefined || CloseCode.endsSession(end.code)) return this.#forget(end);
    if (kind === "suspended") return;
    // The send handles of the buffered messages say sent, so these messages must be replayed.
    this.#flushMessages();
    this.#dropOutput();
    this.state = { kind: "suspended", session };
  }

  // Incoming frames.

  /** Takes a frame of the present socket. */
  frame(text: string): void {
    this.heard++;
    this.frameLength = text.length;
    const { kind } = this.state;
    if (kind === "plain" && !exceeds(text, this.limits.maxMessageBytes)) return this.receiveText(text);
    if (kind !== "live" && kind !== "packed") return this.#receiveBefore(kind, text);
    const frame = Frames.parse(text);
    // A pack or a control frame: the first byte decides.
    if (Array.isArray(frame)) {
      if (isTooLong(text, this.limits.maxMessageBytes)) return this.end(CloseCode.MessageTooBig, TOO_LARGE);
      this.#countFrame(text.length);
      this.receivePack(frame);
    } else if (isObject(frame)) {
      if ("missed" in frame) this.#receiveMissed(text, frame.missed);
      else this.#receiveControl(frame);
      // Without other output, an ack sends the hello.
      if (this.#owesHello && this.length === 0 && this.#controls === NONE) this.#oweAck();
    } else this.fail("neither a pack nor a control frame");
  }

  /** Takes a frame in a state in which no packs come. */
  #receiveBefore(kind: State["kind"], text: string): void {
    if (kind === "resuming") return this.#receiveResumed(Frames.parse(text));
    if (kind === "ended") return;
    const hello = kind === "plain" ? undefined : Frames.helloOf(text);
    if (hello !== undefined) {
      if (kind === "greeting") this.receiveClientHello!(hello);
      else this.#receiveServerHello(hello, true);
    } else if (kind === "suspended") this.#discard(NO_SESSIONS);
    else {
      // A server's first frame decides for good. A client may send plain frames until its hello.
      if (kind === "opening") this.state = { kind: "plain", session: undefined };
      // The socket accepts longer frames, for packs of several messages.
      if (exceeds(text, this.limits.maxMessageBytes)) this.end(CloseCode.MessageTooBig, TOO_LARGE);
      else this.receiveText(text);
    }
  }

  /** Takes a binary frame of the present socket. Returns false if it is text, because not both sides take binary frames. */
  bytes(frame: Uint8Array): boolean {
    this.heard++;
    this.frameLength = frame.length;
    const { kind } = this.state;
    if (!this.takesBytes || (kind !== "live" && kind !== "packed")) return false;
    // Checked first: reading a frame parses and copies it.
    if (frame.length > this.limits.maxMessageBytes) this.end(CloseCode.MessageTooBig, TOO_LARGE);
    else {
      const message = this.limits.readBytes!(frame);
      if (message === undefined) this.fail("a binary frame breaks its rules");
      else {
        this.#countFrame(frame.length);
        this.receivePack([message]);
      }
    }
    return true;
  }

  /** Counts a received data frame. */
  #countFrame(length: number): void {
    // Rule 7: acks are sent on receipt. The hello is sent before the first ack.
    if (this.state.session?.receive(length) || this.#owesHello) this.#oweAck();
  }

  /** Sends an ack at the end of the tick. */
  #oweAck(): void {
    this.#isAckDue = true;
    this.tick.schedule();
  }

  #receiveMissed(text: string, count: unknown): void {
    if (!Frames.isCount(count) || count === 0) return this.fail("`missed` is no count");
    this.#countFrame(text.length);
    this.missed(count);
  }

  #receiveControl(frame: object): void {
    if ("ping" in frame) this.#pong(frame.ping);
    else if ("ack" in frame) this.#receiveAck(frame.ack);
    else if ("bye" in frame) this.#receiveBye(frame.bye);
    else this.control(frame);
  }

  /** Server: takes the client's hello, which accepts or declines the offered session. */
  protected receiveClientHello?(hello: unknown): void;

  /** Client: takes the server's hello. */
  #receiveServerHello(hello: unknown, isAwaited: boolean): void {
    const { session } = this.state;
    this.takesBytes = this.limits.bytes === true && Frames.says(hello, "bytes");
    const offer = this.#wantsSession ? member(hello, "session") : undefined;
    if (!isObject(offer)) {
      if (session !== undefined) return this.#discard(NO_SESSIONS);
      this.#flushMessages();
      this.write([Frames.serverHello(undefined, this.limits.bytes)]);
      this.state = { kind: "packed", session };
      this.flow();
    } else if (session === undefined) this.#open(offer, isAwaited);
    else {
      // Rule 1: a returning client sends `resume`, and nothing else until `resumed`.
      this.state = { kind: "resuming", session };
      this.write([JSON.stringify({ resume: session.resume(this.limits) })]);
    }
  }

  /**
   * Client: accepts the session that the server offers. The data frames of both sides are counted from their hellos on. The session
   * exists with the server's hello (rule 9). So the client's hello is sent with the first other frame, or at once if the server waits
   * for it.
   */
  #open(offer: unknown, isAwaited: boolean): void {
    const offered = Frames.sessionOf(offer);
    if (offered === undefined) return this.fail("`session` of a hello breaks its rules");
    this.#flushMessages();
    this.#owesHello = true;
    if (isAwaited) this.write([]);
    this.goLive(new Session(this.limits, offered));
  }

  /** Client: takes the response to `resume`. Any other data frame would belong to no session (rule 1). */
  #receiveResumed(frame: unknown): void {
    if (!isObject(frame)) return this.fail("data before `resumed`");
    if ("bye" in frame) return this.#receiveBye(frame.bye);
    if (!("resumed" in frame)) return;
    if (member(frame.resumed, "refused") !== undefined) return this.#discard(UNKNOWN_SESSION);
    const session = this.state.session!;
    const resumed = Frames.resumedOf(frame.resumed);
    if (resumed === undefined || !session.covers(resumed.received)) return this.fail("`resumed` breaks its rules");
    // Rule 4: the client acks before all other frames, which confirms the new token to the server.
    session.token = resumed.token;
    this.#sendAck(session);
    this.goLive(session, resumed.received);
  }

  #receiveAck(count: unknown): void {
    const { session } = this.state;
    if (session === undefined) return;
    if (!Frames.isCount(count) || count >= session.next) return this.fail("`ack` is no count of the frames sent");
    session.ackTo(count);
    // Rule 4: an ack on the present socket confirms the newest token.
    this.confirmed?.();
    if (this.#isFull) this.drain();
  }

  /** Rule 6: the other side ends the session on purpose. */
  #receiveBye(bye: unknown): void {
    if (!this.#wantsSession) return;
    const end = Frames.byeOf(bye) ?? { code: CloseCode.Normal, reason: "" };
    // No longer than the reason of a close, which an application may pass on.
    this.#end({ ...end, reason: CloseCode.cutReason(end.reason) }, true);
  }

  #pong(value: unknown): void {
    const { unsentBytes } = this.socket!;
    if (unsentBytes >= ROOM_FOR_PONGS) return;
    if (this.state.session?.owes) this.#oweAck();
    const pong = Frames.pongFrame(value);
    if (pong === undefined) return this.fail("a ping that cannot be answered");
    if (this.#controls === NONE) this.#controls = [pong];
    else this.#controls.push(pong);
    // Collected frames do not count as unsent, so few are collected.
    if (unsentBytes > 0 || this.#controls.length * pong.length >= COLLECTED_PONGS) this.#flushControls();
    else this.tick.schedule();
  }

  // Outgoing messages.

  /** As `Link.send`. */
  send(text: MessageText): boolean | "full" {
    const { session } = this.state;
    if (session !== undefined && exceeds(text, session.theirs.maxMessageBytes)) return false;
    if (this.length > 0) this.makeRoom(text);
    // A closed socket takes no message, and without a session no other socket follows.
    if (!this.canSend) return this.state.session !== undefined && "full";
    if (typeof text !== "string") {
      this.#sendData(text.frame);
      return true;
    }
    if (this.#messages === NONE) this.#messages = [text];
    else this.#messages.push(text);
    this.length += text.length + 1;
    if (this.tick.added(this.length)) this.#flushMessages();
    return true;
  }

  /** Reports to the other side, if that is reciproc, that so many messages to it were dropped: now, or when messages flow. */
  reportMissed(count: number): void {
    this.#missed += count;
    if (this.canSend) this.#sendMissed();
  }

  /** Sends the report of dropped messages in order with the messages, as a data frame, so that it arrives once (rule 5). */
  #sendMissed(): void {
    if (this.#missed === 0 || !this.isReciproc) return;
    this.#flushMessages();
    // The messages may have filled the log. Reports without end would fill the wire of a reader that reads nothing.
    // They may also have ended the connection.
    if (this.#isFull || !this.isFlowing) return;
    if (this.socket!.unsentBytes >= this.limits.highWaterBytes) return this.wireFull();
    this.#sendData(`{"missed":${this.#missed}}`);
    this.#missed = 0;
  }

  /** Sends the frames of the tick, at its end. */
  flush(): void {
    if (this.#controls !== NONE) this.#flushControls();
    if (this.#isAckDue) this.#sendAck(this.state.session!);
    if (this.#messages !== NONE) this.#flushMessages();
  }

  /** Sends a control frame, after an ack that is owed. Returns false if it was not sent, because no messages flow. */
  sendControl(frame: string): boolean {
    if (!this.isFlowing) return false;
    if (this.state.session?.owes) this.#sendAck(this.state.session);
    return this.write([frame]);
  }

  /** Sends logged messages: the log or the wire was full, and may have room again. */
  drain(): void {
    if (this.isFlowing) this.#sendWaiting();
  }

  /**
   * Ends the connection for the application of this side: sends all logged and `queued` messages, and then `bye`. A client that
   * waits for `resumed` sends only `bye`. Returns true if it was sent, or needs none: then the caller closes the socket.
   */
  sayBye(bye: Frames.Bye, queued: Iterable<[SendHandle, MessageText]> = []): boolean {
    const { session, kind } = this.state;
    const canSay = this.isFlowing || kind === "resuming";
    if (this.isFlowing) {
      this.flush();
      if (session !== undefined) {
        this.writeLog(session, Infinity);
        for (const [handle, text] of queued) handle.sent = this.#writeFrame(frameOf(sentForm(text, this.takesBytes)));
      }
    }
    // `retryMs` also asks a client without a session to reconnect.
    if (canSay && (session !== undefined || (bye.retryMs !== undefined && this.isReciproc)))
      this.write([Frames.byeFrame(bye)]);
    this.#forget({ code: bye.code, reason: bye.reason });
    return canSay;
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

  /** Client: discards the session. The socket stays open. */
  #discard(reason: string): void {
    this.#forget({ code: CloseCode.Normal, reason });
    this.discarded(reason);
  }

  #end(end: CloseInfo, isRemote: boolean): void {
    if (this.state.kind === "ended") return;
    this.#forget(end);
    this.ended(end, isRemote);
  }

  /** Rule 8: drops all state, so that no message of an ended session is sent, and the session is not resumed. */
  #forget(end: CloseInfo): void {
    this.state = { kind: "ended", session: undefined, end };
    this.#dropOutput();
  }

  #dropOutput(): void {
    this.#messages = this.#controls = NONE;
    this.length = 0;
    this.#isAckDue = this.#isFull = this.#owesHello = false;
  }

  /** Makes the session live. `received`: the number of frames that the other side has received, if the session is resumed. */
  protected goLive(session: Session, received?: number): void {
    // Rule 5: the replay begins after the last frame that the other side has received.
    if (received !== undefined) session.rewind(received);
    this.state = { kind: "live", session };
    this.flow();
  }

  /** Sends logged messages, and reports that messages flow. */
  protected flow(): void {
    this.#sendWaiting();
    this.flows();
  }

  /** Sends the logged frames (rule 5), until the wire is full. Reports when messages are taken again, which follow. */
  #sendWaiting(): void {
    const { session } = this.state;
    this.#isFull = false;
    if (session !== undefined) this.writeLog(session);
    if (this.canSend) this.#sendMissed();
    if (this.canSend) this.drained();
  }

  /**
   * Makes room for a message: a long one, and one with bytes, gets a frame of its own, after the messages that were added before it,
   * which may fill the log or the wire.
   */
  protected makeRoom(text: MessageText): void {
    if (this.length + text.length > PACK_LENGTH || typeof text !== "string") this.#flushMessages();
  }

  #flushControls(): void {
    const controls = this.#controls;
    this.#controls = NONE;
    this.write(controls);
  }

  /** Sends the messages of this tick: in one data frame, or each plainly if the other side is not reciproc. */
  #flushMessages(): void {
    const messages = this.#messages;
    this.#messages = NONE;
    this.length = 0;
    if (messages === NONE) return;
    if (this.isReciproc) this.#sendData(messages.length === 1 ? `[${messages[0]}]` : `[${messages.join(",")}]`);
    else this.write(messages);
  }

  /** Sends a data frame. In a session, gives it the next number. */
  #sendData(frame: string | Uint8Array): void {
    const { session } = this.state;
    if (session === undefined) return void this.#writeFrame(frame);
    session.push(frame);
    this.writeLog(session);
  }

  /** As `write`, of one data frame. */
  #writeFrame(frame: string | Uint8Array): boolean {
    if (this.state.kind === "ended") return false;
    if (!this.#owesHello) return this.socket?.send(frame) === true;
    return typeof frame === "string" ? this.write([frame]) : this.write([]) && this.socket!.send(frame);
  }

  /** Sends frames, after the hello if that is owed. Returns false if there is no socket, or it takes no more frames. */
  protected write(frames: string[]): boolean {
    const { socket } = this;
    if (socket?.open !== true || this.state.kind === "ended") return false;
    if (this.#owesHello) {
      this.#owesHello = false;
      frames.unshift(Frames.clientHello(this.limits, this.limits.bytes));
    }
    if (socket.sendAll !== undefined) socket.sendAll(frames);
    else for (const frame of frames) socket.send(frame);
    return true;
  }

  /** Sends the logged frames that were not written to this wire, new or replayed, while the wire has room (rule 7). */
  protected writeLog(session: Session, highWaterBytes = this.limits.highWaterBytes): void {
    const { socket } = this;
    if (socket === undefined) return;
    if (session.owesEarly) this.#sendAck(session);
    // The ack may have ended the connection.
    if (this.state.kind === "ended") return;
    while (socket.unsentBytes < highWaterBytes) {
      const frame = session.take();
      if (frame === undefined) break;
      if (this.#owesHello) this.#writeFrame(frame);
      else socket.send(frame);
    }
    this.checkRoom(session, socket);
  }

  /** Rule 7: no message gets a number while the log or the wire is full. */
  protected checkRoom(session: Session, wire: Wire): void {
    const isWireFull = wire.unsentBytes >= this.limits.highWaterBytes;
    this.#isFull = session.isFull || isWireFull;
    if (isWireFull) this.wireFull();
  }

  /** Sends an ack. If the other side causes acks without end and reads none of them, ends the connection. */
  #sendAck(session: Session): void {
    const { logLength, highWaterBytes } = this.limits;
    this.#isAckDue = false;
    if (this.socket!.unsentBytes <= Math.max(logLength, highWaterBytes)) this.write([`{"ack":${session.ack()}}`]);
    else if (session.logLength === 0) this.end(CloseCode.TryAgainLater, "too many acks wait to be read");
    // Unacknowledged data of this side fills the wire. The ack is sent after that data.
    else {
      session.isAckLate = this.#isFull = true;
      this.wireFull();
    }
  }
}
