/** A WebSocket of `ws` that notes every message, for other people's software to run on. */
import { WebSocket } from "ws";

/** What one end of a connection sent and received, parsed, in order. */
export class TappedWebSocket extends WebSocket {
  readonly sent: any[] = [];
  readonly received: any[] = [];

  /** As `ws` has it: with an address by whoever dials, with null by a server. */
  constructor(...args: any[]) {
    super(...(args as ConstructorParameters<typeof WebSocket>));
    this.on("message", (data: Buffer) => this.received.push(JSON.parse(data.toString())));
  }

  override send(...args: [data: any, ...rest: any[]]): void {
    this.sent.push(JSON.parse(String(args[0])));
    super.send(...(args as [any]));
  }
}
