/**
 * The packed link, `reciproc.v1`: many small messages in one frame, one parse, one event. `docs/PROTOCOL.md` has the frames.
 *
 * Each direction is plain until its own sender's hello. So a server that agreed to the subprotocol without knowing it, and
 * a client that never says hello, are spoken to plainly.
 */
import type { Receiver, SharedMessage, Socket, Traffic, Transport } from "../core/transport.js";

/** The subprotocol's name. */
export const PROTOCOL = "reciproc.v1";

/** What a pack adds to a message that travels alone. */
export const PACK_OVERHEAD_BYTES = 2;

/**
 * A pack this long leaves at once. Without a bound the two sides work in turns instead of side by side: an echo of 64 KiB
 * fell to half the speed of one frame a message (docs/PERFORMANCE.md).
 */
export const PACK_LENGTH = 1024;

/** With more than this unread, a ping is not answered. */
const ROOM_FOR_PONGS = 64 * 1024;

const HELLO = '{"hello":{}}';
/** How a hello begins, whatever members a later version gives it. No JSON-RPC message of ours begins so. */
const HELLO_START = '{"hello":';
const BYE_START = '{"bye":';

/**
 * How the other side's frames are read. `"unsettled"`: its hello may still come. `"over"`: it broke the protocol, and nothing
 * more of it is read.
 */
type Incoming = "unsettled" | "plain" | "packed" | "over";

/** A link over a socket on which `reciproc.v1` was agreed. */
export class PackedLink implements Transport {
  readonly #socket: Socket;
  readonly #role: "client" | "server";
  #receiver!: Receiver;
  #incoming: Incoming = "unsettled";
  #packs = false;
  /** The open pack, without its closing bracket; empty when there is none. */
  #pack = "";
  #flushDue = false;

  /** `isGreeted`: a client's, when the server's hello has come already. */
  constructor(socket: Socket, role: "client" | "server", isGreeted = false) {
    this.#socket = socket;
    this.#role = role;
    socket.maxFrameBytes += PACK_OVERHEAD_BYTES;
    // The server speaks first: it costs nothing, and a client that knows the protocol learns of it at once.
    if (role === "server" || isGreeted) this.#sayHello();
  }

  get unsentBytes(): number {
    return this.#socket.unsentBytes + this.#pack.length;
  }

  get traffic(): Traffic | undefined {
    return this.#socket.traffic;
  }

  /** Who said hello is one of us, or speaks as we do. */
  get isOurs(): boolean {
    return this.#packs;
  }

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    this.#socket.start({
      frame: (text) => this.#take(text),
      closed: (info) => receiver.closed(info),
    });
  }

  send(text: string): boolean {
    if (!this.#packs) return this.#socket.send(text);
    if (!this.#socket.open) return false;
    // A long message travels alone; what is open leaves before it, in order.
    if (this.#pack.length + text.length > PACK_LENGTH) this.#flush();
    this.#pack = this.#pack === "" ? `[${text}` : `${this.#pack},${text}`;
    if (this.#pack.length >= PACK_LENGTH) this.#flush();
    else this.#flushAtEndOfTurn();
    return true;
  }

  sendShared(message: SharedMessage): boolean {
    if (!this.#packs) return this.#socket.sendShared(message.plain);
    return this.#pack === "" ? this.#socket.sendShared(message.pack) : this.send(message.text);
  }

  close(code?: number, reason?: string): void {
    this.#flush();
    this.#socket.close(code, reason);
  }

  #sayHello(): void {
    this.#socket.send(HELLO);
    this.#packs = true;
  }

  #take(text: string): void {
    if (this.#incoming === "packed") this.#takePacked(text);
    else if (this.#incoming === "unsettled") this.#takeFirst(text);
    else if (this.#incoming === "plain") this.#receiver.receive(text);
  }

  /** A server's first frame decides for good; a client may speak plainly for a while before its hello. */
  #takeFirst(text: string): void {
    if (isHello(text)) {
      this.#incoming = "packed";
      if (!this.#packs) this.#sayHello();
      return;
    }
    if (this.#role === "client") this.#incoming = "plain";
    this.#receiver.receive(text);
  }

  /** The first byte decides; there is no third form. */
  #takePacked(text: string): void {
    const frame = parse(text);
    if (Array.isArray(frame)) for (const message of frame) this.#receiver.dispatch(message);
    else if (typeof frame === "object" && frame !== null) this.#control(frame);
    else this.#breakOff("neither a pack nor a control frame");
  }

  /** Answers a ping. What a later version adds is ignored. */
  #control(frame: object): void {
    // Who asks and never reads is not answered without end; who reads hears of this side by what is on its way.
    if (!("ping" in frame) || this.#socket.unsentBytes >= ROOM_FOR_PONGS) return;
    let pong: string;
    try {
      pong = JSON.stringify({ pong: frame.ping });
    } catch {
      // `JSON.parse` takes any depth, `JSON.stringify` does not.
      return this.#breakOff("a ping that cannot be answered");
    }
    this.#socket.send(pong);
  }

  #breakOff(reason: string): void {
    this.#incoming = "over";
    this.#socket.close(1002, reason);
  }

  #flushAtEndOfTurn(): void {
    if (this.#flushDue) return;
    this.#flushDue = true;
    queueMicrotask(this.#onEndOfTurn);
  }

  readonly #onEndOfTurn = (): void => {
    this.#flushDue = false;
    this.#flush();
  };

  #flush(): void {
    if (this.#pack === "") return;
    const frame = `${this.#pack}]`;
    this.#pack = "";
    this.#socket.send(frame);
  }
}

/** Whether a frame is a hello. */
export function isHello(frame: string): boolean {
  return frame.startsWith(HELLO_START);
}

/** Why a server lets nobody in: the code it closes with, and a text. */
export interface Bye {
  readonly code: number;
  readonly reason: string;
}

/** The frame that says so. */
export function sayBye(bye: Bye): string {
  return JSON.stringify({ bye });
}

/** Reads a server's first frame, when it is a bye. */
export function readBye(frame: string): Bye | undefined {
  if (!frame.startsWith(BYE_START)) return undefined;
  const { code, reason } = (parse(frame) as { bye?: Partial<Bye> } | undefined)?.bye ?? {};
  return typeof code === "number" && typeof reason === "string" ? { code, reason } : undefined;
}

/** `undefined` for what is not JSON. */
function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
