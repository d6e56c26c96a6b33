/** A TCP relay between nodes and a broker. Its connections can be cut, or carry nothing any more although they stay open. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";

interface Line {
  readonly client: Socket;
  readonly server: Socket;
}

export class Relay implements AsyncDisposable {
  readonly #server = createServer((client) => this.#take(client));
  readonly #lines = new Set<Line>();
  readonly #to: number;
  #isParted = false;

  private constructor(to: number) {
    this.#to = to;
  }

  /** `to`: the port of the broker. */
  static async listen(to: number): Promise<Relay> {
    const relay = new Relay(to);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The number of open connections. */
  get size(): number {
    return this.#lines.size;
  }

  /** Ends all connections. */
  cut(): void {
    for (const { client } of this.#lines) client.destroy();
  }

  /** Carries nothing in both directions until `mend`, also on connections that are opened meanwhile. */
  part(): void {
    this.#isParted = true;
    for (const line of this.#lines) {
      line.client.unpipe(line.server);
      line.server.unpipe(line.client);
    }
  }

  /** Carries nothing to the clients, and reads nothing of what the broker sends them. */
  mute(): void {
    for (const { client, server } of this.#lines) server.unpipe(client);
  }

  /** Carries everything again. */
  mend(): void {
    this.#isParted = false;
    for (const line of this.#lines) this.#carry(line);
  }

  #carry({ client, server }: Line): void {
    client.pipe(server);
    server.pipe(client);
  }

  #take(client: Socket): void {
    const line: Line = { client, server: connectTcp(this.#to, "127.0.0.1") };
    this.#lines.add(line);
    if (!this.#isParted) this.#carry(line);
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
    this.cut();
    for (const { server } of this.#lines) server.destroy();
    this.#server.close();
    await once(this.#server, "close");
  }
}
