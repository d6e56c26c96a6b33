/** A TCP relay between a client and its server, on a port of its own, which can be cut, frozen and closed. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { portOf } from "../support/network.js";

/** Forwards every connection to a server. */
export class Relay implements AsyncDisposable {
  /** The address of the relay, which stays the same for all servers. */
  url = "";
  /** How many connections were accepted. */
  accepted = 0;
  /** While true, the relay forwards no bytes and no close: the cable is pulled. */
  isFrozen = false;
  /** Both sockets of each connection. */
  readonly #pairs = new Set<readonly Socket[]>();
  #port: number;
  #listener: Server | undefined;

  private constructor(target: string) {
    this.#port = portOf(target);
  }

  static async to(target: string): Promise<Relay> {
    const relay = new Relay(target);
    await relay.open();
    return relay;
  }

  /** Forwards new connections to another server. */
  redirect(target: string): void {
    this.#port = portOf(target);
  }

  /** Cuts all connections without a close frame. */
  cut(): void {
    for (const pair of this.#pairs) this.#drop(pair);
  }

  freeze(): void {
    this.isFrozen = true;
    for (const socket of [...this.#pairs].flat()) socket.pause();
  }

  /** Forwards the bytes that were held back. */
  thaw(): void {
    this.isFrozen = false;
    for (const pair of this.#pairs) {
      for (const socket of pair) socket.resume();
      if (pair.some(({ destroyed }) => destroyed)) this.#drop(pair);
    }
  }

  /** Refuses connections until `open`, and cuts those that are there. */
  async close(): Promise<void> {
    const listener = this.#listener;
    this.#listener = undefined;
    this.cut();
    if (listener !== undefined) await new Promise((resolve) => listener.close(resolve));
  }

  /** Accepts connections again, on the same port. */
  async open(): Promise<void> {
    this.#listener = createServer((near) => {
      this.accepted++;
      this.#forward([near, connect(this.#port, "127.0.0.1")]);
    });
    this.#listener.listen(this.url === "" ? 0 : portOf(this.url), "127.0.0.1");
    await once(this.#listener, "listening");
    this.url = `ws://127.0.0.1:${(this.#listener.address() as AddressInfo).port}/`;
  }

  #forward(pair: readonly [Socket, Socket]): void {
    this.#pairs.add(pair);
    for (const [i, from] of pair.entries()) {
      from.setNoDelay();
      from.on("data", (data) => pair[1 - i]!.write(data));
      // A reset ends the connection like a close.
      from.on("error", () => {});
      from.on("close", () => this.isFrozen || this.#drop(pair));
      if (this.isFrozen) from.pause();
    }
  }

  #drop(pair: readonly Socket[]): void {
    for (const socket of pair) socket.destroy();
    this.#pairs.delete(pair);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
