/** The network between a test server and its clients, which the test controls: a line for each client, with its connections. */
import { EventEmitter } from "../base/packages.js";
import { publicUrl } from "../client/credentials.js";
import type { OpeningSocket } from "../client/open.js";
import { Abnormal } from "../message/close-codes.js";
import { ConnectError, expected } from "../message/errors.js";
import { positive } from "../message/options.js";
import { endPeer, type AnyPeer } from "../peer/peer.js";
import type { StandardWebSocket } from "../socket/standard.js";
import { STATUS_TEXT, type GateSocket, type Refusal } from "../server/upgrade.js";
import { Pipe, type Flow } from "./pipe.js";
import { WireSocket } from "./socket.js";
import { nextTick } from "./tick.js";

/** What a test can do to the connection of one client, or to those of all. */
export interface Line {
  /**
   * Cuts the socket at both ends, with everything that is under way in it. A session survives: its peers are suspended, and the
   * client connects again after a delay, the first one 0 ms. Both peers are suspended, or closed, when the function returns. But a
   * client that has just connected notices it in the tick after `connect` has resolved, when it begins to receive.
   */
  cut(): void;
  /**
   * Cuts the socket, and makes the server forget the session, as a server that restarts does. The server's peer closes with 1006.
   * The client's peer emits `lost` when it has connected again. Without a session, the same as `cut`.
   */
  lose(): void;
  /**
   * Lets so many bytes per second pass in each direction, counted in frames of UTF-8. A frame arrives when its last byte has passed.
   * Until then, it counts in full towards `unsentBytes` of its sender. The handshake, pings and closes have no bytes. `Infinity` is
   * the default: everything arrives in a microtask, and a socket is never full. Throws a `TypeError` for no positive number.
   */
  slow(bytesPerSecond: number): void;
  /** Lets nothing pass until `start`, not even a handshake or a close. What is sent counts towards `unsentBytes`. No end is notified. */
  stop(): void;
  /** Lets data pass again after `stop`, at the speed of `slow`. Does nothing if the network is not stopped. */
  start(): void;
}

/** The network of one test server. Its functions as a `Line` act on all clients, and on those that connect later. */
export interface Network extends Line {
  /**
   * Returns the line of one client: by the client's peer, the server's peer of that client, or a `WebSocket` of the test server. The
   * line of a peer stays the same when the client connects again. Throws a `TypeError` for a client that has none.
   */
  of(client: AnyPeer | StandardWebSocket): Line;
  /**
   * Resolves when everything that can arrive has arrived, and the promises that depend on it have settled. Waits for real ticks of the
   * event loop, also under fake timers. Does not wait for timers, so not for the bytes of a slow line.
   */
  settle(): Promise<void>;
}

/** The line of one client: its present socket, and those that follow it. */
export class ClientLine implements Line {
  readonly flow: Flow;
  /** Called before anything arrives at either end. */
  readonly arrived: () => void;
  readonly #wires = new Set<Wire>();
  /** Called when the last wire is over, if the client does not connect again. */
  #onOver: (() => void) | undefined;
  /** The server's open peers of this client. A page may have several. */
  readonly #serverPeers = new Set<AnyPeer>();

  constructor(flow: Flow, arrived: () => void) {
    this.flow = { ...flow };
    this.arrived = arrived;
  }

  add(wire: Wire): void {
    this.#wires.add(wire);
  }

