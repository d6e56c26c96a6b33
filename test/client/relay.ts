/** A TCP relay between a client and its server, on a port of its own, which can be cut, frozen and closed. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { portOf } from "../support/network.js";

/** One connection through the relay. */
class Through {
  readonly near: Socket;
  readonly far: Socket;
  readonly #relay: Relay;

  constructor(relay: Relay, near: Socket, port: number) {
    this.#relay = relay;
    this.near = near;
    this.far = connect(port, "127.0.0.1");
    this.#pass(this.near, this.far);
    this.#pass(this.far, this.near);
    if (relay.isFrozen) this.freeze();
  }

  #pass(from: Socket, to: Socket): void {
    from.setNoDelay();
    from.on("data", (data) => to.write(data));
    // A reset ends the connection like a close.
    from.on("error", () => {});
    from.on("close", () => this.#relay.isFrozen || this.cut());
  }

  freeze(): void {
    this.near.pause();
    this.far.pause();
  }

  thaw(): void {
    this.near.resume();
    this.far.resume();
    if (this.near.destroyed || this.far.destroyed) this.cut();
  }

  cut(): void {
    this.near.destroy();
    this.far.destroy();
    this.#relay.throughs.delete(this);
  }
}

/** Forwards every connection to a server. */
export class Relay implements AsyncDisposable {
  /** The address of the relay, which stays the same for all servers. */
  url = "";
  /** How many connections were accepted. */
  accepted = 0;
  /** While true, the relay forwards no bytes and no close: the cable is pulled. */
  isFrozen = false;
  readonly throughs = new Set<Through>();
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
    for (const through of this.throughs) through.cut();
  }

  freeze(): void {
    this.isFrozen = true;
    for (const through of this.throughs) through.freeze();
  }

  /** Forwards the bytes that were held back. */
  thaw(): void {
    this.isFrozen = false;
    for (const through of this.throughs) through.thaw();
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
      this.throughs.add(new Through(this, near, this.#port));
    });
    this.#listener.listen(this.url === "" ? 0 : portOf(this.url), "127.0.0.1");
    await once(this.#listener, "listening");
    this.url = `ws://127.0.0.1:${(this.#listener.address() as AddressInfo).port}/`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
