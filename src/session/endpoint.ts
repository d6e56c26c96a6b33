/**
 * One end of a connection that speaks `reciproc.v1`, as a state machine without I/O: no socket, no timer, no clock. Frames come in
 * through `receive` and leave through `Wire.send`. `docs/PROTOCOL.md` has the states and the ten rules of a session. A comment
 * that begins with "Rule" names the one that its line keeps.
 */
import * as CloseCode from "../close-codes.js";
import { exceeds } from "../core/codec.js";
import { isObject, member } from "../core/message.js";
import type { CloseInfo, EncodedFrame, EncodedMessage, SendHandle } from "../core/transport.js";
import { BroadcastHandle, SendQueue, QUEUED_COST } from "../core/send-queue.js";
import {
  byeFrame,
  byeOf,
  clientHello,
  HELLO,
  helloOf,
  isCount,
  limitsOf,
  parse,
  pickLimits,
  resumedOf,
  sessionOf,
  takesSession,
  type Bye,
  type ResumeFrame,
} from "./frames.js";
import { frameText, ROOM_FOR_PONGS } from "../link/socket.js";
import { Session } from "./session.js";
import { isTooLong, PACK_LENGTH } from "./sizes.js";
import type { EndpointHooks, EndpointLimits, State, Wire } from "./state.js";

export type { EndpointHooks, EndpointLimits, State, Wire } from "./state.js";

/** Why a client's session is over. */
const NO_SESSIONS = "the server keeps no sessions any more";
const UNKNOWN_SESSION = "the server has no such session any more";

const NONE: string[] = [];

/** One end of one connection, from its first frame to its end, over one socket or several in turn. */
export class Endpoint {
  state: State = { kind: "connecting", session: undefined };
  readonly #role: "client" | "server";
  readonly #limits: EndpointLimits;
  /** Whether this end has sessions: a server that keeps them, a client that wants them. */
  readonly #wantsSession: boolean;
  readonly #hooks: EndpointHooks;
  #wire: Wire | undefined;
  /** Frames that leave at the end of the tick, the control frames first, then the messages, in one pack if this end packs. */
  #controls = NONE;
  #messages = NONE;
  /** The length of `#messages` in a pack. */
  #length = 0;
  /** Whether an ack is due at the end of the tick. */
  #isAckDue = false;
  /** Client: whether its hello is still to be sent, in front of whatever leaves first. */
  #owesHello = false;
  /** Whether the log or the wire is full. Messages are then queued although there is a socket. */
  #isFull = false;
  #queue: SendQueue | undefined;
  /** Client: whether the server waits for the first frame on this socket. */
  #isAwaited = false;
  /** The length of the ordinary messages that were queued when messages last ceased to flow. */
  #carriedLength = 0;

  constructor(role: "client" | "server", limits: EndpointLimits, wantsSession: boolean, hooks: EndpointHooks) {
    this.#role = role;
    this.#limits = limits;
    this.#wantsSession = wantsSession;
    this.#hooks = hooks;
  }

  /** Whether messages may leave: in all states with a socket but `resuming`. */
  get isFlowing(): boolean {
    const { kind } = this.state;
    return kind === "live" || kind === "packed" || kind === "plain" || kind === "opening";
  }

  /** Whether the other side is a reciproc peer. */
  get isToReciproc(): boolean {
    return this.#packs || this.state.session !== undefined;
  }

  /** The length of the messages that leave at the end of the tick. */
  get length(): number {
    return this.#length;
  }

  /** Whether something leaves at the end of the tick: then `flush` is due. */
  get hasOutput(): boolean {
    return this.#messages.length > 0 || this.#controls.length > 0 || this.#isAckDue;
  }

  /** Whether the wire was full when messages last left. Then `drained` is due as soon as it no longer is. */
  get isWireFull(): boolean {
    return this.#isFull && this.#wire !== undefined && this.#wire.unsentBytes >= this.#limits.highWaterBytes;
  }

