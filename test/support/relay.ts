/** A TCP relay between nodes and a broker. Its connections can be cut, or carry nothing any more although they stay open. */
import { once } from "node:events";
import { connect as connectTcp, createServer, type AddressInfo, type Socket } from "node:net";
import { Transform } from "node:stream";

interface Line {
  readonly client: Socket;
  /** What goes to the broker passes here. */
  readonly outbound: Transform;
  readonly server: Socket;
}

export class Relay implements AsyncDisposable {
  readonly #server = createServer((client) => this.#take(client));
  readonly #lines = new Set<Line>();
  readonly #to: number;
  #isParted = false;
  #partsBefore: string | undefined;
  /** How many bytes the broker has sent to the clients. */
  carriedBytes = 0;

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

  /** Whether nothing is carried. */
  get isParted(): boolean {
    return this.#isParted;
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
      line.client.unpipe(line.outbound);
      line.server.unpipe(line.client);
    }
  }

  /** Parts when a client sends this text, which is not carried any more. */
  partBefore(text: string): void {
    this.#partsBefore = text;
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

  #carry({ client, outbound, server }: Line): void {
    client.pipe(outbound);
    server.pipe(client);
  }

  #makeOutbound(): Transform {
    return new Transform({
      transform: (bytes: Buffer, _encoding, done) => {
        if (this.#partsBefore === undefined || !bytes.includes(this.#partsBefore)) return done(null, bytes);
        this.#partsBefore = undefined;
        // It takes nothing more, because this chunk is never done.
        this.part();
      },
    });
  }

  #take(client: Socket): void {
    const line: Line = { client, outbound: this.#makeOutbound(), server: connectTcp(this.#to, "127.0.0.1") };
    line.outbound.pipe(line.server);
    line.server.on("data", ({ length }: Buffer) => (this.carriedBytes += length)).pause();
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
