/** One end of a connection in memory. It behaves like a WebSocket: with a close handshake, pings, and unsent bytes. */
import { Abnormal, Normal } from "../message/close-codes.js";
import { utf8Bytes } from "../message/codec.js";
import { clearDeadline, setDeadline } from "../base/deadlines.js";
import type { CloseInfo, Traffic } from "../message/transport.js";
import { Heartbeat, type HeartbeatTimes, type Pulse } from "../socket/heartbeat.js";
import { CLOSE_TIMEOUT_MS, type Socket } from "../socket/socket.js";
import { Inbox } from "../socket/inbox.js";
import type { Pipe } from "./pipe.js";

/** One end of a connection in memory. */
export class WireSocket extends Inbox implements Socket, Pulse {
  /** When anything last came. */
  receivedAt = performance.now();
  /** The other end. A client has none before it is accepted. */
  other: WireSocket | undefined = undefined;
  readonly #out: Pipe;
  readonly #onClosed: () => void;
  /** `"closing"`: this end has sent its close, and awaits that of the other. */
  #state: "open" | "closing" | "closed" = "open";
  #heartbeat: Heartbeat | undefined;
  #received = 0;
  #written = 0;

  /** `out` carries what this end sends. `onClosed` is called once, when this end is closed. */
  constructor(maxFrameBytes: number, out: Pipe, onClosed: () => void) {
    super(maxFrameBytes);
    this.#out = out;
    this.#onClosed = onClosed;
  }

  get open(): boolean {
    return this.#state === "open";
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  get unsentBytes(): number {
    return this.#out.unsentBytes;
  }

  /** The bytes of all frames, without headers. */
  get traffic(): Traffic {
    return { received: this.#received, sent: this.#written - this.unsentBytes };
  }

  send(...frames: readonly (string | Uint8Array)[]): boolean {
    if (!this.open) return false;
    for (const frame of frames) {
      const bytes = typeof frame === "string" ? utf8Bytes(frame) : frame.length;
      this.#written += bytes;
      // Bytes are copied, because the other side may change what it receives.
      const arriving = typeof frame === "string" ? frame : new Uint8Array(frame);
      this.#out.push(bytes, () => this.other!.#takeFrame(arriving, bytes));
    }
    return true;
  }

  ping(): void {
    this.#ping(() => {});
  }

  afterRead(then: () => void): boolean {
    if (!this.open) return false;
    this.#ping(then);
    return true;
  }

  watch(times: HeartbeatTimes): void {
    this.#heartbeat = new Heartbeat(this, times);
  }

  dropSocket(reason: string): void {
    this.terminate(new Error(reason));
  }

  close(code: number = Normal, reason = ""): void {
    if (!this.open) return;
    this.flushHandler();
    this.#state = "closing";
    setDeadline(this, CLOSE_TIMEOUT_MS);
    this.#sendClose({ code, reason });
  }

  /** The other end did not answer the close in time. */
  override expire(): void {
    this.terminate();
  }

  /** Ends this end without a close. The network notifies the other end. */
  terminate(error?: Error): void {
    if (this.isClosed) return;
    this.#out.push(0, () => this.other?.lost());
    this.#finish({ code: Abnormal, reason: "", error });
  }

  /** The connection is lost. */
  lost(): void {
    this.#finish({ code: Abnormal, reason: "" });
  }

  #takeFrame(frame: string | Uint8Array, bytes: number): void {
    this.receivedAt = performance.now();
    this.#received += bytes;
    if (this.open) this.receiveFrame(frame);
  }

  #ping(answered: () => void): void {
    if (!this.open) return;
    this.flushHandler();
    this.#out.push(0, () => this.other!.#pinged(answered));
  }

  #pinged(answered: () => void): void {
    this.receivedAt = performance.now();
    if (!this.open) return;
    this.#out.push(0, () => {
      this.other!.receivedAt = performance.now();
      if (this.other!.open) answered();
    });
  }

  #sendClose(info: CloseInfo): void {
    this.#out.push(0, () => this.other!.#closedByOther(info));
  }

  #closedByOther(info: CloseInfo): void {
    if (this.open) {
      this.flushHandler();
      this.#sendClose(info);
    }
    this.#finish(info);
  }

  #finish(info: CloseInfo): void {
    if (this.isClosed) return;
    this.#state = "closed";
    this.#heartbeat?.stop();
    clearDeadline(this);
    this.end(info);
    this.#onClosed();
  }
}