  /** Removes a wire, both of whose ends are closed. */
  over(wire: Wire): void {
    this.#wires.delete(wire);
    if (this.#wires.size === 0) this.#onOver?.();
  }

  /** Calls `onOver` when the last wire is over. The client adds no other. */
  retire(onOver: () => void): void {
    this.#onOver = onOver;
    if (this.#wires.size === 0) onOver();
  }

  /** Adds a peer that the server has made for this client. */
  accepted(peer: AnyPeer): void {
    this.#serverPeers.add(peer);
    void peer.closed.then(() => this.#serverPeers.delete(peer));
  }

  cut(): void {
    for (const wire of this.#wires) wire.destroy();
  }

  lose(): void {
    this.cut();
    for (const peer of this.#serverPeers) endPeer(peer, { code: Abnormal, reason: "the session is lost" });
  }

  slow(bytesPerSecond: number): void {
    this.flow.bytesPerSecond = positive(bytesPerSecond, "bytesPerSecond");
    this.#flowChanged();
  }

  stop(): void {
    this.flow.isStopped = true;
    this.#flowChanged();
  }

  start(): void {
    this.flow.isStopped = false;
    this.#flowChanged();
  }

  #flowChanged(): void {
    for (const wire of this.#wires) wire.flowChanged();
  }
}

/** The network of one test server. */
export class MemoryNetwork implements Network {
  readonly #lines = new Set<ClientLine>();
  readonly #lineOf = new WeakMap<AnyPeer | StandardWebSocket, ClientLine>();
  /** The settings of lines that are added. */
  readonly #flow: Flow = { isStopped: false, bytesPerSecond: Infinity };
  /** The number of arrivals at any end. */
  #arrivals = 0;

  /** Adds the line of a client that is about to connect. */
  add(): ClientLine {
    const line = new ClientLine(this.#flow, () => void this.#arrivals++);
    this.#lines.add(line);
    return line;
  }

  /** Removes the line of a client that does not connect again, when its last connection has ended. */
  remove(line: ClientLine): void {
    line.retire(() => this.#lines.delete(line));
  }

  /** Lets `of` find a line by one of its peers, or by a WebSocket. */
  assign(client: AnyPeer | StandardWebSocket, line: ClientLine): void {
    this.#lineOf.set(client, line);
  }

  of(client: AnyPeer | StandardWebSocket): Line {
    const line = this.#lineOf.get(client);
    if (line === undefined)
      throw expected("client", "a peer or a WebSocket of this test server or its clients", client);
    return line;
  }

  cut(): void {
    for (const line of this.#lines) line.cut();
  }

  lose(): void {
    for (const line of this.#lines) line.lose();
  }

  slow(bytesPerSecond: number): void {
    this.#flow.bytesPerSecond = positive(bytesPerSecond, "bytesPerSecond");
    for (const line of this.#lines) line.slow(bytesPerSecond);
  }

  stop(): void {
    this.#flow.isStopped = true;
    for (const line of this.#lines) line.stop();
  }

  start(): void {
    this.#flow.isStopped = false;
    for (const line of this.#lines) line.start();
  }

  async settle(): Promise<void> {
    let before: number;
    do {
      before = this.#arrivals;
      await nextTick();
    } while (this.#arrivals !== before);
  }
}

/** The answer of the server: the subprotocol, or the error of the client. */
type Answer = { protocol: string } | { error: ConnectError; blamesOffer: boolean };

/**
 * One connection, from the request of its client to its end. It is the `GateSocket` of its server. It emits `close` when the server's end
 * is closed.
 */
export class Wire extends EventEmitter<{ close(): void; error(): void }> implements GateSocket {
  /** The subprotocol that the server has chosen; empty for none. */
  protocol = "";
  readonly client: WireSocket;
  /** The end of the server. It exists once the server has accepted the client. */
  #server: WireSocket | undefined;
  readonly #line: ClientLine;
  readonly #url: string;
  readonly #offers: boolean;
  readonly #up: Pipe;
  readonly #down: Pipe;
  #isRefused = false;
  #mayOfferBeCause = false;
  /** Takes the first answer. Further ones have no effect. */
  #answer!: (answer: Answer) => void;
  readonly opened: Promise<string>;

  /** `offers`: the client offers a subprotocol. */
  constructor(line: ClientLine, url: string, offers: boolean, maxFrameBytes: number) {
    super();
    this.#line = line;
    this.#url = url;
    this.#offers = offers;
    this.#up = new Pipe(line.flow, line.arrived);
    this.#down = new Pipe(line.flow, line.arrived);
    this.client = new WireSocket(maxFrameBytes, this.#up, () => this.#clientClosed());
    this.opened = new Promise((resolve, reject) => {
      this.#answer = (answer) => {
        this.#answer = () => {};
        if ("protocol" in answer) return resolve(answer.protocol);
        this.#mayOfferBeCause = answer.blamesOffer;
        reject(answer.error);
      };
    });
  }

  /** Sends the request of the client to the server, which `receive` is. */
  request(receive: () => void): OpeningSocket {
    this.#up.push(0, receive);
    return {
      socket: this.client,
      opened: this.opened,
      mayOfferBeCause: () => this.#mayOfferBeCause,
      abandon: () => this.client.terminate(),
    };
  }

  /** Accepts the client. Returns the server's end, which has nothing received yet. */
  accept(protocol: string, maxFrameBytes: number): WireSocket {
    const server = new WireSocket(maxFrameBytes, this.#down, () => this.#serverClosed());
    this.#server = server;
    this.protocol = protocol;
    server.other = this.client;
    this.client.other = server;
    this.#down.push(0, () => this.#takeProtocol());
    return server;
  }

  /** Answers with an HTTP error. */
  refuse({ status }: Refusal): void {
    const text = `HTTP ${status} ${STATUS_TEXT[status]}`;
    this.#isRefused = true;
    this.emit("close");
    this.#down.push(0, () =>
      this.#fail(text, status === 400 || status === 426, { status, cause: new Error(`the server answered ${text}`) }),
    );
  }

  /** Cuts the connection at both ends, with everything that is under way. */
  destroy(): void {
    this.#up.clear();
    this.#down.clear();
    this.#server?.lost();
    this.client.lost();
  }

  /** Continues at the present speed of the line. */
  flowChanged(): void {
    this.#up.flowChanged();
    this.#down.flowChanged();
  }

  get destroyed(): boolean {
    return this.#isRefused || this.client.isClosed || this.#server?.isClosed === true;
  }

  get readable(): boolean {
    return !this.destroyed;
  }

  get writable(): boolean {
    return !this.destroyed;
  }

  /** A client whose offer is not accepted fails, as that of `ws` does. It connects again without the offer. */
  #takeProtocol(): void {
    if (this.protocol !== "" || !this.#offers) this.#answer({ protocol: this.protocol });
    else this.#fail("Server sent no subprotocol", true);
  }

  #fail(reason: string, blamesOffer: boolean, details?: object): void {
    this.#answer({ error: new ConnectError(publicUrl(this.#url), reason, details), blamesOffer });
    this.client.terminate();
  }

  #serverClosed(): void {
    this.emit("close");
    if (this.client.isClosed) this.#line.over(this);
  }

  #clientClosed(): void {
    const error = new ConnectError(publicUrl(this.#url), "the connection was lost");
    this.#answer({ error, blamesOffer: false });
    if (this.#server === undefined && !this.#isRefused) this.emit("close");
    if (this.#server === undefined || this.#server.isClosed) this.#line.over(this);
  }
}
