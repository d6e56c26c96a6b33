/** A standard WebSocket without I/O: the test is its server, and its network. */
import type { CloseInfo } from "../../src/index.js";
import type { Network } from "../../src/testing/index.js";

/** What a client takes as a WebSocket. */
type StandardWebSocket = Extract<Parameters<Network["of"]>[0], EventTarget | { readonly readyState: number }>;

/** Fires only the events that the test requests. */
export class ScriptedWebSocket extends EventTarget implements StandardWebSocket {
  binaryType = "blob";
  readyState = 0;
  bufferedAmount = 0;
  protocol = "";
  readonly sent: string[] = [];
  readonly closes: unknown[][] = [];
  onSend: (frame: string) => void = () => {};

  send(data: string): void {
    this.sent.push(data);
    this.onSend(data);
  }

  close(...how: unknown[]): void {
    this.closes.push(how);
    if (this.readyState < 2) this.readyState = 2;
  }

  fire(type: string, members: object = {}): void {
    if (type === "open") this.readyState = 1;
    if (type === "close" || type === "error") this.readyState = 3;
    this.dispatchEvent(Object.assign(new Event(type), members));
  }

  // The verbs of a server. Each takes effect in a later microtask, so that the client has added its listeners.

  /** Accepts the client with a subprotocol, and sends frames. */
  accept(protocol: string, ...frames: string[]): void {
    this.#later(() => {
      this.protocol = protocol;
      this.fire("open");
    });
    this.say(...frames);
  }

  say(...frames: string[]): void {
    for (const data of frames) this.#later(() => this.readyState === 1 && this.fire("message", { data }));
  }

  /** Ends the connection, or refuses it if it is not open. */
  end({ code, reason }: CloseInfo = { code: 1006, reason: "" }): void {
    this.#later(() => {
      if (this.readyState === 3) return;
      if (code === 1006) this.fire("error");
      this.fire("close", { code, reason });
    });
  }

  #later(act: () => unknown): void {
    queueMicrotask(act);
  }
}
