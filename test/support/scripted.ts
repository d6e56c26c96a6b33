/** A standard WebSocket that does nothing by itself: the test says which events the runtime fires. */
import type { StandardWebSocket } from "../../src/sockets/standard.js";

/** Fires only what the test tells it to fire. */
export class ScriptedWebSocket extends EventTarget implements StandardWebSocket {
  binaryType = "blob";
  readyState = 0;
  bufferedAmount = 0;
  protocol = "";
  readonly sent: string[] = [];
  /** The arguments of each `close`. */
  readonly closes: unknown[][] = [];

  send(data: string): void {
    this.sent.push(data);
  }

  close(...how: unknown[]): void {
    this.closes.push(how);
    if (this.readyState < 2) this.readyState = 2;
  }

  /** Fires an event that has these members. */
  fire(type: string, members: object = {}): void {
    if (type === "open") this.readyState = 1;
    if (type === "close" || type === "error") this.readyState = 3;
    this.dispatchEvent(Object.assign(new Event(type), members));
  }
}
