/** One connection in memory, from the request of its client to its end. */
import { ConnectError } from "../message/errors.js";
import { EventEmitter } from "../base/packages.js";
import type { OpeningSocket } from "../client/open.js";
import { publicUrl } from "../client/credentials.js";
import { STATUS_TEXT, type GateSocket, type Refusal } from "../server/upgrade.js";
import type { ClientLine } from "./network.js";
import { Pipe } from "./pipe.js";
import { WireSocket } from "./socket.js";

/** The answer of the server: the subprotocol, or the error of the client. */
type Answer = { protocol: string } | { error: ConnectError; blamesOffer: boolean };

/** One connection. It is the `GateSocket` of its server. It emits `close` when the server's end is closed. */
export class Wire extends EventEmitter<{ close(): void; error(): void }> implements GateSocket {
  /** The subprotocol that the server has chosen; empty for none. */
  protocol = "";
  readonly client: WireSocket;
  /** The end of the server. It exists once the server has accepted the client. */
  #server: WireSocket | undefined;
  readonly #line: ClientLine;
  readonly #url: URL;
  readonly #offers: boolean;
  readonly #up: Pipe;
  readonly #down: Pipe;
  #isRefused = false;
  #mayOfferBeCause = false;
  /** Takes the first answer. Further ones have no effect. */
  #answer!: (answer: Answer) => void;
  readonly opened: Promise<string>;

  /** `offers`: the client offers a subprotocol. */
  constructor(line: ClientLine, url: URL, offers: boolean, maxFrameBytes: number) {
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
