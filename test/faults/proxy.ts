/** A TCP proxy between real peers, which injects network faults at a byte that the test chooses. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";
import { Units, type Unit } from "./units.js";

export type Side = "client" | "server";

/** Observes the proxy. */
export interface Watcher {
  /** Called when a connection is accepted. */
  opened?(line: Line): void;
  /** Called with a complete head or frame before it is forwarded. */
  arrived?(line: Line, to: Side, unit: Unit): void;
  /** Called when the unit has been forwarded completely. */
  forwarded?(line: Line, to: Side, unit: Unit): void;
}

/** Forwards connections to a local port. */
export class Proxy {
  /** Connections with at least one open half, in order of arrival. */
  readonly lines = new Set<Line>();
  /** How many of the next connections are reset at once. `Infinity` means all. */
  refusals = 0;
  readonly watcher: Watcher;
  readonly #server = createServer((socket) => this.#take(socket));
  readonly #target: () => number;

  /** `target` returns the current port. */
  private constructor(target: () => number, watcher: Watcher) {
    this.#target = target;
    this.watcher = watcher;
  }

  static async listen(target: () => number, watcher: Watcher = {}): Promise<Proxy> {
    const proxy = new Proxy(target, watcher);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Returns the newest connection with both halves open. */
  get newest(): Line | undefined {
    return [...this.lines].filter((line) => line.isWhole).at(-1);
  }

  /** Resets all connections, and accepts no more. */
  async close(): Promise<void> {
    for (const line of this.lines) line.reset();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #take(socket: Socket): void {
    if (this.refusals > 0) {
      this.refusals--;
      socket.on("error", ignore);
      socket.resetAndDestroy();
      return;
    }
    const line = new Line(this, socket, connectTcp(this.#target(), "127.0.0.1"));
    this.lines.add(line);
    this.watcher.opened?.(line);
  }
}

/** One connection: a half to the client, and a half to the server. */
export class Line {
  readonly proxy: Proxy;
  readonly toServer: Flow;
  readonly toClient: Flow;
  readonly #halves: Record<Side, Socket>;
  readonly #gone = new Set<Side>();
  /** Whether the end of one half is hidden from the other. */
  #isSplit = false;
  #isEnding = false;

  constructor(proxy: Proxy, client: Socket, server: Socket) {
    this.proxy = proxy;
    this.#halves = { client, server };
    this.toServer = new Flow(this, "server", server);
    this.toClient = new Flow(this, "client", client);
    this.#join("client", this.toServer);
    this.#join("server", this.toClient);
  }

  /** Whether both halves are open, and no fault has ended them. */
  get isWhole(): boolean {
    return this.#gone.size === 0 && !this.#isEnding;
  }

  /** Returns whether the half to that side is open. */
  has(side: Side): boolean {
    return !this.#gone.has(side);
  }

  /** Returns the flow to a side. */
  to(side: Side): Flow {
    return side === "client" ? this.toClient : this.toServer;
  }

  /** Ends both halves at once, like a process that exits. */
  cut(): void {
    for (const side of SIDES) this.drop(side);
  }

  /** Resets both halves (RST). If one is already ending, Node 20 would keep the handle for ever. */
  reset(): void {
    for (const side of SIDES)
      this.#end(side, (socket) => (socket.writableEnded ? socket.destroy() : socket.resetAndDestroy()));
  }

  /** Ends both halves gracefully (FIN), after the forwarded bytes. */
  end(): void {
    this.#isEnding = true;
    for (const side of SIDES) {
      this.to(side).freeze();
      this.#halves[side].end();
    }
  }

  /** Ends one half, and hides that from the other. */
  drop(side: Side): void {
    this.#isSplit = true;
    this.#end(side, (socket) => socket.destroy());
  }

  /** Sends a forged frame between two frames, and then ends both halves gracefully. */
  forge(side: Side, frame: Buffer): void {
    const { [side]: socket } = this.#halves;
    const other: Side = side === "client" ? "server" : "client";
    this.#isSplit = true;
    this.to(side).freeze();
    this.drop(other);
    socket.end(frame);
  }

  /** Sends a forged frame between two frames. */
  slipIn(side: Side, frame: Buffer): void {
    this.#halves[side].write(frame);
  }

  #join(from: Side, flow: Flow): void {
    const { [from]: socket } = this.#halves;
    socket.setNoDelay(true);
    socket.on("error", ignore);
    socket.on("data", (chunk: Buffer) => flow.take(chunk));
    socket.once("close", () => this.#left(from));
  }

  #end(side: Side, end: (socket: Socket) => void): void {
    this.to(side).freeze();
    if (!this.has(side)) return;
    end(this.#halves[side]);
    this.#left(side);
  }

  #left(side: Side): void {
    this.#gone.add(side);
    if (this.#gone.size === 2) this.proxy.lines.delete(this);
    else if (!this.#isSplit) this.#halves[side === "client" ? "server" : "client"].end();
  }
}

const SIDES = ["client", "server"] as const;

/** The bytes to one side of a line. */
export class Flow {
  /** The number of forwarded bytes. */
  forwarded = 0;
  /** Called with each unit before it is forwarded. A unit that the callback freezes stays here. */
  gate: ((unit: Unit) => void) | undefined;
  readonly #line: Line;
  readonly #to: Side;
  readonly #socket: Socket;
  readonly #units = new Units();
  readonly #queue: Unit[] = [];
  /** The rest of a unit that a stop cut in two. */
  #torn: Buffer | undefined;
  #isFrozen = false;
  #stop: { at: number; reached: () => void } | undefined;

  constructor(line: Line, to: Side, socket: Socket) {
    this.#line = line;
    this.#to = to;
    this.#socket = socket;
  }

  take(chunk: Buffer): void {
    for (const unit of this.#units.take(chunk)) {
      this.#line.proxy.watcher.arrived?.(this.#line, this.#to, unit);
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
    this.#socket.cork();
    while (!this.#isFrozen && this.#queue.length > 0) this.#pass();
    this.#socket.uncork();
  }

  #pass(): void {
    const [unit] = this.#queue;
    if (this.#torn === undefined) this.gate?.(unit!);
    if (this.#isFrozen) return;
    const bytes = this.#torn ?? unit!.bytes;
    const room = this.#stop === undefined ? Infinity : this.#stop.at - this.forwarded;
    const part = room < bytes.length ? bytes.subarray(0, room) : bytes;
    this.#torn = part.length < bytes.length ? bytes.subarray(part.length) : undefined;
    this.forwarded += part.length;
    if (this.#socket.writable) this.#socket.write(part);
    if (this.#torn === undefined) {
      this.#queue.shift();
      this.#line.proxy.watcher.forwarded?.(this.#line, this.#to, unit!);
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

function ignore(): void {}
