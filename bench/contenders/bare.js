/** The baseline: JSON-RPC over `ws` by hand, with one message in each frame. It has no errors, no limits and no timeouts. */
import { once } from "node:events";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

export class BarePeer {
  #pending = new Map();
  #nextId = 1;
  /** The bytes that have arrived since they were asked for. */
  #taken = 0;

  constructor(socket, methods) {
    this.socket = socket;
    this.methods = methods;
    socket.on("message", (data, isBinary) => {
      if (isBinary) this.readBytes(data);
      else this.read(JSON.parse(data.toString()));
    });
  }

  call(method, x) {
    return new Promise((resolve) => {
      const id = this.#nextId++;
      this.#pending.set(id, resolve);
      this.post(JSON.stringify({ jsonrpc: "2.0", id, method, params: [x] }));
    });
  }

  notify(method, x) {
    this.post(JSON.stringify({ jsonrpc: "2.0", method, params: [x] }));
  }

  /** Sends bytes as one binary frame, and asks for the number that has arrived. */
  put(view) {
    this.socket.send(view);
    return this.call("taken");
  }

  /** Sends bytes as many binary frames, with the backpressure of `ws`. */
  async upload(parts) {
    for await (const part of parts) {
      this.socket.send(part);
      if (this.socket.bufferedAmount > HIGH_WATER_BYTES) await once(this.socket._socket, "drain");
    }
    return this.call("taken");
  }

  readBytes(data) {
    this.#taken += this.methods.received(data);
  }

  close() {
    this.socket.close();
  }

  post(text) {
    this.socket.send(text);
  }

  #take() {
    const taken = this.#taken;
    this.#taken = 0;
    return taken;
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
}

/** An upload waits while so much is unsent. */
const HIGH_WATER_BYTES = 2 ** 20;

export async function serve(methods, peers, Peer = BarePeer) {
  const port = await serveSockets(peers, (socket) => new Peer(socket, methods));
  return { port, broadcast: notifyEach(peers) };
}

export async function connect(url, methods, Peer = BarePeer) {
  const socket = openSocket(url);
  const peer = new Peer(socket, methods);
  await once(socket, "open");
  return peer;
}
