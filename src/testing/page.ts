/** A standard WebSocket whose connections reach a test server, for code that makes its own: pages, workers, other clients. */
import { exceeds } from "../message/codec.js";
import { any, checkOptions } from "../message/options.js";
import type { SocketHandler } from "../socket/socket.js";
import type { StandardWebSocket } from "../socket/standard.js";
import type { Headers } from "./gate.js";
import type { Wire } from "./network.js";

/** The second argument of a WebSocket, as the `WebSocket` of Node takes it: for a client that is not a page. */
export interface WebSocketOptions {
  /** The subprotocols that the client offers. Default: none. */
  protocols?: string | readonly string[] | undefined;
  /** Headers of the upgrade request, such as `Authorization`, `Cookie` or `Origin`. Default: none. */
  headers?: Headers | undefined;
}

/** Opens the connection of a new WebSocket; of a page, if there are no headers. Throws a `TypeError` for a bad address. */
export type OpenPage = (
  webSocket: StandardWebSocket,
  url: string | URL,
  protocols: readonly string[],
  headers: Headers | undefined,
) => Wire;

type Listener = ((event: any) => void) | null;

/** The class of WebSockets in memory. Each instance connects at once. */
export interface PageWebSocket {
  new (
    url: string | URL,
    protocols?: string | readonly string[] | WebSocketOptions,
  ): StandardWebSocket & { onopen: Listener; onmessage: Listener; onerror: Listener; onclose: Listener };
}

/** Returns the offer of a client, and its headers if it is not a page. Throws a `TypeError` for an unknown option. */
function optionsOf(given: string | readonly string[] | WebSocketOptions): {
  protocols: readonly string[];
  headers: Headers | undefined;
} {
  if (typeof given === "string" || Array.isArray(given)) return { protocols: [given].flat(), headers: undefined };
  const { protocols = [], headers = {} } = checkOptions("options", given, {
    protocols: any,
    headers: any,
  }) as WebSocketOptions;
  return { protocols: [protocols].flat(), headers };
}

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

/** The longest reason of a close, in bytes. */
const MAX_REASON_BYTES = 123;

/** Returns a class of standard WebSockets that connect by `open`. They carry strings and bytes. */
export function pageWebSocket(open: OpenPage): PageWebSocket {
  return class WebSocket extends EventTarget implements StandardWebSocket, SocketHandler {
    static readonly CONNECTING = CONNECTING;
    static readonly OPEN = OPEN;
    static readonly CLOSING = CLOSING;
    static readonly CLOSED = CLOSED;
    readonly url: string;
    readonly extensions = "";
    binaryType = "blob";
    protocol = "";
    readyState = CONNECTING;
    onopen: Listener = null;
    onmessage: Listener = null;
    onerror: Listener = null;
    onclose: Listener = null;
    readonly #wire: Wire;

    constructor(url: string | URL, given: string | readonly string[] | WebSocketOptions = []) {
      super();
      this.url = String(url);
      const { protocols, headers } = optionsOf(given);
      this.#wire = open(this, url, protocols, headers);
      this.#wire.opened.then(
        (protocol) => this.#opened(protocol),
        () => this.#failed(),
      );
    }

    get bufferedAmount(): number {
      return this.#wire.client.unsentBytes;
    }

    send(data: string | Uint8Array): void {
      if (this.readyState === CONNECTING) throw new DOMException("the WebSocket is not open yet", "InvalidStateError");
      if (typeof data !== "string" && !(data instanceof Uint8Array))
        throw new TypeError("a WebSocket of a test server carries strings and Uint8Arrays");
      this.#wire.client.send(data);
    }

    close(code?: number, reason = ""): void {
      if (code !== undefined && code !== 1000 && !(code >= 3000 && code <= 4999))
        throw new DOMException(`the code must be 1000 or from 3000 to 4999, got ${code}`, "InvalidAccessError");
      if (exceeds(reason, MAX_REASON_BYTES)) throw new DOMException("the reason is too long", "SyntaxError");
      const isOpening = this.readyState === CONNECTING;
      if (this.readyState < CLOSING) this.readyState = CLOSING;
      // An end without a close that was received is reported as 1006, so the code matters only to the other side.
      if (isOpening) this.#wire.client.terminate();
      else this.#wire.client.close(code, reason);
    }

    // Reports of the connection.

    receiveFrame(data: string): void {
      this.#fire("message", { data });
    }

    receiveBinary({ buffer, byteOffset, length }: Uint8Array): boolean {
      const data = buffer.slice(byteOffset, byteOffset + length);
      this.#fire("message", { data: this.binaryType === "blob" ? new Blob([data as ArrayBuffer]) : data });
      return true;
    }

    closed({ code, reason }: { code: number; reason: string }): void {
      this.readyState = CLOSED;
      if (code === 1006) this.#fire("error");
      this.#fire("close", { code, reason, wasClean: code !== 1006 });
    }

    #opened(protocol: string): void {
      if (this.readyState !== CONNECTING) return this.#failed();
      this.readyState = OPEN;
      this.protocol = protocol;
      this.#fire("open");
      this.#wire.client.start(this);
    }

    #failed(): void {
      this.closed({ code: 1006, reason: "" });
    }

    #fire(type: "open" | "message" | "error" | "close", members: object = {}): void {
      const event = Object.assign(new Event(type), members);
      this.dispatchEvent(event);
      this[`on${type}`]?.(event);
    }
  };
}
