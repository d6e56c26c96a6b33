/**
 * The leases of nodes over NATS: each node sends a sign of life for each beat, and each node measures by its own clock how long it has
 * heard none of another. NATS 2.9 reports no expiry of a key, so a bucket would need the same clocks.
 */
import { EngineError, type EngineLeases, type Incarnation, type LeaseState, type NodeName } from "../fleet/engine.js";
import type { Link } from "./client.js";
import type { NatsConnection } from "./connection.js";

/**
 * What a sign says: the incarnation entered, beats, or left, or left without its members, which others have to remove (`"gone"`). Or
 * what another node does: it removes the members of the incarnation (`"taken"`), or has removed them (`"dead"`).
 */
type Sign = "entered" | "beats" | "left" | "gone" | "taken" | "dead";

interface Heard {
  at: number;
  readonly leaseMs: number;
  /** Whether a sign was received. Otherwise only members of it were found. */
  readonly isHeard: boolean;
}

const INCARNATION = /^[A-Za-z0-9_-]{1,64}\/\d{1,15}$/;

/** Returns true if a lease can be so long. */
export function isLeaseMs(leaseMs: number): boolean {
  return leaseMs > 0 && leaseMs <= 600_000;
}

function closedError(): EngineError {
  return new EngineError("the engine nats is closed", "not-sent");
}

export class NatsLeases implements EngineLeases {
  readonly #connection: NatsConnection;
  readonly #node: NodeName;
  /** The incarnations of this node that hold a lease. */
  readonly #own = new Map<Incarnation, Heard>();
  /** The incarnations of this node that have said that they enter, and how long their leases are, until that is confirmed. */
  readonly #entering = new Map<Incarnation, number>();
  #hasLeft = false;
  /** The incarnations of all nodes, with those of this one. */
  readonly #heard = new Map<Incarnation, Heard>();

  constructor(connection: NatsConnection, node: NodeName) {
    this.#connection = connection;
    this.#node = node;
  }

  /** Listens on a new link. Signs of other nodes may have been missed, so their leases begin again. */
  begin(link: Link): void {
    const now = performance.now();
    for (const [one, heard] of this.#heard) if (!this.#own.has(one)) heard.at = now;
    link.client.subscribe(this.#connection.names.lease(), {
      callback: (error, message) => {
        if (error !== null) return;
        const [node, number] = message.subject.split(".").slice(-2);
        const [sign, leaseMs] = message.string().split(" ");
        this.#received(link, `${node!}/${number!}` as Incarnation, sign as Sign, Number(leaseMs));
      },
    });
  }

  /** Never throws: the library would read nothing more from the connection, and not report that. */
  #received(link: Link, incarnation: Incarnation, sign: Sign, leaseMs: number): void {
    if (!INCARNATION.test(incarnation) || !isLeaseMs(leaseMs)) return;
    const isOwn = incarnation.startsWith(`${this.#node}/`);
    if (sign === "dead" || sign === "left" || (sign === "taken" && isOwn)) {
      this.#heard.delete(incarnation);
      this.#own.delete(incarnation);
    } else if (sign === "gone" && !isOwn) {
      // As if its lease had just ended.
      this.#heard.set(incarnation, { at: performance.now() - leaseMs, leaseMs, isHeard: false });
    } else if (sign === "taken" && this.#heard.has(incarnation)) {
      // Should that node die too, another one begins when this time has passed.
      this.#heard.set(incarnation, { at: performance.now(), leaseMs, isHeard: false });
    } else if ((sign === "entered" || sign === "beats") && !isOwn) {
      this.#heard.set(incarnation, { at: performance.now(), leaseMs, isHeard: true });
      // So a node that begins knows the others at once. While this one connects, it is silent: it beats as soon as it is connected.
      if (sign !== "entered" || !this.#connection.isUpWith(link)) return;
      for (const [own, { leaseMs: ownMs }] of this.#own) this.#say(own, "beats", ownMs);
    }
  }

  #say(incarnation: Incarnation, sign: Sign, leaseMs: number): void {
    this.#connection.present().client.publish(this.#connection.names.lease(incarnation), `${sign} ${leaseMs}`);
  }

