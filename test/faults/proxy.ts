/** The relay of a world: the units of each connection, and network faults at a byte that the test chooses. */
import { Relay, type Line as Connection, type Side } from "../support/relay.js";
import { Units, type Unit } from "./units.js";

export type { Side };

/** Observes the proxy. */
export interface Watcher {
  /** Called with the first bytes of a connection. */
  opened?(line: Line): void;
  /** Called with a complete head or frame before it is forwarded. */
  arrived?(line: Line, to: Side, unit: Unit): void;
  /** Called when the unit has been forwarded completely. */
  forwarded?(line: Line, to: Side, unit: Unit): void;
  /** Returns what is forwarded instead of a unit. */
  bend?: ((line: Line, to: Side, unit: Unit) => Buffer) | undefined;
}

/** Forwards connections to a local port. */
export class Proxy {
  /** How many of the next connections are reset at once. `Infinity` means all. */
  refusals = 0;
  readonly watcher: Watcher;
  readonly #lines = new WeakMap<Connection, Line>();
  readonly #relay: Relay;

  private constructor(relay: Relay, watcher: Watcher) {
    this.#relay = relay;
    this.watcher = watcher;
    relay.pass = (bytes, to, connection) => {
      this.#lineOf(connection).to(to).take(bytes);
      return undefined;
    };
  }

  /** `target` returns the current port. */
  static async listen(target: () => number, watcher: Watcher = {}): Promise<Proxy> {
    const proxy: Proxy = new Proxy(
      await Relay.to(() => (proxy.refusals > 0 ? void proxy.refusals-- : target())),
      watcher,
    );
    return proxy;
  }

  get port(): number {
    return this.#relay.port;
  }

  /** The connections with at least one open half, in order of arrival. */
  get lines(): Line[] {
    return [...this.#relay.lines].map((connection) => this.#lineOf(connection));
  }

  /** Returns the newest connection with both halves open. */
  get newest(): Line | undefined {
    return this.lines.filter((line) => line.isWhole).at(-1);
  }

  /** Resets all connections, and accepts no more. */
  async close(): Promise<void> {
    for (const line of this.lines) line.reset();
    await this.#relay.close();
  }

  #lineOf(connection: Connection): Line {
    let line = this.#lines.get(connection);
    if (line === undefined) {
      this.#lines.set(connection, (line = new Line(this, connection)));
      this.watcher.opened?.(line);
    }
    return line;
  }
}

/** One connection: a half to the client, and a half to the server. */
export class Line {
  readonly toServer: Flow;
  readonly toClient: Flow;
  readonly #connection: Connection;
  #isEnding = false;

  constructor({ watcher }: Proxy, connection: Connection) {
    this.#connection = connection;
    this.toServer = new Flow(this, "server", watcher, (bytes) => connection.write("server", bytes));
    this.toClient = new Flow(this, "client", watcher, (bytes) => connection.write("client", bytes));
  }

  /** Whether both halves are open, and no fault has ended them. */
  get isWhole(): boolean {
    return this.has("client") && this.has("server") && !this.#isEnding;
  }

  /** Returns whether the half to that side is open. */
  has(side: Side): boolean {
    return this.#connection.has(side);
  }

  /** Returns the flow to a side. */
  to(side: Side): Flow {
    return side === "client" ? this.toClient : this.toServer;
  }

  /** Ends both halves at once, like a process that exits. */
  cut(): void {
    this.#freeze();
    this.#connection.cut();
  }

  /** Resets both halves (RST). */
  reset(): void {
    this.#freeze();
    this.#connection.reset();
  }

  /** Ends both halves gracefully (FIN), after the forwarded bytes. */
  end(): void {
    this.#isEnding = true;
    this.#freeze();
    this.#connection.end();
  }

  /** Ends one half, and hides that from the other. */
  drop(side: Side): void {
    this.to(side).freeze();
    this.#connection.drop(side);
  }

  /** Sends a forged frame between two frames, and then ends both halves gracefully. */
  forge(side: Side, frame: Buffer): void {
    this.to(side).freeze();
    this.drop(side === "client" ? "server" : "client");
    this.slipIn(side, frame);
    this.end();
  }

  /** Sends a forged frame between two frames. */
  slipIn(side: Side, frame: Buffer): void {
    this.#connection.write(side, frame);
  }

  #freeze(): void {
    this.toClient.freeze();
    this.toServer.freeze();
  }
}

/** The bytes to one side of a line. */
export class Flow {
  /** The number of forwarded bytes. */
  forwarded = 0;
  /** Called with each unit before it is forwarded. A unit that the callback freezes stays here. */
  gate: ((unit: Unit) => void) | undefined;
  readonly #line: Line;
  readonly #to: Side;
  readonly #watcher: Watcher;
  readonly #write: (bytes: Buffer) => void;
  readonly #units = new Units();
  readonly #queue: Unit[] = [];
  /** The rest of a unit that a stop cut in two. */
  #torn: Buffer | undefined;
  #isFrozen = false;
  #stop: { at: number; reached: () => void } | undefined;

  constructor(line: Line, to: Side, watcher: Watcher, write: (bytes: Buffer) => void) {
    this.#line = line;
    this.#to = to;
    this.#watcher = watcher;
    this.#write = write;
  }

  take(chunk: Buffer): void {
    for (const unit of this.#units.take(chunk)) {
      this.#watcher.arrived?.(this.#line, this.#to, unit);
      this.#queue.push(unit);
    }
    this.#pump();
  }

  /** Stops forwarding until `thaw`. */
  freeze(): void {
    this.#isFrozen = true;
  }

  /** Continues to forward. */
  thaw(): void {
    this.#isFrozen = false;
    this.#stop = undefined;
    this.#pump();
  }

  /** Freezes after this many more bytes, in the middle of any unit, and calls `reached`. */
  stopAfter(bytes: number, reached: () => void): void {
    this.#stop = { at: this.forwarded + bytes, reached };
    if (bytes === 0) this.#checkStop();
  }

  /** Cancels `stopAfter`. */
  goOn(): void {
    this.#stop = undefined;
  }

  #pump(): void {
    while (!this.#isFrozen && this.#queue.length > 0) this.#pass();
  }

  #pass(): void {
    const [unit] = this.#queue;
    if (this.#torn === undefined) this.gate?.(unit!);
    if (this.#isFrozen) return;
    const bytes = this.#torn ?? this.#watcher.bend?.(this.#line, this.#to, unit!) ?? unit!.bytes;
    const room = this.#stop === undefined ? Infinity : this.#stop.at - this.forwarded;
    const part = room < bytes.length ? bytes.subarray(0, room) : bytes;
    this.#torn = part.length < bytes.length ? bytes.subarray(part.length) : undefined;
    this.forwarded += part.length;
    this.#write(part);
    if (this.#torn === undefined) {
      this.#queue.shift();
      this.#watcher.forwarded?.(this.#line, this.#to, unit!);
    }
    this.#checkStop();
  }

  #checkStop(): void {
    if (this.#stop === undefined || this.forwarded < this.#stop.at) return;
    const { reached } = this.#stop;
    this.#stop = undefined;
    this.freeze();
    reached();
  }
}
