/** A relay between a node and NATS that can hold back one message for the node, while later ones pass it, or change or drop messages. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";

/** A message that is held back, or will be. */
export interface Held {
  /** Resolves when the message is here. */
  readonly taken: Promise<void>;
  /** Delivers it. */
  release(): void;
}

interface Hold {
  readonly pattern: RegExp;
  take(deliver: () => void): void;
}

export class NatsRelay implements AsyncDisposable {
  readonly #server = createServer((client) => this.#connect(client));
  readonly #sockets = new Set<Socket>();
  readonly #to: number;
  readonly #holds = new Set<Hold>();
  #change: (text: string) => string | undefined = (text) => text;

  private constructor(to: number) {
    this.#to = to;
  }

  /** `to`: the port of the server. */
  static async listen(to: number): Promise<NatsRelay> {
    const relay = new NatsRelay(to);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Holds the next message whose text matches. */
  hold(pattern: RegExp): Held {
    let deliver: (() => void) | undefined;
    const taken = new Promise<void>((resolve) => {
      const hold: Hold = {
        pattern,
        take: (delivery) => {
          this.#holds.delete(hold);
          deliver = delivery;
          resolve();
        },
      };
      this.#holds.add(hold);
    });
    return { taken, release: () => deliver!() };
  }

  /** Delivers what `change` returns for each message: a text of the same length, or `undefined` for none. */
  change(change: (text: string) => string | undefined): void {
    this.#change = change;
  }

  /** Ends all connections, and accepts no more. */
  end(): void {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #connect(client: Socket): void {
    const server = connectTcp(this.#to, "127.0.0.1");
    client.pipe(server);
    let rest = Buffer.alloc(0);
    server.on("data", (bytes: Buffer) => {
      rest = Buffer.concat([rest, bytes]);
      for (let length; (length = lengthOf(rest)) !== undefined; rest = rest.subarray(length))
        this.#deliver(client, rest.subarray(0, length));
    });
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(socket);
      socket
        .setNoDelay()
        .on("error", () => {})
        .on("close", () => {
          other.destroy();
          this.#sockets.delete(socket);
        });
    }
  }

  #deliver(client: Socket, bytes: Buffer): void {
    const text = this.#change(bytes.toString("latin1"));
    if (text === undefined) return;
    const hold = [...this.#holds].find(({ pattern }) => pattern.test(text));
    if (hold === undefined) client.write(text, "latin1");
    else hold.take(() => client.write(text, "latin1"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const isListening = this.#server.listening;
    this.end();
    if (isListening) await once(this.#server, "close");
  }
}

/** Returns how long the first command of the server is; `undefined` if it is not complete. */
function lengthOf(bytes: Buffer): number | undefined {
  const at = bytes.indexOf("\r\n");
  if (at === -1) return undefined;
  const head = bytes.toString("latin1", 0, at);
  const length = /^H?MSG /.test(head) ? at + 2 + Number(head.split(" ").at(-1)) + 2 : at + 2;
  return bytes.length < length ? undefined : length;
}
