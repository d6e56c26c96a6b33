/** A client of the world: joins at each new session, and records what arrives. */
import { connect, type AnyPeer } from "../../../src/node.js";
import type { Oracle, Stay } from "./oracle.js";
import type { Welcome } from "./orders.js";
import { Lines } from "./lines.js";

/** How long a client waits before it joins again, because the broker was away. */
const AGAIN_MS = 100;

interface Joinable {
  request(method: string, params: unknown): Promise<unknown>;
}

export class Member {
  readonly number: number;
  readonly relay: Lines;
  readonly #oracle: Oracle;
  /** Whether it moves `since` before its join is answered, which is wrong. */
  readonly #isHasty: boolean;
  #peer: AnyPeer | undefined = undefined;
  /** The position up to which the application has everything. */
  #since: string | undefined = undefined;
  /** The last position that arrived. */
  #latest: string | undefined = undefined;
  /** Whether `#latest` is such a position: not between a new session and the answer to its `join`. */
  #isCurrent = false;
  #suspendedAt = Infinity;
  #isClosing = false;
  /** The present session. */
  stay: Stay | undefined = undefined;

  private constructor(number: number, relay: Lines, oracle: Oracle, isHasty: boolean) {
    this.number = number;
    this.relay = relay;
    this.#oracle = oracle;
    this.#isHasty = isHasty;
  }

  /** Connects. Resolves when the client is connected for the first time. `getPort`: of a node. */
  static async connect(
    number: number,
    oracle: Oracle,
    getPort: () => number | undefined,
    isHasty: boolean,
  ): Promise<Member> {
    const member = new Member(number, await Lines.listen([getPort]), oracle, isHasty);
    await member.#connect();
    return member;
  }

  async #connect(): Promise<void> {
    const peer = (await connect<any, any>(`ws://127.0.0.1:${this.relay.ports[0]}`, {
      reconnect: { initial: true },
      onOpen: (server: Joinable) => {
        this.#end();
        this.#suspendedAt = Infinity;
        void this.#join(server, this.#begin());
      },
      methods: {
        told: ({ run, n }: { run: number; n: number }) => void this.stay!.told.push({ run, n }),
        said: ({ n, at }: { n: number; at: string }) => {
          this.stay!.events.push({ kind: "said", n, at, time: Date.now() });
          this.#latest = at;
          if (this.#isCurrent || this.#isHasty) this.#since = at;
        },
        // The application loads its state, up to the next publication.
        missed: () => void this.stay!.events.push({ kind: "missed" }),
        run: ({ n }: { n: number }) => {
          this.#oracle.ran.set(n, (this.#oracle.ran.get(n) ?? 0) + 1);
          return n;
        },
      },
    })) as AnyPeer;
    this.#peer = peer;
    peer.on("suspend", () => this.disturbed());
    peer.on("resume", () => (this.#suspendedAt = Infinity));
    peer.on("missed", ({ count }) => (this.stay!.dropped += count));
    peer.on("close", (info) => {
      this.#end();
      if (!this.#isClosing) this.#oracle.breach("crash", `client ${this.number} closed: ${JSON.stringify(info)}`);
    });
  }

  #begin(): Stay {
    this.#isCurrent = false;
    this.#latest = undefined;
    const stay: Stay = {
      client: this.number,
      since: this.#since,
      told: [],
      events: [],
      welcome: undefined,
      joinedAt: Infinity,
      endedAt: Infinity,
      dropped: 0,
    };
    this.stay = stay;
    this.#oracle.stays.push(stay);
    return stay;
  }

  #end(): void {
    if (this.stay !== undefined) this.stay.endedAt = Math.min(this.#suspendedAt, Date.now());
  }

  async #join(server: Joinable, stay: Stay): Promise<void> {
    while (this.stay === stay && !this.#isClosing) {
      try {
        const welcome = (await server.request("join", { since: stay.since, as: `client ${this.number}` })) as Welcome;
        if (this.stay === stay) this.#joined(stay, welcome);
        return;
      } catch {
        // The broker is away, or the session is lost: then another one joins.
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
  }

  #joined(stay: Stay, welcome: Welcome): void {
    stay.welcome = welcome;
    stay.joinedAt = Date.now();
    stay.events.push({ kind: "joined" });
    // After a gap the application loads its state, which is at least at the position of the response.
    this.#since = this.#latest ?? welcome.at ?? this.#since;
    this.#isCurrent = true;
  }

  /** Nothing may arrive from now on, until the session is resumed. */
  disturbed(): void {
    this.#suspendedAt = Math.min(this.#suspendedAt, Date.now());
  }

  /** Whether the client is a member and has a connection. */
  get isBack(): boolean {
    return this.stay?.welcome !== undefined && this.stay.endedAt === Infinity && this.#suspendedAt === Infinity;
  }

  /** Whether the client was told of a gap, and has got nothing since. */
  get isInGap(): boolean {
    return this.stay?.events.at(-1)?.kind === "missed";
  }

  /** The position up to which the client has everything. */
  get since(): string | undefined {
    return this.#since;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    await this.#peer?.close();
    await this.relay.close();
  }
}
