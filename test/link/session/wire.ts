/** Connections whose every frame waits until the test lets it arrive, and whose ends can be cut one by one. */
import type { CloseInfo, EncodedFrame, Traffic } from "../../../src/core/transport.js";
import { frameText, type Socket, type SocketHandler } from "../../../src/link/socket.js";

/** So many frames in a row mean that each makes another. */
const MOST = 10_000;

/** What is under way to an end. */
type Item = string | CloseInfo;

/** One end of a `Wire`. */
export class WireSocket implements Socket {
  maxFrameBytes = 2 ** 20;
  /** What `unsentBytes` answers: a test sets it to play a socket that takes no more. */
  unsentBytes = 0;
  open = true;
  /** What a carrier may have or not: a test gives it. */
  traffic?: Traffic;
  heardAt?: number;
  ping?: () => void;
  readonly underWay: Item[] = [];
  /** Everything that was sent from this end, delivered or not. */
  readonly sent: string[] = [];
  /** What this end was closed with, by its link. */
  closedWith: CloseInfo | undefined;
  /** Told of each frame that is sent from this end. */
  onSend: (frame: string) => void = () => {};
  /** Told of each frame before it arrives at this end. */
  onArrive: (frame: string) => void = () => {};
  other!: WireSocket;
  /** What this end was started with. */
  handler: SocketHandler | undefined;
  /** Whether this end was told the end. */
  isOver = false;

  start(handler: SocketHandler): void {
    this.handler = handler;
  }

  send(encoded: string | EncodedFrame): boolean {
    if (!this.open) return false;
    const frame = frameText(encoded);
    this.sent.push(frame);
    this.onSend(frame);
    this.other.underWay.push(frame);
    return true;
  }

  close(code = 1000, reason = ""): void {
    if (!this.open) return;
    this.open = false;
    this.closedWith = { code, reason };
    this.other.underWay.push({ code, reason });
  }

  /** Nothing that arrives later is handed over. */
  discard(code: number, reason: string): void {
    this.close(code, reason);
    this.isOver = true;
  }

  /** Whether there is something that can arrive at this end. */
  get isDue(): boolean {
    return !this.isOver && this.handler !== undefined && this.underWay.length > 0;
  }

  /** Lets the next item arrive at this end; false when there is none. */
  deliver(): boolean {
    if (this.isOver || this.handler === undefined) return false;
    const item = this.underWay.shift();
    if (item === undefined) return false;
    if (typeof item !== "string") this.#end(item);
    else {
      this.onArrive(item);
      this.handler.frame(item);
    }
    return true;
  }

  /** A frame that the other end never sent arrives here. */
  inject(frame: string): void {
    if (this.isOver) return;
    this.onArrive(frame);
    this.handler!.frame(frame);
  }

  /** This end learns that the connection is gone; what was under way to it is lost. The other end learns nothing. */
  cut(info: CloseInfo = { code: 1006, reason: "" }): void {
    if (this.isOver || this.handler === undefined) return;
    this.underWay.length = 0;
    this.#end(info);
  }

  #end(info: CloseInfo): void {
    this.isOver = true;
    // The answer to a close, or nobody's loss.
    if (this.open) this.other.underWay.push(info);
    this.open = false;
    this.handler!.closed(info);
  }
}

/** Two joined ends. */
export class Wire {
  readonly client = new WireSocket();
  readonly server = new WireSocket();

  constructor() {
    this.client.other = this.server;
    this.server.other = this.client;
  }

  /** Lets everything arrive, and what follows from it, until nothing is under way. */
  async settle(): Promise<void> {
    for (let i = 0; i < MOST; i++) {
      await microtasks();
      if (!this.client.deliver() && !this.server.deliver()) return;
    }
    throw new Error("the ends never come to rest");
  }
}

/** Lets every microtask run that is due: packs leave. */
export async function microtasks(): Promise<void> {
  for (let i = 0; i < 4; i++) await Promise.resolve();
}
