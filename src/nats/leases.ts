/**
 * The leases of nodes over NATS: each node sends a sign of life for each beat, and each node measures by its own clock how long it has
 * heard none of another. NATS 2.9 reports no expiry of a key, so a bucket would need the same clocks.
 */
import type { EngineLeases, Incarnation, LeaseState, NodeName } from "../fleet/engine.js";
import type { Link } from "./client.js";
import type { NatsConnection } from "./connection.js";

/** What a sign says: entered, beats, left, or was given up by another node. */
type Sign = "entered" | "beats" | "left" | "dead";

interface Heard {
  at: number;
  readonly leaseMs: number;
  /** Whether a sign was received. Otherwise only members of it were found. */
  readonly isHeard: boolean;
}

const INCARNATION = /^[A-Za-z0-9_-]{1,64}\/\d{1,15}$/;

export class NatsLeases implements EngineLeases {
  readonly #connection: NatsConnection;
  readonly #node: NodeName;
  /** The incarnations of this node that hold a lease. */
  readonly #own = new Map<Incarnation, Heard>();
  /** The incarnations of all nodes, with those of this one. */
  readonly #heard = new Map<Incarnation, Heard>();

  constructor(connection: NatsConnection, node: NodeName) {
    this.#connection = connection;
    this.#node = node;
  }

  /** Listens on a new link. Signs may have been missed, so each lease begins again. */
  begin(link: Link): void {
    const now = performance.now();
    for (const heard of this.#heard.values()) heard.at = now;
    link.client.subscribe(this.#connection.names.lease(), {
      callback: (error, message) => {
        if (error !== null) return;
        const [number, node] = message.subject.split(".").reverse();
        const [sign, leaseMs] = message.string().split(" ");
        this.#received(`${node!}/${number!}` as Incarnation, sign as Sign, Number(leaseMs));
      },
    });
  }

  #received(incarnation: Incarnation, sign: Sign, leaseMs: number): void {
    if (!INCARNATION.test(incarnation) || !(leaseMs > 0 && leaseMs <= 600_000)) return;
    const isOwn = incarnation.startsWith(`${this.#node}/`);
    if (sign === "dead" || sign === "left") {
      this.#heard.delete(incarnation);
      this.#own.delete(incarnation);
    } else if ((sign === "entered" || sign === "beats") && !isOwn) {
      this.#heard.set(incarnation, { at: performance.now(), leaseMs, isHeard: true });
      // So a node that begins knows the others at once.
      if (sign === "entered") for (const [own, { leaseMs: ownMs }] of this.#own) this.#say(own, "beats", ownMs);
    }
  }

  #say(incarnation: Incarnation, sign: Sign, leaseMs: number): void {
    this.#connection.present().client.publish(this.#connection.names.lease(incarnation), `${sign} ${leaseMs}`);
  }

  async enter(incarnation: Incarnation, leaseMs: number): Promise<void> {
    this.#say(incarnation, "entered", leaseMs);
    this.#renew(incarnation, leaseMs);
    await this.#connection.confirm();
  }

  #renew(incarnation: Incarnation, leaseMs: number): void {
    const lease = { at: performance.now(), leaseMs, isHeard: true };
    this.#own.set(incarnation, lease);
    this.#heard.set(incarnation, lease);
  }

  async beat(incarnation: Incarnation, leaseMs: number): Promise<LeaseState> {
    // If this process was stopped, what the others have sent meanwhile is received before this is answered.
    await this.#connection.confirm();
    const own = this.#own.get(incarnation);
    if (own === undefined || performance.now() - own.at > own.leaseMs) {
      this.#own.delete(incarnation);
      this.#heard.delete(incarnation);
      return { isMine: false, live: [] };
    }
    this.#say(incarnation, "beats", leaseMs);
    this.#renew(incarnation, leaseMs);
    await this.#connection.confirm();
    const now = performance.now();
    const live = [...this.#heard].flatMap(([one, heard]) =>
      heard.isHeard && now - heard.at <= heard.leaseMs ? [one] : [],
    );
    if (this.#connection.roster === undefined) this.#forgetExpired(now);
    return { isMine: true, live };
  }

  #forgetExpired(now: number): void {
    for (const [one, heard] of this.#heard) if (now - heard.at > heard.leaseMs) this.#heard.delete(one);
  }

  /** Members of an incarnation were found. If it gives no sign, its lease ends. */
  found(incarnation: Incarnation, leaseMs: number): void {
    if (this.#heard.has(incarnation) || !INCARNATION.test(incarnation)) return;
    this.#heard.set(incarnation, { at: performance.now(), leaseMs, isHeard: false });
  }

  /**
   * Returns the incarnations whose leases have ended and which this node has to reap. The live nodes have an order, and each
   * later one begins a beat later, in case those before it die too.
   */
  expired(live: readonly Incarnation[]): Incarnation[] {
    const nodes = [...new Set(live.map((one) => one.split("/")[0]!))].sort();
    const rank = Math.max(nodes.indexOf(this.#node), 0);
    const now = performance.now();
    return [...this.#heard].flatMap(([one, { at, leaseMs }]) =>
      now - at > leaseMs + (rank * leaseMs) / 3 ? [one] : [],
    );
  }

  /** Tells all nodes that an incarnation is given up. */
  giveUp(incarnation: Incarnation): void {
    const { leaseMs } = this.#heard.get(incarnation) ?? { leaseMs: 1 };
    this.#say(incarnation, "dead", leaseMs);
  }

  /** Gives up the leases of this node. */
  leave(): void {
    for (const [own, { leaseMs }] of this.#own) this.#say(own, "left", leaseMs);
  }

  stop(): void {
    this.#own.clear();
    this.#heard.clear();
  }
}
