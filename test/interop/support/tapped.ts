/** A WebSocket of `ws` that records every message, for third-party software. */
import { WebSocket } from "ws";

/** The messages sent and received by one end of a connection, parsed, in order. */
export class TappedWebSocket extends WebSocket {
  readonly sent: any[] = [];
  readonly received: any[] = [];

  /** Called as the constructor of `ws`: by a client with a URL, by a server with null. */
  constructor(...args: any[]) {
    super(...(args as ConstructorParameters<typeof WebSocket>));
    this.on("message", (data: Buffer) => this.received.push(JSON.parse(data.toString())));
  }

  override send(...args: [data: any, ...rest: any[]]): void {
    this.sent.push(JSON.parse(String(args[0])));
    super.send(...(args as [any]));
  }
}