  /** Longest message that the other side takes, in bytes, if it said so. */
  get maxMessageBytes(): number | undefined {
    return this.state.session?.theirs?.maxMessageBytes;
  }

  /** The length of what is logged and of the ordinary messages that are queued. */
  get heldLength(): number {
    return (this.state.session?.log.length ?? 0) + this.#ordinaryLength;
  }

  /** The length of all queued messages, and of the broadcasts among them. */
  get queuedLength(): number {
    return this.#queue?.length ?? 0;
  }
  get queuedBroadcastLength(): number {
    return this.#queue?.broadcastLength ?? 0;
  }

  /** A server packs from its hello on, which is its first frame. A client packs from its own hello or `resumed` on. */
  get #packs(): boolean {
    const { kind } = this.state;
    return this.#role === "server" ? kind !== "ended" : kind === "packed" || kind === "live";
  }

  get #ordinaryLength(): number {
    return this.queuedLength - this.queuedBroadcastLength;
  }

  // Sockets.

  /** Server: takes the socket of a new client. Its hello is sent, with the offer of a session if `session` is given. */
  accept(wire: Wire, session: Session | undefined): void {
    this.#wire = wire;
    this.state = { kind: "opening", session };
  }

  /**
   * Client: takes a socket. `isAgreed`: whether the server agreed to `reciproc.v1`. `hello`: the content of its first frame,
   * `undefined` if that is no hello or has not come. `isAwaited`: whether the client offered to resume, and must speak first.
   */
  attach(wire: Wire, isAgreed: boolean, hello: unknown, isAwaited: boolean): void {
    // Rule 2: the link has left the old socket, so nothing of it is received behind the count in `resume`.
    this.#wire = wire;
    this.#isAwaited = isAwaited;
    if (hello !== undefined) return this.#receiveServerHello(hello);
    if (this.state.session === undefined) {
      this.state = { kind: isAgreed ? "opening" : "plain", session: undefined };
      this.#flow();
    } else if (!isAgreed) this.#discard(NO_SESSIONS);
  }

  /**
   * Server: goes on over another socket. `resume.received`, how many data frames the client has, is one that `session.covers`.
   * `token`: the session's next one.
   */
  resume(wire: Wire, { received, limits }: ResumeFrame, token: string): void {
    // Rule 2: the caller has left the old socket before the count of received frames is read here.
    const session = this.state.session!;
    this.#wire = wire;
    // Rule 9: the hello that confirmed the session may never have come.
    session.theirs ??= limits;
    wire.send(JSON.stringify({ resumed: { token, received: session.ack() } }));
    this.#goLive(session, received);
  }

  /** The socket is lost or left. `code`: its close code. */
  detach(end: CloseInfo): void {
    const { session, kind } = this.state;
    if (kind === "ended") return;
    this.#wire = undefined;
    // Rule 6: some closes are final. Rule 9: any other suspends also a session that the client has not confirmed yet.
    if (session === undefined || CloseCode.endsSession(end.code)) return this.#forget(end);
    if (kind === "suspended") return;
    // What is in the buffer has left for its senders, so it is replayed.
    this.#flushMessages();
    this.#controls = NONE;
    this.#isAckDue = this.#isFull = this.#owesHello = false;
    // A burst that was under way ends no session. Queued since then counts, also if an attempt to resume fails.
    if (kind === "live") this.#carriedLength = this.#ordinaryLength;
    this.state = { kind: "suspended", session };
  }

  // Incoming frames.

  /** Takes a frame of the present socket. */
  receive(text: string): void {
    switch (this.state.kind) {
      case "live":
      case "packed":
        return this.#receivePacked(text);
      case "plain":
        return this.#receivePlain(text);
      case "opening":
      case "suspended":
        return this.#receiveFirst(text);
      case "resuming":
        return this.#receiveResumed(text);
      default: // Nothing is read.
    }
  }

  /** A client may send plain frames until its hello. A server's first frame decides for good. */
  #receiveFirst(text: string): void {
    const hello = helloOf(text);
    const isClient = this.#role === "client";
    if (hello !== undefined) return isClient ? this.#receiveServerHello(hello) : this.#receiveClientHello(hello);
    if (isClient && this.state.session !== undefined) return this.#discard(NO_SESSIONS);
    if (isClient) this.state = { kind: "plain", session: undefined };
    this.#receivePlain(text);
  }

  #receivePlain(text: string): void {
    // The socket takes longer frames, for packs of several messages.
    if (exceeds(text, this.#limits.maxMessageBytes)) this.#refuseLong();
    else this.#hooks.receiveText(text);
  }

  /** The first byte decides. There is no third form. */
  #receivePacked(text: string): void {
    const frame = parse(text);
    if (Array.isArray(frame)) {
      if (isTooLong(text, this.#limits.maxMessageBytes)) return this.#refuseLong();
      const { session } = this.state;
      // Rule 7: acks are sent on receipt. The first one brings the hello.
      if (session?.receive(text.length) || this.#owesHello) this.#isAckDue = true;
      this.#hooks.receivePack(frame, text.length);
    } else if (isObject(frame)) this.#receiveControl(frame);
    else this.fail("neither a pack nor a control frame");
  }

  #receiveControl(frame: object): void {
    if ("ping" in frame) this.#pong(frame.ping);
    else if ("ack" in frame) this.#receiveAck(frame.ack);
    else if ("bye" in frame) this.#receiveBye(frame.bye);
    else if ("resume" in frame && this.#role === "server") {
      // Rule 1: only a client that offered it resumes. Rule 3: a socket takes one `resume`.
      this.fail("`resume` on a socket that did not say it would");
    }
  }

  #receiveServerHello(hello: unknown): void {
    const { session } = this.state;
    const isOffered = this.#wantsSession && isObject(member(hello, "session"));
    if (session === undefined) return isOffered ? this.#open(hello) : this.#openWithoutSession();
    if (!isOffered) return this.#discard(NO_SESSIONS);
    // Rule 1: a returning client sends `resume`, and nothing else until `resumed`.
    this.state = { kind: "resuming", session };
    // Rule 3: attempts grow.
    const attempt = ++session.attempt;
    const resume = { token: session.token, received: session.ack(), attempt, limits: pickLimits(this.#limits) };
    this.#wire!.send(JSON.stringify({ resume }));
  }

  /**
   * Client: takes the session that the server offers. The data frames of both sides are counted from their hellos on. The
   * server's is enough for the session to exist (rule 9): the client's leaves with the first other frame.
   */
  #open(hello: unknown): void {
    const offer = sessionOf(member(hello, "session"));
    if (offer === undefined) return this.fail("`session` of a hello breaks its rules");
    const session = new Session(this.#limits, offer.limits);
    session.token = offer.token;
    session.ttlMs = offer.ttlMs;
    this.#flushMessages();
    this.#owesHello = true;
    if (this.#isAwaited) this.#sendAll(NONE);
    this.#goLive(session);
  }

  #openWithoutSession(): void {
    this.#flushMessages();
    this.#wire!.send(HELLO);
    this.state = { kind: "packed", session: undefined };
    this.#flow();
  }

  /** Server: the client confirms the offered session, or declines it. */
  #receiveClientHello(hello: unknown): void {
    const { session } = this.state;
    if (session === undefined || !takesSession(hello)) {
      if (session !== undefined) {
        this.#writeRest(session);
        this.#hooks.discarded("the client takes no session");
      }
      this.state = { kind: "packed", session: undefined };
      return this.#flow();
    }
    session.theirs = limitsOf(member(hello, "limits"));
    if (session.theirs === undefined) return this.fail("`limits` of a hello break their rules");
    this.#hooks.confirmed();
    this.#goLive(session);
  }

  /** Client: takes the answer to `resume`. Anything else than `resumed` and `bye` would belong to no session (rule 1). */
  #receiveResumed(text: string): void {
    const frame = parse(text);
    if (!isObject(frame)) return this.fail("data before `resumed`");
    if ("bye" in frame) return this.#receiveBye(frame.bye);
    if (!("resumed" in frame)) return;
    if (member(frame.resumed, "refused") !== undefined) return this.#discard(UNKNOWN_SESSION);
    const session = this.state.session!;
    const resumed = resumedOf(frame.resumed);
    if (resumed === undefined || !session.covers(resumed.received)) return this.fail("`resumed` breaks its rules");
    // Rule 4: the client acks at once, before anything else, so that the server knows that the new token has come.
    session.token = resumed.token;
    this.#sendAck(session);
    this.#goLive(session, resumed.received);
  }

  #receiveAck(count: unknown): void {
    const { session } = this.state;
    if (session === undefined) return;
    if (!isCount(count) || count >= session.next) return this.fail("`ack` is no count of the frames sent");
    // Two acks may cross: a smaller count than before changes nothing.
    session.log.ackTo(count);
    // Rule 4: an ack that comes on the present socket confirms the newest token.
    this.#hooks.confirmed();
    this.drained();
  }

  /** Rule 6: the other side ends the session by will. */
  #receiveBye(bye: unknown): void {
    if (this.#wantsSession) this.#end(byeOf(bye) ?? { code: CloseCode.Normal, reason: "" }, true);
  }

  #pong(value: unknown): void {
    if (this.#wire!.unsentBytes >= ROOM_FOR_PONGS) return;
    if (this.state.session?.owes) this.#isAckDue = true;
    try {
      this.#addControl(JSON.stringify({ pong: value }));
      // What is collected is not counted as unsent.
      if (this.#wire!.unsentBytes > 0) this.#flushControls();
    } catch {
      // `JSON.parse` takes any depth, `JSON.stringify` does not.
      this.fail("a ping that cannot be answered");
    }
  }

  // Outgoing messages.

  /** As `Transport.send`. `message`: the same message, if it goes to many peers. */
  send(text: string, handle?: SendHandle, message?: EncodedMessage): boolean {
    const { session } = this.state;
    // Rule 6: what the other side does not accept is not logged.
    if (session !== undefined && exceeds(text, session.maxMessageBytes)) return false;
    this.#makeRoom(text);
    const wire = this.#wire;
    if (this.#isFull || !this.isFlowing || this.queuedLength > 0) return this.#enqueue(text, handle, message);
    if (!wire!.open) {
      if (session !== undefined) return this.#enqueue(text, handle, message);
      if (handle !== undefined) handle.sent = false;
      return false;
    }
    if (message !== undefined && this.#messages.length === 0) this.#sendEncoded(message);
    else this.#add(text, handle);
    return true;
  }

  /** Cancels a queued message. Returns true if it was queued: then it was not sent, and will not be (rule 7). */
  cancel(handle: SendHandle): boolean {
    return this.#queue !== undefined && this.#queue.remove(handle) > 0;
  }

  /** Ends the tick: sends what was collected in it. */
  flush(): void {
    this.#flushControls();
    if (this.#isAckDue) this.#sendAck(this.state.session!);
    this.#flushMessages();
  }

  /** Sends a ping, behind the ack that is owed. */
  ping(): void {
    if (!this.#packs || !this.isFlowing) return;
    const { session } = this.state;
    if (session?.owes) this.#sendAck(session);
    this.#write('{"ping":1}');
  }

  /** The log or the wire may have room again: sends what is logged or queued, as far as it has. */
  drained(): void {
    if (this.#isFull && this.isFlowing) this.#drain();
  }

  /**
   * Ends the connection for this side's application, and sends everything that is logged and queued, and then `bye`. Returns
   * true if the other side can read it: then the caller closes the wire.
   */
  close(bye: Bye): boolean {
    const { session } = this.state;
    const isTold = this.isFlowing && this.#wire !== undefined;
    if (isTold) {
      this.flush();
      if (session !== undefined) {
        this.#writeRest(session);
        for (const [handle, text] of this.#queue ?? []) handle.sent = this.#write(`[${text}]`);
      }
      // A client that has no session comes back when it is told to.
      if (session !== undefined || (bye.retryMs !== undefined && this.#packs)) this.#write(byeFrame(bye));
    }
    this.#forget({ code: bye.code, reason: bye.reason });
    return isTold;
  }

  /** Client: ends the session, and says so. A new connection follows. */
  restart(reason: string): void {
    const end = { code: CloseCode.Superseded, reason };
    // A close with this code alone would not end the session.
    if (this.state.session !== undefined) this.#write(byeFrame(end));
    this.#end(end, false);
  }

  /** Ends the connection for what the other side did, with 1002. */
  fail(reason: string): void {
    this.end(CloseCode.ProtocolError, reason);
  }

  /** Ends the connection, and with it the session, for a reason of this side's own. */
  end(code: number, reason: string, error?: Error): void {
    this.#end({ code, reason, error }, false);
  }

  #refuseLong(): void {
    this.end(CloseCode.MessageTooBig, "message is too large");
  }

  /** Client: the session is over, and the socket is not. */
  #discard(reason: string): void {
    this.#forget({ code: CloseCode.Normal, reason });
    this.#hooks.discarded(reason);
  }

  #end(end: CloseInfo, isRemote: boolean): void {
    if (this.state.kind === "ended") return;
    this.#forget(end);
    this.#hooks.ended(end, isRemote);
  }

  /** Rule 8: nothing of an ended session is sent or resumed. */
  #forget(end: CloseInfo): void {
    this.state = { kind: "ended", session: undefined, end };
    this.#queue = undefined;
    this.#messages = this.#controls = NONE;
    this.#length = 0;
    this.#isAckDue = this.#isFull = this.#owesHello = false;
  }

  /** Messages flow in a session. `received`: how many frames the other side has of a session that is resumed. */
  #goLive(session: Session, received?: number): void {
    // Rule 5: replay begins behind what the other side has.
    if (received !== undefined) session.rewind(received);
    this.state = { kind: "live", session };
    this.#flow();
  }

  #flow(): void {
    this.#drain();
    this.#hooks.flows();
  }

  /** Sends what is logged, and behind it what is queued (rule 5), until the log or the wire is full. */
  #drain(): void {
    this.#isFull = false;
    const { session } = this.state;
    if (session !== undefined) this.#writeLog(session);
    for (const [handle, text] of this.#queue ?? []) {
      this.#makeRoom(text);
      if (this.#isFull || !this.#wire!.open) return;
      this.#queue!.remove(handle);
      this.#add(text, handle);
    }
  }

  /** Rule 7: a message that does not leave is queued, within bounds, in order. */
  #enqueue(text: string, handle: SendHandle | undefined, message: EncodedMessage | undefined): boolean {
    if (this.state.kind === "ended") return false;
    if (message !== undefined) return this.#enqueueBroadcast(text);
    const { burstLength, queueLength } = this.#limits;
    const most = this.isFlowing ? burstLength : this.#carriedLength + queueLength;
    if (this.#ordinaryLength + text.length <= most) {
      (this.#queue ??= new SendQueue()).add(text, handle);
      return true;
    }
    // Without a session the message is refused, and nothing else.
    if (this.state.session !== undefined) {
      const reason = this.isFlowing
        ? `more than ${most} bytes wait to be read`
        : "more than half of `maxUnsentBytes` waits to be sent, beside what waited when the socket was lost";
      this.end(CloseCode.TryAgainLater, reason);
    }
    return false;
  }

  /** Queues a broadcast only while little is queued. Ordinary messages keep all their room. */
  #enqueueBroadcast(text: string): boolean {
    const queue = (this.#queue ??= new SendQueue());
    if (queue.length + text.length > this.#limits.queueLength / 2) return false;
    if (!this.isFlowing && !this.#hooks.acceptsBroadcast(text.length + QUEUED_COST)) return false;
    queue.add(text, new BroadcastHandle());
    return true;
  }

  /** A long message travels alone, behind what was added before it, which may fill the log or the wire. */
  #makeRoom(text: string): void {
    if (this.#length > 0 && this.#length + text.length > PACK_LENGTH) this.#flushMessages();
  }

  /** Adds a message to those of this tick. */
  #add(text: string, handle: SendHandle | undefined): void {
    if (handle !== undefined) handle.sent = true;
    if (this.#messages === NONE) this.#messages = [text];
    else this.#messages.push(text);
    this.#length += text.length + 1;
  }

  #addControl(frame: string): void {
    if (this.#controls === NONE) this.#controls = [frame];
    else this.#controls.push(frame);
  }

  /** Sends a message whose frame is the same for many peers. */
  #sendEncoded(message: EncodedMessage): void {
    const wire = this.#wire!;
    if (!this.#packs) return void wire.send(message.plain);
    const { session } = this.state;
    this.#write(message.pack);
    if (session === undefined) return;
    session.log.push(message.pack.text);
    session.next++;
    this.#checkRoom(session);
  }

  #flushControls(): void {
    const controls = this.#controls;
    if (controls === NONE) return;
    this.#controls = NONE;
    this.#sendAll(controls);
  }

  /** Sends frames, behind the hello if that is still to be sent. */
  #sendAll(more: readonly string[]): void {
    const frames = this.#owesHello ? [clientHello(this.#limits), ...more] : more;
    this.#owesHello = false;
    const wire = this.#wire;
    if (wire?.sendAll !== undefined) wire.sendAll(frames);
    else for (const frame of frames) wire?.send(frame);
  }

  /** Sends a frame as `#sendAll` does. Returns false if there is no socket, or it takes no more. */
  #write(frame: string | EncodedFrame): boolean {
    const wire = this.#wire;
    if (!this.#owesHello || wire === undefined) return wire?.send(frame) ?? false;
    this.#sendAll([frameText(frame)]);
    return wire.open;
  }

  #flushMessages(): void {
    const messages = this.#messages;
    if (messages === NONE) return;
    this.#messages = NONE;
    this.#length = 0;
    const { session } = this.state;
    if (!this.#packs && session === undefined) return this.#sendAll(messages);
    const frame = `[${messages.join(",")}]`;
    if (session === undefined) return void this.#write(frame);
    session.log.push(frame);
    this.#writeLog(session);
  }

  /** Sends what is logged and was not given to this wire, be it new or replayed, while the wire has room (rule 7). */
  #writeLog(session: Session): void {
    const wire = this.#wire;
    if (wire === undefined) return;
    if (session.owesEarly) this.#sendAck(session);
    const { highWaterBytes } = this.#limits;
    while (session.next <= session.log.last && wire.unsentBytes < highWaterBytes) {
      this.#write(session.log.at(session.next++));
    }
    this.#checkRoom(session);
  }

  /** Sends what is logged and was not given to this wire, however full it is. */
  #writeRest(session: Session): void {
    while (session.next <= session.log.last) this.#write(session.log.at(session.next++));
  }

  /** Rule 7: no message gets a number while the log or the wire is full. */
  #checkRoom(session: Session): void {
    this.#isFull = session.log.isFull || this.#wire!.unsentBytes >= this.#limits.highWaterBytes;
  }

  /** Sends an ack. A client that asks for acks without end and reads none is owed none. */
  #sendAck(session: Session): void {
    this.#isAckDue = false;
    const wire = this.#wire!;
    const { logLength, highWaterBytes } = this.#limits;
    if (wire.unsentBytes <= Math.max(logLength, highWaterBytes)) this.#write(`{"ack":${session.ack()}}`);
    else if (session.log.length === 0) this.end(CloseCode.TryAgainLater, "too many acks wait to be read");
    // Data of this side, which is not acked, fills the wire. The ack leaves behind it.
    else session.isAckLate = this.#isFull = true;
  }
}
