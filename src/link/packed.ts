/**
 * The packed link, `reciproc.v1`: many small messages in one frame, one parse, one event. `docs/PROTOCOL.md` has the frames.
 *
 * Each direction is plain until its own sender's hello. So a server that agreed to the subprotocol without knowing it, and
 * a client that never says hello, are spoken to plainly.
 *
 * With a `Keeper` the link may have a session, and then it outlives its sockets. Without one, or where the other side wants
 * none, nothing is counted, and the link ends with its socket.
 */
import { isObject } from "../core/message.js";
import { exceeds } from "../core/codec.js";
import {
  endOf,
  Frame,
  type CloseInfo,
  type Receiver,
  type SharedMessage,
  type Socket,
  type SocketBudget,
  type SocketHandler,
  type Ticket,
  type Traffic,
  type Transport,
} from "../core/transport.js";
import { byeOf, HELLO, helloOf, isCount, LEFT, parse, type SessionLimits } from "./frames.js";
import { Attached } from "./attached.js";
import { Outbox } from "./outbox.js";
import { isTooLong, longestFrame } from "./sizes.js";
import { isFinal, lossOf, Session, type Keeper } from "./session.js";

/** The subprotocol's name. */
export const PROTOCOL = "reciproc.v1";

/**
 * How the other side's frames are read. `"unsettled"`: its hello may still come. `"resuming"`: its `resumed` must come.
 * `"over"`: it said bye or broke the protocol, and nothing more of it is read.
 */
type Incoming = "unsettled" | "plain" | "packed" | "resuming" | "over";

/** A link over a socket on which `reciproc.v1` was agreed, and with a session over those that follow. */
export class PackedLink implements Transport {
  /** How many frames have come, of any kind, on any socket: a connection on which it grows is alive. */
  heard = 0;
  readonly #role: "client" | "server";
  readonly #keeper: Keeper | undefined;
  readonly #out: Outbox;
  #receiver!: Receiver;
  #startFirst: (() => void) | undefined;
  #incoming: Incoming = "unsettled";
  #maxMessageBytes = Infinity;
  /** What the receiver keeps for the other side. */
  #kept = 0;
  #frameLength = 0;
  /** The frame that is received at present, once anything of it stays in use. */
  #frame: Frame | undefined;
  /** The budget of the newest socket. It outlives that socket, as do messages of a pack that was counted as received. */
  #budget: SocketBudget | undefined;
  /** Whether the receiver was told that the session is suspended. */
  #isSuspended = false;
  /** Why it is over, when that is known before its socket is closed. */
  #end: CloseInfo | undefined;
  /** What the present socket was closed with because a message was too long. */
  #refusal: CloseInfo | undefined;
  /** By `close`, or because the end was told. */
  #isClosed = false;

  /**
   * A `keeper` is told of the other side's hello. Without a socket, `attach` must bring one before anything else is done.
   */
  constructor(socket: Socket | undefined, role: "client" | "server", keeper?: Keeper) {
    this.#role = role;
    this.#keeper = keeper;
    this.#out = new Outbox(keeper, this);
    if (socket !== undefined) {
      const handler = this.attach(socket);
      this.#startFirst = () => socket.start(handler);
    }
    // The server speaks first: it costs nothing, and a client that knows the protocol learns of it at once.
    if (role === "server") this.greet(keeper?.greeting);
  }

  get unsentBytes(): number {
    return this.#out.unsent;
  }

  get traffic(): Traffic | undefined {
    return this.#out.traffic;
  }

  /** Who said hello is one of us, or speaks as we do; who has a session is so also on a socket where it has not said it yet. */
  get isOurs(): boolean {
    return this.#out.packs || this.session !== undefined;
  }

