/**
 * Sessions whose clients have begun another one on a different node. The node that has the old session ends it at once, so that its
 * calls settle and its user is not a member twice until the session expires.
 */
import { utf8Bytes } from "../core/codec.js";
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import type { Broker } from "./broker.js";
import type { NodeName } from "./engine.js";
import { frameOf, Kind, type ReadFrame } from "./frames.js";

/** How long a report is repeated until every live node has received it. A session without a socket seldom lasts longer. */
const REPEAT_MS = 60_000;
/** The delay before a report is repeated: twice as long each time. */
const FIRST_REPEAT_MS = 500;
const LAST_REPEAT_MS = 8_000;
/** Reports that wait to be repeated. The oldest is dropped for one more. */
const MOST_REPORTS = 1_000;

/** The node of these reports. */
export interface SessionsOwner {
  readonly node: NodeName;
  readonly broker: Broker;
  /** The nodes that lived at the last beat. */
  readonly live: ReadonlySet<NodeName>;
  /** Ends the session of a token's hash, if it is on this node and this principal has opened it. */
  endSession(hash: string, principal: string | undefined): void;
}

/** The reports of one node to the others, and of the others to it. Ending a session twice does nothing, so reports may be repeated. */
export class SessionReports {
  readonly #owner: SessionsOwner;
  readonly #waiting = new Set<Expiring>();
  #isStopped = false;

  constructor(owner: SessionsOwner) {
    this.#owner = owner;
  }

  /** A client that was refused a session has begun a new one on this node. */
  send(hash: string, principal: string | undefined): void {
    const has = principal === undefined ? "" : "p";
    const frame = frameOf(Kind.SessionOver, [this.#owner.node, hash, has, principal ?? ""]);
    void this.#send(frame, performance.now() + REPEAT_MS, FIRST_REPEAT_MS);
  }

  /** Waits for the connection. Repeats the report if it may be lost, or if a live node has not received it. Never rejects. */
  async #send(frame: string, until: number, delayMs: number): Promise<void> {
    const { broker } = this.#owner;
    const leftMs = until - performance.now();
    if (leftMs <= 0) return;
    const send = (): Promise<number | undefined> => broker.connection.send("a:all", frame);
    const count = await broker.run(utf8Bytes(frame), leftMs, send).catch(() => 0);
    // A broker that counts no receivers gets the report once.
    if (this.#isStopped || count === undefined || count >= this.#owner.live.size) return;
    const retry: Expiring = {
      deadline: 0,
      expire: () => {
        this.#waiting.delete(retry);
        void this.#send(frame, until, Math.min(delayMs * 2, LAST_REPEAT_MS));
      },
    };
    const [oldest] = this.#waiting;
    if (this.#waiting.size >= MOST_REPORTS) this.#forget(oldest!);
    this.#waiting.add(retry);
    setDeadline(retry, delayMs);
  }

  /** Takes a report. */
  received({ fields: [from, hash = "", has, principal] }: ReadFrame): void {
    if (from !== this.#owner.node) this.#owner.endSession(hash, has === "p" ? principal : undefined);
  }

  stop(): void {
    this.#isStopped = true;
    for (const retry of this.#waiting) this.#forget(retry);
  }

  #forget(retry: Expiring): void {
    clearDeadline(retry);
    this.#waiting.delete(retry);
  }
}
