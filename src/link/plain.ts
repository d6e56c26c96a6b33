/** The plain link: one JSON-RPC message or batch a text frame, which is what every stranger speaks. */
import { Paced } from "../core/turns.js";
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

/** A transport whose messages are the socket's frames. */
export class PlainLink extends Paced implements Transport, SocketHandler {
  readonly isOurs: boolean;
  readonly #socket: Socket;
  #receiver!: Receiver;

  /** `isOurs`: this package is on the other side too, and nobody else. */
  constructor(socket: Socket, isOurs = false) {
    super();
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
    return this.#socket.send(text, !this.isAlone());
  }

  sendShared(message: SharedMessage): boolean {
    return this.#socket.sendShared(message.plain);
  }

  afterRead(then: () => void): boolean {
    return this.#socket.afterRead?.(then) ?? false;
  }

  close(code?: number, reason?: string): void {
    this.#socket.close(code, reason);
  }

  /** What the socket tells. */
  frame(text: string): void {
    this.#receiver.receive(text);
  }

  closed(info: CloseInfo): void {
    this.#receiver.closed(info);
  }
}

/** The plain link of a socket. */
export function plain(socket: Socket, isOurs?: boolean): Transport {
  return new PlainLink(socket, isOurs);
}
