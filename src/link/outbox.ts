/**
 * What leaves a packed link: messages become packs, and with a session packs become numbered frames that are logged. While
 * there is no socket, or it or the log is full, messages wait without a number, and one of them can still be taken back.
 */
import { exceeds } from "../core/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { ROOM_FOR_PONGS } from "../core/heartbeat.js";
import { addTraffic, type SharedMessage, type Socket, type Ticket, type Traffic } from "../core/transport.js";
import { atEndOfTurn, Paced } from "../core/turns.js";
import { BroadcastTicket, Waiting, WAITING_COST } from "../core/waiting.js";
import type { Keeper, Session } from "./session.js";
import { PACK_LENGTH, PACK_MESSAGES } from "./sizes.js";

/** How often a socket that was full is looked at again: not every runtime tells when it no longer is. */
export const DRAIN_CHECK_MS = 20;

/** Marks a broadcast that is sent like any other message. Where it waits, it gets a ticket of its own. */
const BROADCAST = new BroadcastTicket();

/** Whose outbox it is. */
interface OutboxOwner {
  /** More would wait than may; the message that was too much is not taken. */
  overflow(reason: string): void;
  /** Ends the connection for what the other side did. */
  breakOff(reason: string): void;
}

/** The outgoing half of a packed link. */
export class Outbox extends Paced implements Expiring {
  deadline = 0;
  socket: Socket | undefined;
  /** Counts and logs what leaves, while there is one. */
  session: Session | undefined;
  /** Whether the hello was said: before it messages leave one by one. */
  packs = false;
  readonly #keeper: Keeper | undefined;
  readonly #owner: OutboxOwner;
  /** The open pack, without its closing bracket; empty when there is none. */
  #pack = "";
  /** Whether messages may leave at all: not while a session has no socket, or is being resumed. */
  #isFlowing = true;
  /** Whether messages wait: always when nothing flows, and while the socket or the log is full. */
  #isBlocked = false;
  #isOver = false;
  /** Packs of this turn that made an ack due. */
  #duePacks = 0;
  #waiting: Waiting | undefined;
  /** The length of the ordinary messages that waited when messages last ceased to flow. A burst that was under way then ends no session. */
  #carried = 0;
  /** What went over the sockets before the present one. */
  #past: Traffic | undefined;

  constructor(keeper: Keeper | undefined, owner: OutboxOwner) {
    super();
    this.#keeper = keeper;
    this.#owner = owner;
  }

  /** Whether messages may leave at all. */
  get isFlowing(): boolean {
    return this.#isFlowing;
  }

  /**
   * What the socket could not send yet, and what waits behind it; not the open pack, of which nobody knows yet how fast it
   * will be read. While nothing flows, `held` is what counts.
   */
  get unsent(): number {
    const waiting = this.#isFlowing ? (this.#waiting?.length ?? 0) : 0;
    return (this.socket?.unsentBytes ?? 0) + waiting;
  }

