/** The lease of a node: renews it, and finds out which nodes live and whether this node receives what is sent to it. */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import type { Broker } from "./broker.js";
import { EngineError, type EngineLeases, type Incarnation, type NodeName } from "./engine.js";
import { frameOf, Kind } from "./frames.js";

/** How long a node is believed to live without a sign of it, unless the engine says otherwise. */
export const LEASE_MS = 10_000;

/** After so many echoes that did not arrive, the connection is opened anew. */
const MOST_LOST_ECHOES = 2;

/** Takes what the lease reports. */
export interface LeaseOwner {
  /** This node was given up, and has a lease as another incarnation. */
  renewed(incarnation: Incarnation): void;
  /** The nodes that live have been read, with this one. */
  seen(live: ReadonlySet<NodeName>): void;
}

/** The lease of one node. If the engine has no leases, only echoes are sent. */
export class Lease implements Expiring {
  deadline = 0;
  readonly #broker: Broker;
  readonly #node: NodeName;
  readonly #leaseMs: number;
  readonly #owner: LeaseOwner;
  #number = 1;
  #isEntered = false;
  /** The number of the incarnation that the owner knows. */
  #reported = 1;
  /** The renewal in progress; `undefined` if there is none. */
  #renewing: Promise<boolean> | undefined;
  /** The renewal that follows the one in progress. All calls of `read` during that one share it. */
  #reading: Promise<boolean> | undefined;
  #live: ReadonlySet<NodeName>;
  /** The last echo that was sent, and when; `undefined` if it has arrived. */
  #echo: { readonly number: number; readonly sentAt: number } | undefined;
  #echoes = 0;
  #lostEchoes = 0;
  #lagMs: number | undefined;
  #isStopped = false;

  constructor(broker: Broker, node: NodeName, leaseMs: number, owner: LeaseOwner) {
    this.#broker = broker;
    this.#node = node;
    this.#leaseMs = leaseMs;
    this.#owner = owner;
    this.#live = new Set([node]);
  }

  get #leases(): EngineLeases | undefined {
    const { roster, leases } = this.#broker.connection;
    return roster ?? leases;
  }

  get incarnation(): Incarnation {
    return `${this.#node}/${this.#number}`;
  }

  /** The nodes that lived when the leases were last read, with this one. */
  get live(): ReadonlySet<NodeName> {
    return this.#live;
  }

  /** How long the last echo took, in milliseconds, or how long it has been away if that is longer. */
  get lagMs(): number | undefined {
    const awayMs = this.#echo === undefined ? 0 : performance.now() - this.#echo.sentAt;
    return this.#lagMs === undefined ? undefined : Math.max(this.#lagMs, awayMs);
  }

  /** The connection is up. Takes the lease, or renews it at once. */
  start(): void {
    if (this.#isStopped) return;
    this.#echo = undefined;
    this.#lostEchoes = 0;
    void this.beat();
  }

  stop(): void {
    this.#isStopped = true;
    clearDeadline(this);
  }

  expire(): void {
    void this.beat();
  }

  /** Takes an echo. */
  echoed(number: number): void {
    if (this.#echo?.number !== number) return;
    this.#lagMs = performance.now() - this.#echo.sentAt;
    this.#echo = undefined;
    this.#lostEchoes = 0;
  }

  /** Renews the lease and sends an echo. Resolves when the live nodes are read. Never rejects. */
  async beat(): Promise<void> {
    setDeadline(this, this.#leaseMs / 3);
    if (!this.#broker.isUp) return;
    // Also while the last beat is not answered: then the answers may be lost, which only an echo shows soon.
    this.#sendEcho();
    await this.#renewOnce();
  }

  /**
   * Renews the lease, and reads which nodes live, with all that entered before the call. Resolves with false if that failed: then `live` is
   * as before. Never rejects.
   */
  async read(): Promise<boolean> {
    if (this.#renewing === undefined) return this.#renewOnce();
    // The renewal in progress may have read the leases before this call.
    this.#reading ??= this.#renewing.then(() => {
      this.#reading = undefined;
      return this.#renewOnce();
    });
    return this.#reading;
  }

  #renewOnce(): Promise<boolean> {
    // If it fails, the connection is down or the next beat tries again.
    this.#renewing ??= this.#renew()
      .catch(() => false)
      .finally(() => (this.#renewing = undefined));
    return this.#renewing;
  }

  /** Resolves with true if the live nodes were read. */
  async #renew(): Promise<boolean> {
    const leases = this.#leases;
    if (leases === undefined || this.#isStopped) return false;
    if (!this.#isEntered) await this.#enter();
    let { isMine, live } = await this.#broker.now(() => leases.beat(this.incarnation, this.#leaseMs));
    if (!isMine) {
      this.#number++;
      await this.#enter();
      ({ isMine, live } = await this.#broker.now(() => leases.beat(this.incarnation, this.#leaseMs)));
    }
    if (!isMine) return false;
    this.#live = new Set([this.#node, ...live.map((incarnation) => incarnation.slice(0, incarnation.indexOf("/")))]);
    this.#owner.seen(this.#live);
    return true;
  }

  async #enter(): Promise<void> {
    this.#isEntered = false;
    const leases = this.#leases!;
    await this.#broker.now(() => leases.enter(this.incarnation, this.#leaseMs));
    this.#isEntered = true;
    // Behind a failure, the lease of the new incarnation may be taken at a later beat.
    if (this.#number === this.#reported) return;
    this.#reported = this.#number;
    this.#owner.renewed(this.incarnation);
  }

  #sendEcho(): void {
    if (this.#echo !== undefined && ++this.#lostEchoes >= MOST_LOST_ECHOES) {
      this.#lostEchoes = 0;
      this.#echo = undefined;
      return this.#broker.connection.reconnect(
        new EngineError(`${MOST_LOST_ECHOES} echoes did not arrive over ${this.#broker.name}`, "unknown"),
      );
    }
    // The lag of an echo that has not arrived counts from the first.
    this.#echo = { number: ++this.#echoes, sentAt: this.#echo?.sentAt ?? performance.now() };
    this.#broker.send(`n:${this.#node}`, frameOf(Kind.Echo, [this.#echo.number]));
  }
}
