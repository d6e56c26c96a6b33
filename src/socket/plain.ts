/** The plain link: one JSON-RPC message or batch in each text frame, which every implementation of JSON-RPC understands. */
import type { ReadBudget } from "../base/read-budget.js";
import { parse } from "../message/message.js";
import type { CloseInfo, LinkReceiver, EncodedMessage, Traffic, Link } from "../message/transport.js";
import type { Socket, SocketHandler } from "./socket.js";
import { Coalescer } from "./coalescer.js";

const NONE: string[] = [];
/** More messages than any tick has. V8 would allocate 16 bytes for `Infinity` in each coalescer. */
const MOST_MESSAGES = 2 ** 20;

/** A transport that sends each message as one frame of its socket. */
export class PlainLink implements Link, SocketHandler {
  readonly isReciproc: boolean;
  readonly #socket: Socket;
  readonly #coalescer = new Coalescer(this, MOST_MESSAGES);
  #receiver!: LinkReceiver;
  /** The messages of this tick. */
  #messages = NONE;
  #length = 0;

  /** `isReciproc`: the other side is a reciproc peer. */
  constructor(socket: Socket, isReciproc = false) {
    this.#socket = socket;
    this.isReciproc = isReciproc;
  }

  start(receiver: LinkReceiver): void {
    this.#receiver = receiver;
    this.#socket.start(this);
  }

  get unsentBytes(): number {
    return this.#socket.unsentBytes;
  }

  get traffic(): Traffic | undefined {
    return this.#socket.traffic;
  }

  get budget(): ReadBudget | undefined {
    return this.#socket.budget;
  }

  send(text: string): boolean {
    const socket = this.#socket;
    if (socket.coalesces !== true) return socket.send(text);
    const isDue = this.#coalescer.countMessage(this.#length + text.length);
    if ((isDue && this.#messages === NONE) || !socket.open) return socket.send(text);
    if (this.#messages === NONE) this.#messages = [text];
    else this.#messages.push(text);
    this.#length += text.length;
    if (isDue) this.flush();
    return true;
  }

  sendEncoded(message: EncodedMessage): boolean {
    this.flush();
    const frame = message.plain;
    return this.#socket.sendEncoded?.(frame) ?? this.#socket.send(frame.content);
  }

  flush(): void {
    if (this.#messages === NONE) return;
    const messages = this.#messages;
    this.#messages = NONE;
    this.#length = 0;
    this.#socket.send(...messages);
  }

  afterRead(then: () => void): boolean {
    this.flush();
    return this.#socket.afterRead?.(then) ?? false;
  }

  close(code?: number, reason?: string): void {
    this.flush();
    this.#socket.close(code, reason);
  }

  receiveFrame(text: string): void {
    this.#receiver.dispatch(parse(text));
  }

  closed(info: CloseInfo): void {
    this.#receiver.closed(info);
  }
}
