/** Connections that deliver each frame when the test says so, and whose ends can be cut one by one. */
import type { CloseInfo, EncodedFrame, Traffic } from "../../../src/core/transport.js";
import { frameContent, type Socket, type SocketHandler } from "../../../src/link/socket.js";

/** After this many frames in a row, each frame must be causing another. */
const MOST = 10_000;

/** A frame or a close in flight to an end. */
type Item = string | Uint8Array | CloseInfo;

/** One end of a `Wire`. */
export class WireSocket implements Socket {
  maxFrameBytes = 2 ** 20;
  /** The value of `unsentBytes`. A test sets it to simulate a full socket. */
  unsentBytes = 0;
  open = true;
  /** An optional member of a socket, set by a test. */
  traffic?: Traffic;
  heardAt?: number;
  ping?: () => void;
  readonly inFlight: Item[] = [];
  /** All frames that this end sent, delivered or not. */
  readonly sent: string[] = [];
  /** All binary frames that this end sent. */
  readonly sentBytes: Uint8Array[] = [];
  /** The code and reason with which the link closed this end. */
  closedWith: CloseInfo | undefined;
  /** Called with each frame that this end sends. */
  onSend: (frame: string) => void = () => {};
  other!: WireSocket;
  /** The handler with which this end was started. */
  handler: SocketHandler | undefined;
  /** Whether the close was reported at this end. */
  isOver = false;

  start(handler: SocketHandler): void {
    this.handler = handler;
  }

  send(encoded: string | Uint8Array | EncodedFrame): boolean {
    if (!this.open) return false;
    const frame = frameContent(encoded);
    if (typeof frame === "string") {
      this.sent.push(frame);
      this.onSend(frame);
    } else this.sentBytes.push(frame);
    this.other.inFlight.push(frame);
    return true;
  }

  close(code = 1000, reason = ""): void {
    if (!this.open) return;
    this.open = false;
    this.closedWith = { code, reason };
    this.other.inFlight.push({ code, reason });
  }

  /** Closes, and drops all frames that arrive later. */
  discard(code: number, reason: string): void {
    this.close(code, reason);
    this.isOver = true;
  }

  /** Delivers the next item to this end. Returns false if there is none. */
  deliver(): boolean {
    if (this.isOver || this.handler === undefined) return false;
    const item = this.inFlight.shift();
    if (item === undefined) return false;
    if (typeof item === "string") this.handler.frame(item);
    else if (item instanceof Uint8Array) this.inject(item);
    else this.#end(item);
    return true;
  }

  /** Delivers a frame that the other end never sent. */
  inject(frame: string | Uint8Array): void {
    if (this.isOver) return;
    if (typeof frame === "string") this.handler!.frame(frame);
    else if (!this.handler!.bytes!(frame)) this.handler!.frame(new TextDecoder().decode(frame));
  }

  /** Reports the loss of the connection at this end only. Items in flight to this end are lost. */
  cut(info: CloseInfo = { code: 1006, reason: "" }): void {
    if (this.isOver || this.handler === undefined) return;
    this.inFlight.length = 0;
    this.#end(info);
  }

  #end(info: CloseInfo): void {
    this.isOver = true;
    // This answers a close, or is dropped.
    if (this.open) this.other.inFlight.push(info);
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

  /** Delivers all items, and the items that they cause, until none is in flight. */
  async settle(): Promise<void> {
    for (let i = 0; i < MOST; i++) {
      await microtasks();
      if (!this.client.deliver() && !this.server.deliver()) return;
    }
    throw new Error("the ends never come to rest");
  }
}

/** Runs all due microtasks, so that packs are sent. */
export async function microtasks(): Promise<void> {
  for (let i = 0; i < 4; i++) await Promise.resolve();
}
