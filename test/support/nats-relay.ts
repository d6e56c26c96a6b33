/** A relay between a node and NATS that can hold back one message for the node, while later ones pass it, or change or drop messages. */
import { Relay, type Line } from "./relay.js";

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
  readonly #relay: Relay;
  /** What has come of a command of the server that is not complete. */
  readonly #rest = new WeakMap<Line, Buffer>();
  readonly #holds = new Set<Hold>();
  #change: (text: string) => string | undefined = (text) => text;

  private constructor(relay: Relay) {
    this.#relay = relay;
    relay.pass = (bytes, to, line) => (to === "server" ? bytes : this.#take(bytes, line));
  }

  /** `to`: the port of the server. */
  static async to(to: number): Promise<NatsRelay> {
    return new NatsRelay(await Relay.to(to));
  }

  get port(): number {
    return this.#relay.port;
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
  async end(): Promise<void> {
    await this.#relay.close();
  }

  #take(bytes: Buffer, line: Line): undefined {
    let rest = Buffer.concat([this.#rest.get(line) ?? Buffer.alloc(0), bytes]);
    for (let length; (length = lengthOf(rest)) !== undefined; rest = rest.subarray(length))
      this.#deliver(rest.subarray(0, length), line);
    this.#rest.set(line, rest);
  }

  #deliver(bytes: Buffer, line: Line): void {
    const text = this.#change(bytes.toString("latin1"));
    if (text === undefined) return;
    const deliver = (): void => line.write("client", Buffer.from(text, "latin1"));
    const hold = [...this.#holds].find(({ pattern }) => pattern.test(text));
    if (hold === undefined) deliver();
    else hold.take(deliver);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
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