  get budget(): SocketBudget | undefined {
    return this.#budget;
  }

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    this.#startFirst?.();
    this.#startFirst = undefined;
  }

  send(text: string, ticket?: Ticket): boolean {
    return this.#out.send(text, ticket);
  }

  sendShared(message: SharedMessage): boolean {
    return this.#out.sendShared(message);
  }

  withdraw(ticket: Ticket): boolean {
    return this.#out.withdraw(ticket);
  }

  afterRead(then: () => void): boolean {
    return this.#out.afterRead(then);
  }

  get maxMessageBytes(): number | undefined {
    return this.#out.session?.maxMessageBytes;
  }

  close(code = 1000, reason = "", retryMs?: number): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#keeper?.drop();
    const { socket } = this.#out;
    this.#incoming = "over";
    if (socket !== undefined && this.#out.isFlowing) {
      this.#out.end({ bye: { code, reason, retryMs } }, retryMs !== undefined);
      socket.close(code, reason);
    } else {
      // Nobody is there to be told.
      this.#leave(reason);
      this.#tellEnd({ code, reason });
    }
  }

  /** Whether there is a socket, be it one on which nothing flows yet. */
  get hasSocket(): boolean {
    return this.#out.socket !== undefined;
  }

  /** The session, for its keeper. */
  get session(): Session | undefined {
    return this.#out.session;
  }

  /** The length of what this end holds for the other: what it logs, the ordinary messages that wait, and what the receiver keeps. */
  get held(): number {
    return this.#out.held + this.#kept;
  }

  keeps(by: number): void {
    this.#kept += by;
    this.#keeper?.grew(by);
  }

  /** A client counts nothing: it has one session. */
  get currentFrame(): Frame | undefined {
    if (this.#role === "client" || this.#keeper === undefined) return undefined;
    return (this.#frame ??= new Frame(this.#frameLength));
  }

  /** The length of the broadcasts that wait beside. */
  get heldBroadcasts(): number {
    return this.#out.heldBroadcasts;
  }

  /** Takes a socket in place of the one before it, of which nothing more is read or told. Answers what to start it with. */
  attach(socket: Socket): SocketHandler {
    this.#leave("a newer socket took over");
    if (this.#budget !== undefined) socket.budget?.adopt(this.#budget);
    this.#budget = socket.budget;
    if (this.session !== undefined) this.#out.halt();
    if (this.#isClosed) socket.discard(LEFT, "nobody waits for it");
    else this.#out.socket = socket;
    // A client says hello anew, if it does not resume; a server has said it.
    this.#out.packs = this.#role === "server";
    this.#incoming = "unsettled";
    this.#refusal = undefined;
    this.#maxMessageBytes = this.#keeper?.limits.maxMessageBytes ?? socket.maxFrameBytes;
    socket.maxFrameBytes = longestFrame(this.#maxMessageBytes);
    return new Attached(this, socket);
  }

  frameFrom(socket: Socket, text: string): void {
    if (this.#out.socket === socket) this.#take(text);
  }

  closedFrom(socket: Socket, info: CloseInfo): void {
    if (this.#out.socket === socket) this.#lose(info);
  }

  /** Gives the socket up for dead: what follows is as if it had been lost. */
  giveUp(reason: string): void {
    if (this.#out.socket === undefined) return;
    this.#leave(reason);
    this.#lose({ code: 1006, reason });
  }

  /** When anything last came, by `performance.now()`, where the socket notes it. */
  get heardAt(): number | undefined {
    return this.#out.socket?.heardAt;
  }

  /** Whether the other side can be asked for a sign of life. */
  get canPing(): boolean {
    return this.#out.packs || this.#out.socket?.ping !== undefined;
  }

  /** Asks for one, where that can be done. */
  ping(): void {
    if (!this.#out.isFlowing) return;
    if (!this.#out.packs) return this.#out.socket?.ping?.();
    if (this.session?.owes) this.#out.ack();
    this.#out.say({ ping: 1 });
  }

  /** Sends a control frame, which waits behind nothing. */
  say(frame: object): void {
    this.#out.say(frame);
  }

  /** Tells the other side what has come. */
  ack(): void {
    this.#out.ack();
  }

  /** Says hello: packs follow. */
  greet(hello = HELLO): void {
    this.#out.socket?.send(hello);
    this.#out.packs = true;
    this.#flow();
  }

  /** Begins a session by a frame behind which what this end sends is counted. `theirs`: the other side's limits, when they are known. */
  open(frame: object, theirs?: SessionLimits): void {
    this.#out.flush();
    this.#out.say(frame);
    this.#out.packs = true;
    this.#out.session = new Session(this.#keeper!.limits, theirs);
    this.#flow();
  }

  /** Asks to go on with the session, and sends nothing until `resume`. */
  ask(frame: object): void {
    this.#incoming = "resuming";
    this.#out.say(frame);
  }

  /** Goes on with the session on the present socket. The other side has `received` so many frames, which the log must cover. */
  resume(received: number): void {
    this.session!.rewind(received);
    this.#incoming = "packed";
    this.#out.packs = true;
    this.#flow();
  }

  /** The session is over; whether a fresh connection begins on the present socket. */
  renew(reason: string): boolean {
    this.#out.forget();
    if (this.#incoming === "resuming") this.#incoming = "packed";
    if (this.#receiver.lost === undefined) this.breakOff(reason, 1000);
    else this.#receiver.lost(new Error(reason));
    return !this.#isClosed && this.#incoming !== "over";
  }

  /** Lets messages leave plainly: whoever is at the present socket knows nothing else. */
  flowPlainly(): void {
    this.#incoming = "plain";
    this.#flow();
  }

  /** The session is over. Where there is a socket, its end tells so; otherwise it is told soon, and not inside this call. */
  expire(code: number, reason: string, error?: Error): void {
    if (this.hasSocket) return this.breakOff(reason, code);
    const info = (this.#end = { code, reason, error });
    this.#keeper!.drop();
    queueMicrotask(() => {
      if (this.#end === info && !this.#isClosed) this.#finish(info);
    });
  }

  /** Ends the connection, and the session with it, for what the other side did. */
  breakOff(reason: string, code = 1002): void {
    this.#incoming = "over";
    this.#end = { code, reason };
    this.#keeper?.drop();
    this.#out.socket?.close(code, reason);
  }

  #take(text: string): void {
    this.heard++;
    if (this.#incoming === "packed") this.#takePacked(text);
    else if (this.#incoming === "unsettled") this.#takeFirst(text);
    else if (this.#incoming === "plain") this.#takePlain(text);
    else if (this.#incoming === "resuming") this.#takeAnswer(text);
  }

  /** A server's first frame decides for good; a client may speak plainly for a while before its hello. */
  #takeFirst(text: string): void {
    const hello = helloOf(text);
    if (hello !== undefined) return this.#takeHello(hello);
    if (this.#role === "client") this.#incoming = "plain";
    this.#takePlain(text);
  }

  /** The socket takes frames that are longer, for packs of several messages. */
  #takePlain(text: string): void {
    if (exceeds(text, this.#maxMessageBytes)) return this.#refuseLong();
    // A session may begin while what was called before runs.
    this.#frame = undefined;
    this.#frameLength = text.length;
    this.#receiver.receive(text);
  }

  #refuseLong(): void {
    this.#incoming = "over";
    this.#refusal = { code: 1009, reason: "message is too large" };
    this.#out.socket!.close(1009, this.#refusal.reason);
  }

  #takeHello(hello: unknown): void {
    this.#incoming = "packed";
    // A client may have been made with this very hello, and then it has answered.
    if (this.#role === "client" && this.#out.packs) return;
    if (this.#keeper !== undefined) this.#keeper.hello(hello);
    else if (!this.#out.packs) this.greet();
  }

  /** The first byte decides; there is no third form. */
  #takePacked(text: string): void {
    const frame = parse(text);
    if (Array.isArray(frame)) this.#takePack(frame, text);
    else if (isObject(frame)) this.#control(frame);
    else this.breakOff("neither a pack nor a control frame");
  }

  #takePack(messages: unknown[], text: string): void {
    if (isTooLong(text, this.#maxMessageBytes)) return this.#refuseLong();
    if (this.session?.takes(text.length)) this.#out.ackPack();
    this.#frame = undefined;
    this.#frameLength = text.length;
    this.#dispatch(messages, 0, this.#receiver);
  }

  /** Dispatches the messages of a pack from the one at `from` on, in as many ticks as the budget needs. */
  #dispatch(messages: unknown[], from: number, receiver: Receiver): void {
    for (let i = from; i < messages.length; i++) {
      // A connection that is lost while it takes these hands over to another, and they are not for that one.
      if (this.#receiver !== receiver || this.#incoming === "over") return;
      if (i > from && this.#budget?.isSpent()) return this.#budget.defer(() => this.#dispatch(messages, i, receiver));
      receiver.dispatch(messages[i]);
    }
  }

  /** What a returning client may be told; anything else would belong to no session. */
  #takeAnswer(text: string): void {
    const frame = parse(text);
    if (!isObject(frame)) this.breakOff("data before `resumed`");
    else if ("bye" in frame) this.#farewell(frame.bye);
    else this.#keeper!.control(frame);
  }

  /** Answers a ping. What a later version adds is ignored. */
  #control(frame: object): void {
    if ("ping" in frame) this.#out.pong(frame.ping);
    else if (this.#keeper === undefined) return;
    else if ("ack" in frame) this.#acked(frame.ack);
    else if ("bye" in frame) this.#farewell(frame.bye);
    else this.#keeper.control(frame);
  }

  #acked(count: unknown): void {
    const { session } = this;
    if (session === undefined) return;
    if (!isCount(count) || count >= session.next) return this.breakOff("`ack` is no count of the frames sent");
    session.log.ackTo(count);
    this.#keeper!.acked();
    this.#out.refresh();
  }

  /** The other side ends it by will; its close follows. */
  #farewell(bye: unknown): void {
    this.#incoming = "over";
    this.#end = byeOf(bye) ?? { code: 1000, reason: "" };
    this.#keeper!.drop();
  }

  /** As `Transport.tooSlow`: ends the session. */
  tooSlow(reason: string): boolean {
    if (this.session === undefined) return false;
    if (this.#end === undefined) this.expire(1013, reason);
    return true;
  }

  /** More would wait than may. Before there is a fresh session, the message is refused and nothing else. */
  overflow(reason: string): void {
    if (this.session === undefined || this.#end !== undefined) return;
    this.expire(1013, reason);
  }

  /** Leaves the socket without a word: what it still brings is not read. */
  #leave(reason: string): void {
    this.#out.drop()?.discard(LEFT, reason);
  }

  /** The socket is closed. */
  #lose(told: CloseInfo): void {
    const info = endOf(told, this.#refusal);
    this.#refusal = undefined;
    this.#out.drop();
    if (this.#isClosed) return this.#tellEnd(info);
    this.#out.halt();
    const isOver = this.#end !== undefined || isFinal(info.code) || this.#keeper?.suspend() !== true;
    if (isOver) return this.#finish(this.#end ?? info);
    this.#suspend();
    if (!this.#isClosed) this.#keeper?.suspended();
  }

  #suspend(): void {
    if (this.#isSuspended) return;
    this.#isSuspended = true;
    this.#receiver.suspended?.();
  }

  /** Lets messages leave: first what the other side has not, and what the receiver sends when it hears of it behind that. */
  #flow(): void {
    this.#out.flow();
    if (!this.#isSuspended || this.#isClosed) return;
    this.#isSuspended = false;
    this.#receiver.resumed?.();
  }

  /** It is over, for good or, where the keeper says so, until another socket comes. */
  #finish(info: CloseInfo): void {
    this.#keeper?.drop();
    this.#out.forget();
    this.#end = undefined;
    if (this.#receiver.lost !== undefined && this.#keeper?.over(info)) {
      this.#suspend();
      // Once more: what the receiver sent when it heard of it is of the connection that is lost.
      this.#out.forget();
      if (!this.#isClosed) this.#receiver.lost(lossOf(info));
      return;
    }
    this.#isClosed = true;
    this.#tellEnd(info);
  }

  #tellEnd(info: CloseInfo): void {
    this.#out.shut();
    this.#receiver.closed(info);
  }
}
