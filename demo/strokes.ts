/** The strokes of the board on the server: in order, and at most as many as fit into one message. */
import type { Stroke } from "./api.js";

const MOST_POINTS = 40_000;
/** The weight of a stroke besides its points, so that a board of dots is bounded too. */
const STROKE_WEIGHT = 10;

export class Strokes {
  readonly #strokes = new Map<string, Stroke>();
  #weight = 0;

  /** All strokes, the oldest first. */
  all(): Stroke[] {
    return [...this.#strokes.values()];
  }

  /** Starts or extends a stroke. Returns the ids of old strokes that were deleted for it. */
  extend(piece: Stroke): string[] {
    const stroke = this.#strokes.get(piece.id);
    if (stroke === undefined) this.#strokes.set(piece.id, piece);
    else stroke.points = stroke.points.concat(piece.points);
    this.#weight += weigh(piece.points.length) + (stroke === undefined ? STROKE_WEIGHT : 0);
    const gone: string[] = [];
    for (const id of this.#strokes.keys()) {
      if (this.#weight <= MOST_POINTS) break;
      this.delete(id);
      gone.push(id);
    }
    return gone;
  }

  /** Returns the newest stroke whose id begins with `prefix`. */
  newest(prefix: string): string | undefined {
    return [...this.#strokes.keys()].filter((id) => id.startsWith(prefix)).at(-1);
  }

  delete(id: string): void {
    const stroke = this.#strokes.get(id);
    if (stroke === undefined) return;
    this.#strokes.delete(id);
    this.#weight -= weigh(stroke.points.length) + STROKE_WEIGHT;
  }

  clear(): void {
    this.#strokes.clear();
    this.#weight = 0;
  }
}

function weigh(numbers: number): number {
  return numbers / 2;
}
