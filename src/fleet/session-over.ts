/**
 * Sessions that their clients have discarded, because a different node refused them. The node that has such a session ends it at once,
 * so that its calls settle and its user is not a member twice until the session expires.
 */
import { clearDeadline, setDeadline, type Expiring } from "../core/deadlines.js";
import { frameOf, Kind, type ReadFrame } from "./frames.js";
import type { FleetNode } from "./node.js";
import { Repeats } from "./repeats.js";

/** How long a report is repeated until every live node has received it. A session without a socket seldom lasts longer. */
const REPEAT_MS = 60_000;
const LIMITS = { firstMs: 500, lastMs: 8_000, most: 1_000, maxLength: 2 ** 20 };
/** After a frame, further reports are gathered for so long. */
const GATHER_MS = 20;
/**
 * The reports of one frame, in UTF-16 code units of their hashes and principals. The greatest frame of the broker is a bound too. A longer
 * report has a frame of its own.
 */
const MAX_GATHERED_LENGTH = 4_096;

/**
 * The reports of one node to the others, and of the others to it. Ending a session twice does nothing, so reports may be repeated.
 *
 * The first report is sent at once. Those of the next `GATHER_MS` share a frame: when a node dies, thousands of its clients come to
 * another one in a few seconds, and a frame for each took a fifth of its CPU time for them.
 */
export class SessionReports implements Expiring {
  deadline = 0;
  readonly #node: FleetNode;
  readonly #repeats: Repeats;
  /** Three fields for each report that is not sent yet: hash, hasPrincipal, principal. */
  #gathered: string[] = [];
  #gatheredLength = 0;
  /** How long the frames were if each report had its own: longer than one frame of all. */
  #gatheredBytes = 0;
  /** True for `GATHER_MS` after each frame. */
  #isGathering = false;
  #isStopped = false;

  constructor(node: FleetNode) {
    this.#node = node;
    this.#repeats = new Repeats(node, LIMITS);
  }

  /** Reports that a client has discarded its session, because this node refused it. Does nothing after `stop`. */
  send(hash: string, principal: string | undefined): void {
    if (this.#isStopped) return;
    const report = [hash, principal === undefined ? "" : "p", principal ?? ""];
    const length = hash.length + (principal?.length ?? 0);
    const { id: node, broker } = this.#node;
    // ASCII only.
    const bytes = frameOf(Kind.SessionOver, [node, ...report]).length;
    const isFull =
      this.#gatheredLength + length > MAX_GATHERED_LENGTH ||
      this.#gatheredBytes + bytes > (broker.facts?.maxFrameBytes ?? Infinity);
    if (isFull) this.#sendGathered();
    this.#gathered.push(...report);
    this.#gatheredLength += length;
    this.#gatheredBytes += bytes;
    if (!this.#isGathering) this.expire();
  }

  /** Sends what was gathered. If there is nothing, the next report is sent at once. */
  expire(): void {
    this.#isGathering = this.#gathered.length > 0;
    if (!this.#isGathering) return;
    this.#sendGathered();
    setDeadline(this, GATHER_MS);
  }

  #sendGathered(): void {
    if (this.#gathered.length === 0) return;
    const { id, nodes } = this.#node;
    const frame = frameOf(Kind.SessionOver, [id, ...this.#gathered]);
    this.#gathered = [];
    this.#gatheredLength = 0;
    this.#gatheredBytes = 0;
    this.#repeats.send("a:all", frame, REPEAT_MS, (count) => count >= nodes.live.size);
  }

  /** Takes a frame of reports. */
  received({ fields: [from, ...reports] }: ReadFrame): void {
    if (from === this.#node.id) return;
    for (let i = 0; i < reports.length; i += 3)
      this.#node.host.endSession(reports[i]!, reports[i + 1] === "p" ? reports[i + 2] : undefined);
  }

  /** The connection is restored. */
  up(): void {
    this.#repeats.up();
  }

  /** Sends what was gathered. Afterwards nothing is sent or repeated. */
  stop(): void {
    this.#isStopped = true;
    clearDeadline(this);
    this.#sendGathered();
    this.#repeats.stop();
  }
}
