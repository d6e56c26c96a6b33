/** The TCP relay of all tests. It has a port of its own, forwards each connection to a port of 127.0.0.1, and injects faults. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type Server, type Socket } from "node:net";
import { portOf } from "./network.js";
import { freePort } from "./ports.js";

/** One end of a connection: the program that connected to the relay, or the server. */
export type Side = "client" | "server";

const SIDES = ["client", "server"] as const;

const otherThan = (side: Side): Side => (side === "client" ? "server" : "client");

/** One connection: a socket to the client, and a socket to the server. */
export class Line {
  readonly #relay: Relay;
  readonly #sockets: Readonly<Record<Side, Socket>>;
  readonly #paused = new Set<Side>();
  readonly #muted = new Set<Side>();
  /** Whether the end of one side is hidden from the other. */
  #isSplit = false;

  constructor(relay: Relay, client: Socket, server: Socket) {
    this.#relay = relay;
    this.#sockets = { client, server };
    for (const from of SIDES)
      this.#sockets[from]
        .setNoDelay()
        // A reset ends the connection as a close does.
        .on("error", () => {})
        .on("data", (bytes: Buffer) => this.#take(bytes, otherThan(from)))
        .on("close", () => this.#ended(from));
  }

  /** Returns true if the socket to that side is open. */
  has(side: Side): boolean {
    return !this.#sockets[side].destroyed;
  }

  cut(): void {
    for (const side of SIDES) this.#sockets[side].destroy();
    this.#finish();
  }

  reset(): void {
    // If a socket is already ending, Node 20 would keep its handle forever.
    for (const socket of Object.values(this.#sockets))
      if (socket.writableEnded) socket.destroy();
      else socket.resetAndDestroy();
    this.#finish();
  }

  /** Ends both sockets gracefully (FIN), after the bytes that were forwarded. */
  end(): void {
    for (const side of SIDES) this.#sockets[side].end();
  }

  /** Ends the socket to one side, and hides that from the other. */
  drop(side: Side): void {
    this.#isSplit = true;
    this.#sockets[side].destroy();
    this.#finish();
  }

  /** Reads nothing from one side, or from both. Its bytes and its end arrive after `mend`. */
  pause(...from: Side[]): void {
    for (const side of from.length === 0 ? SIDES : from) {
      this.#paused.add(side);
      this.#sockets[side].pause();
    }
  }

  mute(...to: Side[]): void {
    for (const side of to.length === 0 ? SIDES : to) this.#muted.add(side);
  }

  mend(): void {
    this.#muted.clear();
    this.#paused.clear();
    for (const side of SIDES) {
      this.#sockets[side].resume();
      if (!this.has(side)) this.#ended(side);
    }
  }

  /** Sends bytes to one side, which `pass` has held back or a test has made. */
  write(to: Side, bytes: Buffer): void {
    const { [to]: target, [otherThan(to)]: source } = this.#sockets;
    if (!target.writable || target.write(bytes)) return;
    source.pause();
    target.once("drain", () => {
      if (!this.#paused.has(otherThan(to))) source.resume();
    });
  }

  #take(bytes: Buffer, to: Side): void {
    if (this.#muted.has(to)) return;
    const passed = this.#relay.pass(bytes, to, this);
    if (passed !== undefined) this.write(to, passed);
  }

  #ended(by: Side): void {
    // The end waits for `mend` too.
    if (this.#paused.has(by)) return;
    if (!this.#isSplit) this.#sockets[otherThan(by)].destroySoon();
    this.#finish();
  }

  #finish(): void {
    if (SIDES.every((side) => !this.has(side))) this.#relay.lines.delete(this);
  }
}

/** Where connections go: a port, a URL, or what returns the port of one that came to a port of the relay. `undefined` resets it. */
export type Target = number | string | ((at: number) => number | undefined);

export class Relay implements AsyncDisposable {
  /** The connections with at least one open side, the oldest first. */
  readonly lines = new Set<Line>();
  accepted = 0;
  target: Target;
  /** Called with the bytes for one side. Returns those that are forwarded now. `Line.write` forwards others later. */
  pass: (bytes: Buffer, to: Side, line: Line) => Buffer | undefined = (bytes) => bytes;
  readonly #paused = new Set<Side>();
  readonly host: string;
  /** The first one of its ports. */
  readonly port: number;
  readonly #ports: readonly number[];
  #listeners: readonly Server[] = [];

  private constructor(target: Target, host: string, ports: readonly number[]) {
    this.target = target;
    this.host = host;
    [this.port] = ports as [number];
    this.#ports = ports;
  }

  /** Listens at a free port, or at some ports of an address. */
  static async to(target: Target, host = "127.0.0.1", ports?: readonly number[]): Promise<Relay> {
    const relay = new Relay(target, host, ports ?? [await freePort()]);
    await relay.open();
    return relay;
  }

  /** The address of the relay for a WebSocket, which stays the same for all targets. */
  get url(): string {
    return `ws://127.0.0.1:${this.port}/`;
  }

  cut(): void {
    for (const line of this.lines) line.cut();
  }

  /** Reads nothing from one side, or from both, of these connections and of new ones until `mend`. */
  pause(...from: Side[]): void {
    for (const side of from.length === 0 ? SIDES : from) this.#paused.add(side);
    for (const line of this.lines) line.pause(...from);
  }

  /** Discards what is sent to these sides, or to both, of these connections until `mend`. */
  mute(...to: Side[]): void {
    for (const line of this.lines) line.mute(...to);
  }

  /** Forwards everything again, and what `pause` has held back. */
  mend(): void {
    this.#paused.clear();
    for (const line of this.lines) line.mend();
  }

  /** Ends all connections, and refuses new ones until `open`, on the same port. */
  async close(): Promise<void> {
    const listeners = this.#listeners;
    this.#listeners = [];
    this.cut();
    await Promise.all(listeners.map((listener) => once(listener.close(), "close")));
  }

  async open(): Promise<void> {
    this.#listeners = this.#ports.map((port) =>
      createServer((client) => this.#take(client, port)).listen(port, this.host),
    );
    await Promise.all(this.#listeners.map((listener) => once(listener, "listening")));
  }

  #take(client: Socket, at: number): void {
    this.accepted++;
    const target = typeof this.target === "function" ? this.target(at) : this.target;
    if (target === undefined) {
      client.on("error", () => {}).resetAndDestroy();
      return;
    }
    const port = typeof target === "string" ? portOf(target) : target;
    const line = new Line(this, client, connectTcp(port, "127.0.0.1"));
    this.lines.add(line);
    if (this.#paused.size > 0) line.pause(...this.#paused);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
