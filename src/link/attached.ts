/** What joins a link to the socket it has at present. */
import type { CloseInfo, Socket, SocketHandler } from "../core/transport.js";

/** A link that changes its sockets; what one tells that is no longer its own is ignored. */
export interface Changing {
  frameFrom(socket: Socket, text: string): void;
  closedFrom(socket: Socket, info: CloseInfo): void;
}

/** Passes on what one socket tells, and whose word it is. */
export class Attached implements SocketHandler {
  readonly #link: Changing;
  readonly #socket: Socket;

  constructor(link: Changing, socket: Socket) {
    this.#link = link;
    this.#socket = socket;
  }

  frame(text: string): void {
    this.#link.frameFrom(this.#socket, text);
  }

  closed(info: CloseInfo): void {
    this.#link.closedFrom(this.#socket, info);
  }
}