  /** Of all sockets. */
  get traffic(): Traffic | undefined {
    return addTraffic(this.#past, this.socket?.traffic);
  }

  /** Lets go of the socket, and answers it. */
  drop(): Socket | undefined {
    const { socket } = this;
    this.#past = this.traffic;
    this.socket = undefined;
    return socket;
  }

  /** The length of what is logged and of the ordinary messages that wait. */
  get held(): number {
    return (this.session?.log.length ?? 0) + this.#ordinaryLength;
  }

  /** The length of the broadcasts that wait. */
  get heldBroadcasts(): number {
    return this.#waiting?.broadcastLength ?? 0;
  }

  get #ordinaryLength(): number {
    return (this.#waiting?.length ?? 0) - this.heldBroadcasts;
  }

  /** As `Transport.send`. */
  send(text: string, ticket?: Ticket): boolean {
    if (this.session !== undefined && exceeds(text, this.session.maxMessageBytes)) return false;
    if (!this.#isBlocked) this.#makeRoom(text);
    return this.#isBlocked ? this.#wait(text, ticket) : this.#add(text, ticket);
  }

  /** As `Transport.sendShared`. Where much waits already the broadcast is dropped: it ends no session. */
  sendShared(message: SharedMessage): boolean {
    const { session, socket } = this;
    if (this.#isBlocked || this.#pack !== "") return this.send(message.text, BROADCAST);
    if (!this.packs) return socket!.sendShared(message.plain);
    if (session === undefined) return socket!.sendShared(message.pack);
    if (!socket!.open || exceeds(message.text, session.maxMessageBytes)) return this.send(message.text, BROADCAST);
    session.log.push(message.pack.text);
    session.next++;
    socket!.sendShared(message.pack);
    this.#checkRoom(session);
    return true;
  }

  /** As `Transport.withdraw`. */
  withdraw(ticket: Ticket): boolean {
    const cost = this.#waiting?.remove(ticket) ?? 0;
    if (cost > 0 && !this.#isFlowing) this.#keeper!.grew(-cost);
    return cost > 0;
  }

  /** As `Transport.afterRead`. A socket knows nothing of messages that still wait. */
  afterRead(then: () => void): boolean {
    this.flush();
    return !this.#isBlocked && (this.socket?.afterRead?.(then) ?? false);
  }

  /** Sends a control frame, which waits behind nothing. */
  say(frame: object): void {
    this.socket?.send(JSON.stringify(frame));
  }

  /** Tells the other side what has come. One that asks for acks without end and reads none is not owed more. */
  ack(mayWait = false): void {
    if (!this.#hasRoomForAck) {
      if (this.session!.log.length === 0) return this.#owner.overflow("too many acks wait to be read");
      // Data of this side, which is not acked, fills the socket. The ack leaves behind it.
      this.session!.isAckLate = true;
      return;
    }
    this.socket?.send(`{"ack":${this.session!.ack()}}`, mayWait);
  }

  /** Acks a pack that makes an ack due: at once, and those that come after it in the same turn together at its end. A short log makes each due. */
  ackPack(): void {
    if (++this.#duePacks > 1 && this.#hasRoomForAck) return;
    this.ack();
    if (this.#duePacks > 1) return;
    atEndOfTurn({
      endTurn: () => {
        const isDue = this.#duePacks > 1;
        this.#duePacks = 0;
        if (isDue && this.#isFlowing && this.session?.owes) this.ack();
      },
    });
  }

  get #hasRoomForAck(): boolean {
    const { logLength, highWaterBytes } = this.#keeper!.limits;
    return (this.socket?.unsentBytes ?? 0) <= Math.max(logLength, highWaterBytes);
  }

  /** Answers a ping. */
  pong(value: unknown): void {
    // Who asks and never reads is not answered without end; who reads hears of this side by what is on its way.
    if (this.socket === undefined || this.socket.unsentBytes >= ROOM_FOR_PONGS) return;
    let pong: string;
    try {
      pong = JSON.stringify({ pong: value });
    } catch {
      // `JSON.parse` takes any depth, `JSON.stringify` does not.
      return this.#owner.breakOff("a ping that cannot be answered");
    }
    if (this.session?.owes) this.ack(true);
    // Frames that wait for the end of the turn are not counted as unsent, so where any are unsent, a pong does not wait.
    this.socket.send(pong, this.socket.unsentBytes === 0);
  }

  /** The open pack leaves, or with a session but no socket goes into the log: its messages have their number. */
  flush(): void {
    if (this.#pack === "") return;
    const frame = `${this.#pack}]`;
    this.#pack = "";
    if (this.session === undefined) {
      this.socket?.send(frame);
    } else {
      this.session.log.push(frame);
      this.#write(this.session);
    }
  }

  /** Nothing leaves until `flow`: messages wait. */
  halt(): void {
    this.flush();
    if (this.#isFlowing) this.#carried = this.#ordinaryLength;
    this.#isFlowing = false;
    this.#isBlocked = true;
    clearDeadline(this);
  }

  /** Lets messages leave: first those of the log that the socket was not given, then those that wait, then new ones. */
  flow(): void {
    if (this.#isOver) return;
    this.#isFlowing = true;
    this.#isBlocked = false;
    if (this.session !== undefined) this.#write(this.session);
    for (const [ticket, text] of this.#waiting ?? []) {
      this.#makeRoom(text);
      if (!this.socket!.open) this.#isBlocked = true;
      if (this.#isBlocked) return;
      this.#waiting!.remove(ticket);
      this.#add(text, ticket);
    }
  }

  /** Goes on where the log or the socket was full. */
  refresh(): void {
    if (this.#isFlowing && this.#isBlocked) this.flow();
  }

  expire(): void {
    this.refresh();
  }

  /** Forgets the session, and whatever waited or was logged. */
  forget(): void {
    this.session = this.#waiting = undefined;
    this.#carried = 0;
    this.#pack = "";
    this.packs = false;
  }

  /** Forgets everything and takes nothing more. */
  shut(): void {
    this.forget();
    this.#isOver = this.#isBlocked = true;
  }

  /** Takes nothing more; sends all that is held, however full the socket is. `bye` follows with a session, or where it must be said. */
  end(bye: object, mustSay: boolean): void {
    this.flush();
    this.#isOver = this.#isBlocked = true;
    clearDeadline(this);
    const { session, socket } = this;
    if (session === undefined) {
      if (mustSay && this.packs) this.say(bye);
      return;
    }
    while (session.next <= session.log.last) socket!.send(session.log.at(session.next++));
    for (const [ticket, text] of this.#waiting ?? []) ticket.sent = socket!.send(`[${text}]`);
    this.say(bye);
  }

  /** A long message travels alone: what is open leaves before it, in order. */
  #makeRoom(text: string): void {
    if (this.#pack !== "" && this.#pack.length + text.length > PACK_LENGTH) this.flush();
  }

  /** Sends a message, or puts it into the open pack. */
  #add(text: string, ticket: Ticket | undefined): boolean {
    const socket = this.socket!;
    if (!socket.open) return this.#addToClosing(text, ticket);
    if (ticket !== undefined) ticket.sent = true;
    const isAlone = this.isAlone();
    if (!this.packs) return socket.send(text, !isAlone);
    this.#pack = this.#pack === "" ? `[${text}` : `${this.#pack},${text}`;
    if (isAlone || this.#isFull()) this.flush();
    return true;
  }

  /** The more messages a turn has, the more leave together. */
  #isFull(): boolean {
    const { sentNow } = this;
    const isPowerOf2 = (sentNow & (sentNow - 1)) === 0;
    return this.#pack.length >= PACK_LENGTH || (isPowerOf2 && sentNow >= PACK_MESSAGES);
  }

  /** The end of the socket was not told yet. With a session there may be another. */
  #addToClosing(text: string, ticket: Ticket | undefined): boolean {
    if (this.session !== undefined) {
      this.#isBlocked = true;
      return this.#wait(text, ticket);
    }
    if (ticket !== undefined) ticket.sent = false;
    return false;
  }

  #wait(text: string, ticket: Ticket | undefined): boolean {
    if (this.#isOver) return false;
    if (ticket === BROADCAST) return this.#waitBroadcast(text);
    const { burstLength, waitingLength } = this.#keeper!.limits;
    const most = this.#isFlowing ? burstLength : this.#carried + waitingLength;
    if (this.#ordinaryLength + text.length > most) {
      this.#owner.overflow(
        this.#isFlowing
          ? `more than ${most} bytes wait to be read`
          : "more than half of `maxUnsentBytes` waits to be sent, beside what waited when the socket was lost",
      );
      return false;
    }
    this.#waiting ??= new Waiting();
    const cost = this.#waiting.add(text, ticket);
    if (!this.#isFlowing) this.#keeper!.grew(cost);
    return true;
  }

  /** Takes a broadcast only while little waits, and leaves the ordinary messages all the room that they have. */
  #waitBroadcast(text: string): boolean {
    const waiting = (this.#waiting ??= new Waiting());
    if (waiting.length + text.length > this.#keeper!.limits.waitingLength / 2) return false;
    if (!this.#isFlowing && !this.#keeper!.takesBroadcast(text.length + WAITING_COST)) return false;
    waiting.add(text, new BroadcastTicket());
    return true;
  }

  override endTurn(): void {
    super.endTurn();
    this.flush();
  }

  /** Sends what is logged and was not given to this socket, be it new or replayed. */
  #write(session: Session): void {
    const { socket } = this;
    if (socket === undefined || !this.#isFlowing) return;
    if (session.owesEarly) this.ack(true);
    const { highWaterBytes } = this.#keeper!.limits;
    while (session.next <= session.log.last && socket.unsentBytes < highWaterBytes) {
      socket.send(session.log.at(session.next++));
    }
    this.#checkRoom(session);
  }

  /** Blocks when a full log waits for an ack, or a full socket for its bytes to leave. */
  #checkRoom({ log }: Session): void {
    const isFull = this.socket!.unsentBytes >= this.#keeper!.limits.highWaterBytes;
    if (!isFull && !log.isFull) return;
    this.#isBlocked = true;
    clearDeadline(this);
    if (isFull) setDeadline(this, DRAIN_CHECK_MS);
  }
}