  async enter(incarnation: Incarnation, leaseMs: number): Promise<void> {
    if (this.#hasLeft) throw closedError();
    const saidAt = performance.now();
    this.#say(incarnation, "entered", leaseMs);
    this.#entering.set(incarnation, leaseMs);
    try {
      await this.#connection.confirm();
    } finally {
      this.#entering.delete(incarnation);
    }
    if (this.#hasLeft) throw closedError();
    this.#renew(incarnation, leaseMs, saidAt);
  }

  #renew(incarnation: Incarnation, leaseMs: number, saidAt: number): void {
    const lease = { at: saidAt, leaseMs, isHeard: true };
    this.#own.set(incarnation, lease);
    this.#heard.set(incarnation, lease);
  }

  /**
   * Renews a lease. `check` resolves if this node reaches what it has put. Only then is the lease renewed, and from the time before the sign
   * was sent: so this node never believes in its lease for longer than the others do, who may have missed the sign.
   */
  async beat(incarnation: Incarnation, leaseMs: number, check?: () => Promise<void>): Promise<LeaseState> {
    // If this process was stopped, what the others have sent meanwhile is received before this is answered.
    await this.#connection.confirm();
    const own = this.#own.get(incarnation);
    if (own === undefined || performance.now() - own.at > own.leaseMs) {
      this.#own.delete(incarnation);
      this.#heard.delete(incarnation);
      return { isMine: false, live: [] };
    }
    const saidAt = performance.now();
    this.#say(incarnation, "beats", leaseMs);
    await this.#connection.confirm();
    await check?.();
    // Another node has given it up meanwhile, or what it has put is lost.
    if (!this.#own.has(incarnation)) return { isMine: false, live: [] };
    this.#renew(incarnation, leaseMs, saidAt);
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

  /** Returns how long the lease of an incarnation is; `undefined` if this node knows nothing of it. */
  leaseMsOf(incarnation: Incarnation): number | undefined {
    return this.#heard.get(incarnation)?.leaseMs;
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
    const nodes = new Set(live.map((one) => one.split("/")[0]!));
    const rank = [...nodes].filter((node) => node < this.#node).length;
    const now = performance.now();
    return [...this.#heard].flatMap(([one, { at, leaseMs }]) =>
      !this.#own.has(one) && now - at > leaseMs + (rank * leaseMs) / 3 ? [one] : [],
    );
  }

  /** Tells all nodes that this one removes the members of an incarnation. */
  take(incarnation: Incarnation): void {
    this.#say(incarnation, "taken", this.#heard.get(incarnation)?.leaseMs ?? 1);
  }

  /** Lets this node try again at its next beat: it could not remove the members of an incarnation that it has taken. */
  takeAgain(incarnation: Incarnation): void {
    const heard = this.#heard.get(incarnation);
    // This node has received its own sign too, so the lease would last once more. If it has heard of the incarnation since, that one lives.
    if (heard?.isHeard === false) this.#heard.set(incarnation, { ...heard, at: -Infinity });
  }

  /** Tells all nodes that an incarnation has no members any more. */
  giveUp(incarnation: Incarnation): void {
    this.#say(incarnation, "dead", this.#heard.get(incarnation)?.leaseMs ?? 1);
  }

  /** Whether this node has a lease for an incarnation. */
  holds(incarnation: Incarnation): boolean {
    return this.#own.has(incarnation);
  }

  /** Loses the leases of this node, because what it has put is lost. */
  lose(): void {
    for (const own of this.#own.keys()) this.#heard.delete(own);
    this.#own.clear();
  }

  /** Gives up the leases of this node, also those that it is entering. It takes and renews none after that. `isClean`: it has removed its members. */
  leave(isClean: boolean): void {
    this.#hasLeft = true;
    const leaseMsOf = new Map(this.#entering);
    for (const [own, { leaseMs }] of this.#own) leaseMsOf.set(own, leaseMs);
    this.#own.clear();
    for (const [own, leaseMs] of leaseMsOf) this.#say(own, isClean ? "left" : "gone", leaseMs);
  }

  stop(): void {
    this.#own.clear();
    this.#heard.clear();
  }
}
