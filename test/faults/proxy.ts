/** A TCP proxy between real peers, which does to their connections what networks do: and at a byte that the test chooses. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";
import { Units, type Unit } from "./units.js";

export type Side = "client" | "server";

/** Told what the proxy sees. */
export interface Watcher {
  /** A connection was taken. */
  opened?(line: Line): void;
  /** A head or a frame has come, and was not passed on yet. */
  arrived?(line: Line, to: Side, unit: Unit): void;
  /** It was passed on as a whole. */
  forwarded?(line: Line, to: Side, unit: Unit): void;
}

/** Passes connections on to a port of this machine. */
export class Proxy {
  /** Connections of which one half is there still, in the order they came. */
  readonly lines = new Set<Line>();
  /** How many of the next connections are reset at once; `Infinity` for all. */
  refusals = 0;
  readonly watcher: Watcher;
  readonly #server = createServer((socket) => this.#take(socket));
  readonly #target: () => number;

  /** `target` answers the port at the moment. */
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

  /** The newest connection whose halves are both there. */
  get newest(): Line | undefined {
    return [...this.lines].filter((line) => line.isWhole).at(-1);
  }

  /** Resets everything and takes nothing more. */
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

/** One connection: a half to the client, a half to the server. */
export class Line {
  readonly proxy: Proxy;
  readonly toServer: Flow;
  readonly toClient: Flow;
  /** By this port the server knows the connection. */
  serverPort: number | undefined;
  readonly #halves: Record<Side, Socket>;
  readonly #gone = new Set<Side>();
  /** Whether the end of one half is not passed on to the other. */
  #isSplit = false;
  #isEnding = false;

  constructor(proxy: Proxy, client: Socket, server: Socket) {
    this.proxy = proxy;
    this.#halves = { client, server };
    this.toServer = new Flow(this, "server", server);
    this.toClient = new Flow(this, "client", client);
    server.once("connect", () => (this.serverPort = server.localPort));
    this.#join("client", this.toServer);
    this.#join("server", this.toClient);
  }

  /** Whether both halves are there, and nothing was done that ends them. */
  get isWhole(): boolean {
    return this.#gone.size === 0 && !this.#isEnding;
  }

  /** Whether the half to that side is there. */
  has(side: Side): boolean {
    return !this.#gone.has(side);
  }

  /** Resolves when the half to that side is gone. */
  async gone(side: Side): Promise<void> {
    if (this.has(side)) await new Promise((resolve) => this.#halves[side].once("close", resolve));
  }

  /** What goes to a side. */
  to(side: Side): Flow {
    return side === "client" ? this.toClient : this.toServer;
  }

  /** Both halves end at once, in the way of a process that ends. */
  cut(): void {
    for (const side of SIDES) this.drop(side);
  }

  /** Both halves are reset (RST); of one that is ending already, Node 20 would keep the handle for ever. */
  reset(): void {
    for (const side of SIDES)
      this.#end(side, (socket) => (socket.writableEnded ? socket.destroy() : socket.resetAndDestroy()));
  }

  /** Both halves end in peace (FIN), after what was passed on. */
  end(): void {
    this.#isEnding = true;
    for (const side of SIDES) {
      this.to(side).freeze();
      this.#halves[side].end();
    }
  }

  /** One half ends, and the other does not learn of it. */
  drop(side: Side): void {
    this.#isSplit = true;
    this.#end(side, (socket) => socket.destroy());
  }

  /** Sends what did not come from the other side, between two frames, and then ends both halves in peace. */
  forge(side: Side, frame: Buffer): void {
    const { [side]: socket } = this.#halves;
    const other: Side = side === "client" ? "server" : "client";
    this.#isSplit = true;
    this.to(side).freeze();
    this.drop(other);
    socket.end(frame);
  }

  /** Sends what did not come from the other side, between two frames. */
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

/** What goes to one side of a line. */
export class Flow {
  /** So many bytes were passed on. */
  forwarded = 0;
  /** Looks at each unit before it is passed on; what it freezes stays here. */
  gate: ((unit: Unit) => void) | undefined;
  readonly #line: Line;
  readonly #to: Side;
  readonly #socket: Socket;
  readonly #units = new Units();
  readonly #queue: Unit[] = [];
  /** What is left of the unit that a stop cut in two. */
  #torn: Buffer | undefined;
  #isFrozen = false;
  #stop: { at: number; reached: () => void } | undefined;
  #lagMs = 0;
  /** Whether the next unit waits for its time. */
  #isLagging = false;

  constructor(line: Line, to: Side, socket: Socket) {
    this.#line = line;
    this.#to = to;
    this.#socket = socket;
  }

  /** How many units wait here. */
  get waiting(): number {
    return this.#queue.length;
  }

  take(chunk: Buffer): void {
    for (const unit of this.#units.take(chunk)) {
      this.#line.proxy.watcher.arrived?.(this.#line, this.#to, unit);
      this.#queue.push(unit);
    }
    this.#pump();
  }

  /** Passes nothing on until `thaw`. */
  freeze(): void {
    this.#isFrozen = true;
  }

  /** Goes on. */
  thaw(): void {
    this.#isFrozen = false;
    this.#stop = undefined;
    this.#pump();
  }

  /** Freezes when so many more bytes were passed on, in the middle of whatever is under way, and calls `reached`. */
  stopAfter(bytes: number, reached: () => void): void {
    this.#stop = { at: this.forwarded + bytes, reached };
    if (bytes === 0) this.#checkStop();
  }

  /** Forgets that. */
  goOn(): void {
    this.#stop = undefined;
  }

  /** Lets units pass one by one, each so much after the other; 0 lets them pass as they come. */
  lag(ms: number): void {
    this.#lagMs = ms;
  }

  #pump(): void {
    this.#socket.cork();
    while (!this.#isFrozen && !this.#isLagging && this.#queue.length > 0) this.#pass();
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
      this.#wait();
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

  #wait(): void {
    if (this.#lagMs === 0) return;
    this.#isLagging = true;
    setTimeout(() => {
      this.#isLagging = false;
      this.#pump();
    }, this.#lagMs);
  }
}

function ignore(): void {}
