/** The board that all nodes share, as one of them knows it: the sum of the entries in the log of a topic. */
import type { Topic } from "reciproc/node";
import type { ClientApi, Line, ServerApi, Stroke } from "../api.js";
import { BoardState } from "../state.js";

/** How many entries are read at once. */
const PAGE = 1_000;

export class SharedBoard {
  readonly #topic: Topic<ServerApi, ClientApi, any>;
  #state = new BoardState();
  #at: string | undefined = undefined;
  /** The reads, one after the other. */
  #reading: Promise<void> = Promise.resolve();

  constructor(topic: Topic<ServerApi, ClientApi, any>) {
    this.#topic = topic;
  }

  /** The board at the position. */
  get state(): BoardState {
    return this.#state;
  }

  /** The position in the log. `undefined` before the first update. */
  get at(): string | undefined {
    return this.#at;
  }

  /** Reads what was logged since the last time. Resolves when the board has everything that was logged before this call. */
  update(): Promise<void> {
    const reading = this.#reading.then(() => this.#read());
    // A read that failed is repeated by the next call.
    this.#reading = reading.catch(() => {});
    return reading;
  }

  async #read(): Promise<void> {
    for (;;) {
      const { at, outcome, entries } = await this.#topic.read({ since: this.#at, limit: PAGE });
      // The first read, another log, or one that has forgotten what follows: the board is what the log has.
      if (outcome === "gap") this.#state = new BoardState();
      for (const { method, params } of entries) this.#apply(method, params);
      this.#at = at;
      if (entries.length < PAGE) return;
    }
  }

  /** Applies an entry. Only nodes of this demo write to the log, and they have checked it. */
  #apply(method: string, params: unknown): void {
    if (method === "drew") {
      const { id, color, size, points } = params as Stroke;
      this.#state.apply({ drew: { id, color, size, points } });
    } else if (method === "said") {
      const { id, name, color, text } = params as Line;
      this.#state.apply({ said: { id, name, color, text } });
    } else if (method === "erased") {
      for (const erased of (params as { strokes: string[] }).strokes) this.#state.apply({ erased });
    } else if (method === "decided") this.#state.apply({ cleared: true });
  }
}
