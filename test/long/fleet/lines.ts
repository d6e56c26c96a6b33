/** The relays between a node and its broker, or a client and its nodes: which connections are used, and which a fault has met. */
import { Relay, type Line as Connection, type Side } from "../../support/relay.js";

/** How long a connection lasts that is to end at a byte. */
const LONGEST_MS = 5_000;

/** One connection. */
export class Line {
  readonly #connection: Connection;
  /** The bytes that it may still forward. */
  left = Infinity;
  /** Whether a fault was injected. */
  isDisturbed = false;
  /**
   * Whether the client has sent something. The library of NATS leaves a connection open on which the server was silent for too long, and
   * never uses it.
   */
  isUsed = false;
  isOpen = true;
  /** Whether the client ended it, and neither the server nor a fault. */
  isEndedByClient = false;
  readonly openedAt = Date.now();

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** Ends both sides at once. */
  cut(): void {
    this.isDisturbed = true;
    this.#connection.cut();
  }

  /** Ends both sides after so many more bytes in either direction. If there are not so many, ends them after a time. */
  cutAfter(bytes: number): void {
    this.isDisturbed = true;
    this.left = bytes;
    setTimeout(() => this.cut(), LONGEST_MS).unref();
  }

  /** Reads nothing from the server for a time. */
  stall(ms: number): void {
    this.#connection.pause("server");
    setTimeout(() => this.#connection.mend(), ms);
  }

  /** Discards what is sent to the sides. The connection stays open. */
  mute(...sides: Side[]): void {
    this.isDisturbed = true;
    this.#connection.mute(...sides);
  }
}

/** Returns the local port for the next connection, or `undefined` to refuse it. */
export type Target = () => number | undefined;

/** Relays to local ports. */
export class Lines {
  /** Whether new connections are refused. */
  isRefusing = false;
  readonly #relays: Relay[] = [];
  readonly #open = new Map<Connection, Line>();
  readonly #closed: (line: Line) => void;

  private constructor(closed: (line: Line) => void) {
    this.#closed = closed;
  }

  /** Listens on a port for each target. `closed` is called with each line that has ended. */
  static async listen(targets: readonly Target[], closed: (line: Line) => void = () => {}): Promise<Lines> {
    const lines = new Lines(closed);
    for (const target of targets) {
      const relay = await Relay.to(() => (lines.isRefusing ? undefined : target()));
      relay.pass = (bytes, to, connection) => lines.#pass(bytes, to, connection);
      relay.closed = (connection, by) => lines.#ended(connection, by);
      lines.#relays.push(relay);
    }
    return lines;
  }

  /** The ports, in the order of the targets. */
  get ports(): number[] {
    return this.#relays.map(({ port }) => port);
  }

  /** The open lines. */
  get all(): Line[] {
    return this.#relays.flatMap(({ lines }) => [...lines].map((connection) => this.#lineOf(connection)));
  }

  /** The open lines that are used. */
  get used(): Line[] {
    return this.all.filter((line) => line.isOpen && line.isUsed);
  }

  /** The open lines that are used and that no fault has met. */
  get whole(): Line[] {
    return this.used.filter((line) => !line.isDisturbed);
  }

  async close(): Promise<void> {
    for (const relay of this.#relays) await relay.close();
  }

  #lineOf(connection: Connection): Line {
    let line = this.#open.get(connection);
    if (line === undefined) this.#open.set(connection, (line = new Line(connection)));
    return line;
  }

  #pass(bytes: Buffer, to: Side, connection: Connection): Buffer | undefined {
    const line = this.#lineOf(connection);
    if (to === "server") line.isUsed = true;
    if (bytes.length < line.left) {
      line.left -= bytes.length;
      return bytes;
    }
    connection.write(to, bytes.subarray(0, line.left));
    line.left = 0;
    connection.end();
    return undefined;
  }

  #ended(connection: Connection, by: Side | undefined): void {
    const line = this.#lineOf(connection);
    this.#open.delete(connection);
    line.isOpen = false;
    line.isEndedByClient = by === "client" && !line.isDisturbed;
    this.#closed(line);
  }
}
