/** The plain link: one JSON-RPC message or batch in each text frame, which every implementation of JSON-RPC understands. */
import type {
  CloseInfo,
  Receiver,
  SharedMessage,
  Socket,
  SocketHandler,
  TickBudget,
  Traffic,
  Transport,
} from "../core/transport.js";
import { Coalescer } from "./coalescer.js";

const NONE: string[] = [];

/** A transport whose messages are the socket's frames. */
export class PlainLink implements Transport, SocketHandler {
  readonly isOurs: boolean;
  readonly #socket: Socket;
  readonly #coalescer = new Coalescer(this, Infinity);
  #receiver!: Receiver;
  /** The messages of this tick. */
  #messages = NONE;
  #length = 0;

  /** `isOurs`: the other side is a reciproc peer. */
  constructor(socket: Socket, isOurs = false) {
    this.#socket = socket;
    this.isOurs = isOurs;
  }

  start(receiver: Receiver): void {
    this.#receiver = receiver;
    this.#socket.start(this);
  }

  get unsentBytes(): number {
    return this.#socket.unsentBytes;
  }

  get traffic(): Traffic | undefined {
    return this.#socket.traffic;
  }

  get budget(): TickBudget | undefined {
    return this.#socket.budget;
  }

  send(text: string): boolean {
    const socket = this.#socket;
    if (socket.sendAll === undefined || !socket.open) return socket.send(text);
    if (this.#messages === NONE) this.#messages = [text];
    else this.#messages.push(text);
    this.#length += text.length;
    this.#coalescer.added(this.#length);
    return true;
  }

  sendShared(message: SharedMessage): boolean {
    this.flush();
    return this.#socket.sendShared(message.plain);
  }

  flush(): void {
    if (this.#messages === NONE) return;
    const messages = this.#messages;
    this.#messages = NONE;
    this.#length = 0;
    this.#socket.sendAll!(messages);
  }

  afterRead(then: () => void): boolean {
    this.flush();
    return this.#socket.afterRead?.(then) ?? false;
  }

  close(code?: number, reason?: string): void {
    this.flush();
    this.#socket.close(code, reason);
  }

  frame(text: string): void {
    this.#receiver.receive(text);
  }

  closed(info: CloseInfo): void {
    this.#receiver.closed(info);
  }
}

/** Returns the plain link of a socket. */
export function plain(socket: Socket, isOurs?: boolean): Transport {
  return new PlainLink(socket, isOurs);
}
