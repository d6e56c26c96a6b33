/** The baseline: JSON-RPC over `ws` by hand, with one message in each frame. It has no errors, no limits and no timeouts. */
import { once } from "node:events";
import { notifyEach, openSocket, serveSockets } from "./sockets.js";

export class BarePeer {
  #pending = new Map();
  #nextId = 1;

  constructor(socket, methods) {
    this.socket = socket;
    this.methods = methods;
    socket.on("message", (data) => this.read(JSON.parse(data.toString())));
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

  close() {
    this.socket.close();
  }

  post(text) {
    this.socket.send(text);
  }

  read({ id, method, params, result }) {
    if (method === undefined) {
      this.#pending.get(id)(result);
      this.#pending.delete(id);
      return;
    }
    const answer = this.methods[method](params[0], this);
    if (id !== undefined) this.post(JSON.stringify({ jsonrpc: "2.0", id, result: answer }));
  }
}

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
