/** A client of the world: joins at each new session, and records what arrives. */
import { connect, type AnyPeer } from "../../../src/node.js";
import type { Welcome } from "./orders.js";
import { parse, type Oracle, type Stay } from "./oracle.js";

/** How long a client waits before it joins again, because the broker was away. */
const AGAIN_MS = 100;

export class Member {
  readonly number: number;
  readonly #oracle: Oracle;
  #peer: AnyPeer | undefined;
  #since: string | undefined;
  #suspendedAt = Infinity;
  #isClosing = false;
  stay: Stay | undefined;

  constructor(number: number, oracle: Oracle) {
    this.number = number;
    this.#oracle = oracle;
  }

  /** Connects. Resolves when the client is connected for the first time. */
  async connect(url: string): Promise<void> {
    const peer = (await connect<any, any>(url, {
      reconnect: { initial: true },
      onOpen: (server: { request(method: string, params: unknown): Promise<unknown> }) => {
        this.#end();
        this.#suspendedAt = Infinity;
        void this.#join(server, this.#begin());
      },
      methods: {
        told: ({ run, n }: { run: number; n: number }) => void this.stay!.told.push({ run, n }),
        said: ({ n, at }: { n: number; at: string }) => {
          this.stay!.said.push({ n, at, time: Date.now() });
          this.#since = at;
        },
        run: ({ n }: { n: number }) => {
          this.#oracle.ran.set(n, (this.#oracle.ran.get(n) ?? 0) + 1);
          return n;
        },
      },
    })) as AnyPeer;
    this.#peer = peer;
    peer.on("suspend", () => this.disturbed());
    peer.on("resume", () => (this.#suspendedAt = Infinity));
    peer.on("missed", ({ count }) => (this.stay!.missed += count));
    peer.on("close", (info) => {
      this.#end();
      if (!this.#isClosing) this.#oracle.breach("P1", `client ${this.number} was closed: ${JSON.stringify(info)}`);
    });
  }

  #begin(): Stay {
    const stay: Stay = {
      client: this.number,
      since: this.#since,
      told: [],
      said: [],
      welcome: undefined,
      joinedAt: Infinity,
      endedAt: Infinity,
      missed: 0,
    };
    this.stay = stay;
    this.#oracle.stays.push(stay);
    return stay;
  }

  #end(): void {
    if (this.stay !== undefined) this.stay.endedAt = Math.min(this.#suspendedAt, Date.now());
  }

  async #join(server: { request(method: string, params: unknown): Promise<unknown> }, stay: Stay): Promise<void> {
    while (this.stay === stay && !this.#isClosing) {
      try {
        const params = { since: stay.since, as: `client ${this.number}` };
        const welcome = (await server.request("join", params)) as Welcome;
        if (this.stay !== stay) return;
        this.#oracle.welcomed(stay, welcome);
        this.#place(stay, welcome);
        return;
      } catch {
        // The broker is away, or the session is lost: then another one joins.
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }

  /** After a gap, the application loads its state, which is at least at the position of the response. */
  #place(stay: Stay, { outcome, at }: Welcome): void {
    if (outcome !== "gap" || at === undefined || stay.said.length > 0) return;
    this.#since = at;
  }

  /** Nothing may arrive from now on, until the session is resumed. */
  disturbed(): void {
    this.#suspendedAt = Math.min(this.#suspendedAt, Date.now());
  }

  /** Whether the client is a member, and has everything up to a position. */
  has(at: string): boolean {
    if (this.#since === undefined || this.stay?.welcome === undefined) return false;
    const [has, wanted] = [parse(this.#since), parse(at)];
    return has.epoch === wanted.epoch && has.offset >= wanted.offset;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#peer?.close();
  }
}
