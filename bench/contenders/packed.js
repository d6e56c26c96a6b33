/** The floor: bare `ws` with all messages of a tick in one frame, as an array. The frame is sent earlier if it holds 1 KiB. */
import { BarePeer, connect as connectBare, serve as serveBare } from "./bare.js";

const PACK_CHARACTERS = 1024;

class PackedPeer extends BarePeer {
  #pack = "";

  post(text) {
    // With the bound, both sides work at the same time instead of one after the other.
    if (this.#pack === "") setImmediate(() => this.#flush());
    this.#pack += this.#pack === "" ? text : `,${text}`;
    if (this.#pack.length >= PACK_CHARACTERS) this.#flush();
  }

  #flush() {
    if (this.#pack === "") return;
    this.socket.send(`[${this.#pack}]`);
    this.#pack = "";
  }

  read(messages) {
    for (const message of messages) super.read(message);
  }
}

export const serve = (methods, peers) => serveBare(methods, peers, PackedPeer);
export const connect = (url, methods) => connectBare(url, methods, PackedPeer);
