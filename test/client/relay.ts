/** What stands between a client and its server: a TCP relay on a port of its own, which can be cut, frozen and closed. */
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
    // A reset is an end like any other.
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
  /** Where to connect to: stays the same whatever is behind it. */
  url = "";
  /** How many connections came, however they ended. */
  accepted = 0;
  /** While it is, nothing is forwarded and no end is told: the cable is pulled. */
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

  /** Another server takes the place of the one before it, for connections that come from now on. */
  redirect(target: string): void {
    this.#port = portOf(target);
  }

  /** Cuts every connection, without a word of the WebSocket protocol. */
  cut(): void {
    for (const through of this.throughs) through.cut();
  }

  freeze(): void {
    this.isFrozen = true;
    for (const through of this.throughs) through.freeze();
  }

  /** What was sent meanwhile arrives. */
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

  /** Takes connections, on the port it had. */
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
