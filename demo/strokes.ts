/** The strokes of the board on the server: in order, and at most as many as fit into one message. */
import { bytes, bytesOf } from "reciproc/node";
import type { Stroke } from "./api.js";

/** The most bytes of all strokes: 40,000 points. */
const MOST_BYTES = 160_000;
/** The weight of a stroke besides its points, in bytes, so that a board of dots is bounded too. */
const STROKE_BYTES = 40;

/** A stroke, or a piece of it, with the bytes of its points. */
interface Kept extends Omit<Stroke, "points"> {
  points: Uint8Array;
}

export class Strokes {
  readonly #strokes = new Map<string, Kept>();
  #weight = 0;

  /** All strokes, the oldest first. */
  all(): Stroke[] {
    return [...this.#strokes.values()].map(({ points, ...stroke }) => ({ ...stroke, points: bytes(points) }));
  }

  /** Starts or extends a stroke. Returns the ids of old strokes that were deleted for it. */
  extend(piece: Stroke): string[] {
    const points = bytesOf(piece.points);
    const stroke = this.#strokes.get(piece.id);
    // A copy, because the bytes may be a part of a frame of many messages.
    if (stroke === undefined) this.#strokes.set(piece.id, { ...piece, points: points.slice() });
    else stroke.points = Buffer.concat([stroke.points, points]);
    this.#weight += points.length + (stroke === undefined ? STROKE_BYTES : 0);
    const gone: string[] = [];
    for (const id of this.#strokes.keys()) {
      if (this.#weight <= MOST_BYTES) break;
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
    this.#weight -= stroke.points.length + STROKE_BYTES;
  }

  clear(): void {
    this.#strokes.clear();
    this.#weight = 0;
  }
}
