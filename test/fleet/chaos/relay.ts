/** A TCP proxy whose connections can be cut at a byte, muted in one direction, and swallowed. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Server, type Socket } from "node:net";

/** How long a connection lasts that is to end at a byte. */
const LONGEST_MS = 5_000;

export type Side = "client" | "server";

/** One connection through the proxy. */
export class Line {
  readonly #halves: Record<Side, Socket>;
  readonly #muted = new Set<Side>();
  #left = Infinity;
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

  constructor(client: Socket, server: Socket, closed: (line: Line) => void) {
    this.#halves = { client, server };
    for (const [from, to] of [
      ["client", "server"],
      ["server", "client"],
    ] as const) {
      const { [from]: source, [to]: target } = this.#halves;
      source.setNoDelay(true);
      source.on("error", () => {});
      source.on("data", (bytes: Buffer) => {
        if (from === "client") this.isUsed = true;
        this.#pass(bytes, to, target);
      });
      source.once("close", () => {
        target.destroy();
        if (!this.isOpen) return;
        this.isOpen = false;
        this.isEndedByClient = from === "client" && !this.isDisturbed;
        closed(this);
      });
    }
  }

  #pass(bytes: Buffer, to: Side, target: Socket): void {
    if (this.#muted.has(to) || this.#left === 0) return;
    const part = bytes.subarray(0, Math.min(bytes.length, this.#left));
    this.#left -= part.length;
    if (this.#left === 0) target.end(part, () => this.cut());
    else target.write(part);
  }

  /** Ends both halves at once. */
  cut(): void {
    this.isDisturbed = true;
    for (const socket of Object.values(this.#halves)) socket.destroy();
  }

  /** Ends both halves after so many more bytes in either direction. If there are not so many, ends them after a time. */
  cutAfter(bytes: number): void {
    this.isDisturbed = true;
    this.#left = bytes;
    setTimeout(() => this.cut(), LONGEST_MS).unref();
  }

  /** Reads nothing from the server for a time. */
  stall(ms: number): void {
    const { server } = this.#halves;
    server.pause();
    setTimeout(() => server.resume(), ms);
  }

  /** Swallows all bytes to the sides. The connection stays open. */
  mute(...sides: Side[]): void {
    this.isDisturbed = true;
    for (const side of sides) this.#muted.add(side);
  }
}

/** Returns the local port for the next connection, or `undefined` to refuse it. */
export type Target = () => number | undefined;

/** Forwards connections to local ports. */
export class Relay {
  readonly lines = new Set<Line>();
  /** Whether new connections are refused. */
  isRefusing = false;
  readonly #servers: readonly Server[];
  readonly #closed: (line: Line) => void;

  private constructor(targets: readonly Target[], closed: (line: Line) => void) {
    this.#servers = targets.map((target) => createServer((socket) => this.#take(socket, target)));
    this.#closed = closed;
  }

  /** Listens on a port for each target. `closed` is called with each line that ended. */
  static async listen(targets: readonly Target[], closed: (line: Line) => void = () => {}): Promise<Relay> {
    const relay = new Relay(targets, closed);
    for (const server of relay.#servers) await once(server.listen(0, "127.0.0.1"), "listening");
    return relay;
  }

  /** The ports, in the order of the targets. */
  get ports(): number[] {
    return this.#servers.map((server) => (server.address() as AddressInfo).port);
  }

  /** The open lines that are used. */
  get used(): Line[] {
    return [...this.lines].filter((line) => line.isOpen && line.isUsed);
  }

  /** The open lines that are used and that no fault has met. */
  get whole(): Line[] {
    return this.used.filter((line) => !line.isDisturbed);
  }

  #take(socket: Socket, target: Target): void {
    const port = this.isRefusing ? undefined : target();
    if (port === undefined) {
      socket.on("error", () => {});
      socket.resetAndDestroy();
      return;
    }
    const line = new Line(socket, connectTcp(port, "127.0.0.1"), (ended) => {
      this.lines.delete(ended);
      this.#closed(ended);
    });
    this.lines.add(line);
  }

  async close(): Promise<void> {
    for (const line of this.lines) line.cut();
    for (const server of this.#servers) await once(server.close(), "close");
  }
}
