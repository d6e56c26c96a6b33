/** Bare `ws` with all messages of a tick in one frame, as an array. The frame is sent earlier if it is long. */
import { BarePeer, withPeers } from "./bare.js";

export * from "./bare.js";

/** With the bound, both sides work at the same time instead of one after the other. */
const PACK_CHARACTERS = 1024;

export class PackedPeer extends BarePeer {
  #pack = "";

  post(text) {
    if (this.#pack === "") process.nextTick(flush, this);
    this.#pack += this.#pack === "" ? text : `,${text}`;
    if (this.#pack.length >= PACK_CHARACTERS) this.flush();
  }

  flush() {
    if (this.#pack === "") return;
    this.send(`[${this.#pack}]`);
    this.#pack = "";
  }

  read(messages) {
    for (const message of messages) super.read(message);
  }
}

function flush(peer) {
  peer.flush();
}

export const { serve, connector } = withPeers(PackedPeer);
