/** A standard WebSocket without I/O, whose events are fired by the test. */
import type { StandardWebSocket } from "../../src/sockets/standard.js";

/** Fires only the events that the test requests. */
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

  /** Fires an event with these members. */
  fire(type: string, members: object = {}): void {
    if (type === "open") this.readyState = 1;
    if (type === "close" || type === "error") this.readyState = 3;
    this.dispatchEvent(Object.assign(new Event(type), members));
  }
}
