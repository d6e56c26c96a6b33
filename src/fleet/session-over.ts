/**
 * Sessions whose clients have begun another one on a different node. The node that has the old session ends it at once, so that its
 * calls settle and its user is not a member twice until the session expires.
 */
import type { Broker } from "./broker.js";
import type { NodeName } from "./engine.js";
import { frameOf, Kind, type ReadFrame } from "./frames.js";
import { Repeats } from "./repeats.js";

/** How long a report is repeated until every live node has received it. A session without a socket seldom lasts longer. */
const REPEAT_MS = 60_000;
const LIMITS = { firstMs: 500, lastMs: 8_000, most: 1_000, maxLength: 2 ** 20 };

/** The node of these reports. */
export interface SessionsOwner {
  readonly node: NodeName;
  readonly broker: Broker;
  /** The nodes that lived at the last beat. */
  readonly live: ReadonlySet<NodeName>;
  /** Ends the session of a token's hash, if it is on this node and this principal has opened it. */
  endSession(hash: string, principal: string | undefined): void;
  /** Counts a report that is not repeated, because too many are. */
  dropped(): void;
}

/** The reports of one node to the others, and of the others to it. Ending a session twice does nothing, so reports may be repeated. */
export class SessionReports {
  readonly #owner: SessionsOwner;
  readonly #repeats: Repeats;

  constructor(owner: SessionsOwner) {
    this.#owner = owner;
    this.#repeats = new Repeats(owner.broker, LIMITS, () => owner.dropped());
  }

  /** A client that was refused a session has begun a new one on this node. */
  send(hash: string, principal: string | undefined): void {
    const owner = this.#owner;
    const frame = frameOf(Kind.SessionOver, [owner.node, hash, principal === undefined ? "" : "p", principal ?? ""]);
    this.#repeats.send("a:all", frame, REPEAT_MS, (count) => count >= owner.live.size);
  }

  /** Takes a report. */
  received({ fields: [from, hash = "", has, principal] }: ReadFrame): void {
    if (from !== this.#owner.node) this.#owner.endSession(hash, has === "p" ? principal : undefined);
  }

  /** The connection is restored. */
  up(): void {
    this.#repeats.up();
  }

  stop(): void {
    this.#repeats.stop();
  }
}
