/** The gate of a test server: the real checks of the handshake, over connections in memory. */
import type { IncomingMessage } from "node:http";
import { closeWithBye } from "../server/closing.js";
import { Gate, offeredBy, type GateDelegate, type TakeSocket } from "../server/gate.js";
import type { GateSettings } from "../server/options.js";
import type { Refusal } from "../server/upgrade.js";
import type { Socket } from "../socket/socket.js";
import type { Wire } from "./network.js";

/** The headers of a client, as `connect` of `reciproc/node` takes them. */
export type Headers = Readonly<Record<string, string | readonly string[]>>;

/** Accepts or refuses the clients of a test server. */
export class MemoryGate extends Gate<Socket> {
  readonly url: string;
  readonly #maxFrameBytes: number;

  /** `maxMessageBytes`: the longest message of a client. */
  constructor(settings: GateSettings, delegate: GateDelegate<Socket>, maxMessageBytes: number) {
    super(settings, delegate);
    this.url = `ws://localhost${settings.path ?? "/"}`;
    this.#maxFrameBytes = maxMessageBytes;
  }

  listen(): Promise<void> {
    return Promise.resolve();
  }

  protected open(request: IncomingMessage, wire: Wire, _head: undefined, use: TakeSocket<Socket>): void {
    const protocol = this.delegate.chooseProtocol(offeredBy(request)) ?? "";
    // As of a server on a port: a frame of a plain client is one message. A link of packs raises it.
    use(wire.accept(protocol, this.#maxFrameBytes), protocol);
  }

  protected answer(wire: Wire, refusal: Refusal): void {
    wire.refuse(refusal);
  }

  protected refuseWithBye(request: IncomingMessage, wire: Wire, head: undefined, refusal: Refusal): void {
    this.open(request, wire, head, (socket) => closeWithBye(socket, refusal));
  }
}

/** The server's address (RFC 5737). Not loopback, so that `Host` is checked only with the option `hosts`, as on a public server. */
const LOCAL_ADDRESS = "192.0.2.1";

/** The headers of every handshake. The key is any 16 bytes. */
const HANDSHAKE = {
  Connection: "Upgrade",
  Upgrade: "websocket",
  "Sec-WebSocket-Version": "13",
  "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
};

/**
 * Returns the upgrade request of a client. It has the members of an `IncomingMessage` that describe a request (`method`, `url`,
 * `httpVersion`, `headers`, `headersDistinct`, `rawHeaders`), and of its socket the addresses and `encrypted`. It is no stream.
 */
export function upgradeRequest(
  { protocol, host, pathname, search }: URL,
  protocols: readonly string[],
  headers: Headers,
  remoteAddress: string,
): IncomingMessage {
  const offer = protocols.length === 0 ? {} : { "Sec-WebSocket-Protocol": protocols.join(",") };
  const all = new Map<string, [name: string, values: readonly string[]]>();
  for (const [name, value] of Object.entries({ Host: host, ...headers, ...HANDSHAKE, ...offer }))
    all.set(name.toLowerCase(), [name, typeof value === "string" ? [value] : value]);
  const lists = [...all].map(([name, [, values]]) => [name, [...values]] as const);
  const request = {
    method: "GET",
    url: pathname + search,
    httpVersion: "1.1",
    headers: Object.fromEntries(lists.map(([name, values]) => [name, values.join(name === "cookie" ? "; " : ", ")])),
    headersDistinct: Object.fromEntries(lists),
    rawHeaders: [...all.values()].flatMap(([name, values]) => values.flatMap((value) => [name, value])),
    socket: { remoteAddress, localAddress: LOCAL_ADDRESS, encrypted: protocol === "wss:" },
  };
  return request as unknown as IncomingMessage;
}
