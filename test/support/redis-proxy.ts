/** A relay between nodes and a Redis, which knows the connections that have subscribed. */
import { Relay, type Line } from "./relay.js";

export class RedisProxy implements AsyncDisposable {
  readonly #relay: Relay;
  readonly #subscribers = new WeakSet<Line>();
  /** The connections that have run a script. */
  readonly #scripted = new WeakSet<Line>();
  /** Called before the script is forwarded that shows which commands the server accepts. */
  onProbe: () => void = () => {};

  private constructor(relay: Relay) {
    this.#relay = relay;
    relay.pass = (bytes, to, line) => {
      if (to === "server") this.#see(bytes.toString("latin1"), line);
      return bytes;
    };
  }

  /** `port`: that of the Redis. */
  static async to(port: number): Promise<RedisProxy> {
    return new RedisProxy(await Relay.to(port));
  }

  get url(): string {
    return `redis://127.0.0.1:${this.#relay.port}`;
  }

  /** Forwards nothing to the clients that have subscribed, or to those that have not. Returns how many there are. */
  mute(kind: "subscribers" | "others"): number {
    const isMuted = (line: Line): boolean => this.#subscribers.has(line) === (kind === "subscribers");
    const lines = [...this.#relay.lines].filter(isMuted);
    for (const line of lines) line.mute("client");
    return lines.length;
  }

  /** Ends the connections that have not subscribed to anything and have not run a script. */
  cutUnused(): void {
    for (const line of this.#relay.lines) if (!this.#subscribers.has(line) && !this.#scripted.has(line)) line.cut();
  }

  #see(text: string, line: Line): void {
    if (/subscribe/i.test(text)) this.#subscribers.add(line);
    if (!text.includes("EVALSHA")) return;
    this.#scripted.add(line);
    if (text.includes(":probe")) this.onProbe();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#relay[Symbol.asyncDispose]();
  }
}
