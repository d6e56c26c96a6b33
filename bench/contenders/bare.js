/** The baseline: JSON-RPC over `ws` by hand, with one message in each frame. It has no errors, no limits and no timeouts. */
import { once } from "node:events";
import { overSockets } from "./sockets.js";

/** An upload waits while so much is unsent. */
const HIGH_WATER_BYTES = 2 ** 20;

export class BarePeer {
  #pending = new Map();
  #nextId = 1;
  /** The bytes that have arrived since they were asked for. */
  #taken = 0;

  constructor(socket, methods) {
    this.socket = socket;
    this.methods = methods;
    this.listen();
  }

  listen() {
    this.socket.on("message", (data, isBinary) => {
      if (isBinary) this.readBytes(data);
      else this.read(JSON.parse(data.toString()));
    });
  }

  get tcp() {
    return this.socket._socket;
  }

  call(method, x) {
    return new Promise((resolve) => {
      const id = this.#nextId++;
      this.#pending.set(id, resolve);
      this.post(JSON.stringify({ jsonrpc: "2.0", id, method, params: [x] }));
    });
  }

  /** Sends bytes as many binary frames, with the backpressure of the socket. */
  async upload(parts) {
    for await (const part of parts) {
      this.send(part);
      if (this.tcp.writableLength > HIGH_WATER_BYTES) await once(this.tcp, "drain");
    }
    return this.call("taken");
  }

  /** Sends the text of a message. */
  post(text) {
    this.send(text);
  }

  /** Sends a frame. */
  send(data) {
    this.socket.send(data);
  }

  close() {
    this.socket.close();
  }

  readBytes(data) {
    this.#taken += this.methods.received(data);
  }

  read({ id, method, params, result }) {
    if (method === undefined) {
      this.#pending.get(id)(result);
      this.#pending.delete(id);
      return;
    }
    const answer = method === "taken" ? this.#take() : this.methods[method](params[0], this);
    if (id !== undefined) this.post(JSON.stringify({ jsonrpc: "2.0", id, result: answer }));
  }

  #take() {
    const taken = this.#taken;
    this.#taken = 0;
    return taken;
  }
}

export function textOf(method, x) {
  return JSON.stringify({ jsonrpc: "2.0", method, params: [x] });
}

/** Returns `serve` and `connector`. The peers are of the class `Peer`. */
export function withPeers(Peer) {
  const broadcaster = (peers) => (method, x, except) => {
    const text = textOf(method, x);
    for (const peer of peers) if (peer !== except) peer.post(text);
  };
  return overSockets({ wire: (socket, methods) => new Peer(socket, methods), broadcaster });
}

export const { serve, connector } = withPeers(BarePeer);
export const call = (peer, method, x) => peer.call(method, x);
export const notify = (peer, method, x) => peer.post(textOf(method, x));
export const close = (peer) => peer.close();
/** Sends bytes as one binary frame, and asks for the number that has arrived. */
export const put = (peer, view) => peer.upload([view]);
export const upload = (peer, parts) => peer.upload(parts);
