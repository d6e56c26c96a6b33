/** A TCP proxy between nodes and a Redis, whose connections can be muted: they stay open, and nothing arrives any more. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";

interface Line {
  readonly client: Socket;
  readonly server: Socket;
  /** Whether the client has subscribed. */
  isSubscriber: boolean;
  /** Whether the client has run a script. */
  isScripted: boolean;
}

export class RedisProxy implements AsyncDisposable {
  readonly #server = createServer((socket) => this.#take(socket));
  readonly #lines = new Set<Line>();
  readonly #port: number;
  /** Called before the script is forwarded that shows which commands the server accepts. */
  onProbe: () => void = () => {};

  private constructor(port: number) {
    this.#port = port;
  }

  /** `port`: that of the Redis. */
  static async listen(port: number): Promise<RedisProxy> {
    const proxy = new RedisProxy(port);
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Forwards nothing to the clients that have subscribed, or to those that have not. Returns how many there are. */
  mute(kind: "subscribers" | "others"): number {
    const lines = [...this.#lines].filter(({ isSubscriber }) => isSubscriber === (kind === "subscribers"));
    for (const { server, client } of lines) server.unpipe(client);
    return lines.length;
  }

  /** Ends the connections that have not subscribed to anything and have not run a script. */
  cutUnused(): void {
    for (const { client, isSubscriber, isScripted } of this.#lines) if (!isSubscriber && !isScripted) client.destroy();
  }

  #take(client: Socket): void {
    const line: Line = { client, server: connectTcp(this.#port, "127.0.0.1"), isSubscriber: false, isScripted: false };
    this.#lines.add(line);
    client.on("data", (bytes) => {
      const text = bytes.toString("latin1");
      line.isSubscriber ||= /subscribe/i.test(text);
      line.isScripted ||= text.includes("EVALSHA");
      if (text.includes("EVALSHA") && text.includes(":probe")) this.onProbe();
    });
    client.pipe(line.server);
    line.server.pipe(client);
    for (const [socket, other] of [
      [client, line.server],
      [line.server, client],
    ] as const)
      socket
        .on("error", () => {})
        .on("close", () => {
          other.destroy();
          this.#lines.delete(line);
        });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { client, server } of this.#lines) {
      client.destroy();
      server.destroy();
    }
    this.#server.close();
    await once(this.#server, "close");
  }
}
