/**
 * The order of one node's publications. If a topic has members on this node and its log is not followed yet, its publications wait. Then
 * each is given to the broker behind the earlier ones, and the members that were added before get it too.
 */
import type { Broker } from "./broker.js";
import { EngineError } from "./engine.js";

/** One publication. */
export interface Turn<T> {
  readonly bytes: number;
  readonly timeoutMs: number;
  /**
   * Follows the log, and never rejects. Resolves with false if the publications that wait behind this one are not to try it too.
   * `undefined` if the node follows the log already, or does not need to.
   */
  readonly follow: (() => Promise<boolean>) | undefined;
  readonly append: () => Promise<T>;
}

/** The publications that wait, of all topics of one node. */
export class Turns {
  readonly #broker: Broker;
  /**
   * By topic: resolves when each publication that waits was given to the broker or rejected, with false if those behind are not to try
   * to follow the log. Absent if none waits.
   */
  readonly #last = new Map<string, Promise<boolean>>();

  constructor(broker: Broker) {
    this.#broker = broker;
  }

  /**
   * Gives a publication to the broker when it is its turn. If the log cannot be followed, it is given nevertheless. Rejects with
   * `"not-sent"` if its time passes before. The promise of its result is in an array, because the next one does not wait for it.
   */
  async take<T>(topic: string, { bytes, timeoutMs, follow, append }: Turn<T>): Promise<[Promise<T>]> {
    const broker = this.#broker;
    const earlier = this.#last.get(topic);
    if (follow === undefined && earlier === undefined) return [broker.run(bytes, timeoutMs, append)];
    const until = performance.now() + timeoutMs;
    const checkTime = (): void => {
      if (performance.now() >= until) throw new EngineError(`${broker.name} was not ready in time`, "not-sent");
    };
    const turn = { canFollow: true };
    const ready = broker.prepare(bytes, timeoutMs, async () => {
      turn.canFollow = (await earlier) ?? true;
      checkTime();
      if (follow !== undefined && turn.canFollow) turn.canFollow = await follow();
    });
    const given = ready.then((): [Promise<T>] => {
      checkTime();
      return [broker.run(bytes, until - performance.now(), append)];
    });
    this.#keep(topic, turn, earlier, given);
    return given;
  }

  /** Lets the next publication wait. A function of its own, because its closure must not hold the text of one that was refused. */
  #keep(
    topic: string,
    turn: { readonly canFollow: boolean },
    earlier: Promise<boolean> | undefined,
    given: Promise<unknown>,
  ): void {
    // If the time of a publication passes while earlier ones wait, the next one still waits for those.
    const settled = Promise.allSettled([earlier, given]).then(([before]) => {
      if (this.#last.get(topic) === settled) this.#last.delete(topic);
      return turn.canFollow && before.status === "fulfilled" && before.value !== false;
    });
    this.#last.set(topic, settled);
  }
}
