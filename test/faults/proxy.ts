/** The relay of a world: the units of each connection, and network faults at a byte that the test chooses. */
import { Relay, type Line as Connection, type Side } from "../support/relay.js";
import { Units, type Unit } from "./units.js";
import { WireLine, type Wiretap } from "./wiretap.js";

export type { Side };

export class Proxy {
  /** How many of the next connections are reset at once. `Infinity` means all. */
  refusals = 0;
  readonly #tap: Wiretap | undefined;
  readonly #lines = new WeakMap<Connection, Line>();
  readonly #relay: Relay;

  private constructor(relay: Relay, tap: Wiretap | undefined) {
    this.#relay = relay;
    this.#tap = tap;
    relay.pass = (bytes, to, connection) => {
      this.#lineOf(connection).to(to).take(bytes);
      return undefined;
    };
  }

  /** `target` returns the current port. */
  static async listen(target: () => number, tap?: Wiretap): Promise<Proxy> {
    const relay = await Relay.to(() => (proxy.refusals > 0 ? void proxy.refusals-- : target()));
    const proxy = new Proxy(relay, tap);
    return proxy;
  }

  get port(): number {
    return this.#relay.port;
  }

  /** The connections with at least one open half, in order of arrival. */
  get lines(): Line[] {
    return [...this.#relay.lines].map((connection) => this.#lineOf(connection));
  }

  get newest(): Line | undefined {
    return this.lines.filter((line) => line.isWhole).at(-1);
  }

  async close(): Promise<void> {
    for (const line of this.lines) line.reset();
    await this.#relay.close();
  }

  #lineOf(connection: Connection): Line {
    let line = this.#lines.get(connection);
    if (line === undefined) {
      this.#lines.set(connection, (line = new Line(connection, this.#tap)));
      this.#tap?.onOpened?.(line);
    }
    return line;
  }
}

/** One connection: a half to the client, and a half to the server. */
export class Line {
  /** What the tap has read on it. */
  readonly wire = new WireLine();
  readonly tap: Wiretap | undefined;
  readonly toServer = new Flow(this, "server");
  readonly toClient = new Flow(this, "client");
  readonly #connection: Connection;
  #isEnding = false;

  constructor(connection: Connection, tap: Wiretap | undefined) {
    this.#connection = connection;
    this.tap = tap;
  }

  /** Whether both halves are open, and no fault has ended them. */
  get isWhole(): boolean {
    return this.has("client") && this.has("server") && !this.#isEnding;
  }

  has(side: Side): boolean {
    return this.#connection.has(side);
  }

  to(side: Side): Flow {
    return side === "client" ? this.toClient : this.toServer;
  }

  cut(): void {
    this.#freeze();
    this.#connection.cut();
  }

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

  /** Sends bytes, which may be a forged frame between two frames. */
  slipIn(side: Side, bytes: Buffer): void {
    this.#connection.write(side, bytes);
  }

  #freeze(): void {
    this.toClient.freeze();
    this.toServer.freeze();
  }
}

/** The bytes to one side of a line. */
export class Flow {
  forwarded = 0;
  /** Called with each unit before it is forwarded. A unit that the callback freezes stays here. */
  gate: ((unit: Unit) => void) | undefined;
  readonly #line: Line;
  readonly #to: Side;
  readonly #units = new Units();
  readonly #queue: Unit[] = [];
  /** The rest of a unit that a stop cut in two. */
  #torn: Buffer | undefined;
  #isFrozen = false;
  #stop: { at: number; reached: () => void } | undefined;

  constructor(line: Line, to: Side) {
    this.#line = line;
    this.#to = to;
  }

  take(chunk: Buffer): void {
    for (const unit of this.#units.take(chunk)) {
      this.#line.tap?.arrived(this.#line.wire, this.#to, unit);
      this.#queue.push(unit);
    }
    this.#pump();
  }

  freeze(): void {
    this.#isFrozen = true;
  }

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
    const { tap, wire } = this.#line;
    const bytes = this.#torn ?? tap?.bend?.(unit!, this.#to, wire) ?? unit!.bytes;
    const room = this.#stop === undefined ? Infinity : this.#stop.at - this.forwarded;
    const part = room < bytes.length ? bytes.subarray(0, room) : bytes;
    this.#torn = part.length < bytes.length ? bytes.subarray(part.length) : undefined;
    this.forwarded += part.length;
    this.#line.slipIn(this.#to, part);
    if (this.#torn === undefined) {
      this.#queue.shift();
      tap?.forwarded(wire, this.#to, unit!);
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
