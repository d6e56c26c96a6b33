/** The picture: keeps the strokes and paints them, sharp on every screen and the same in every window. */
import type { Color, Stroke } from "../api.js";
import { byId } from "./dom.js";

export const canvas = byId("canvas", HTMLCanvasElement);
const hint = byId("hint", HTMLElement);
const pen = canvas.getContext("2d")!;
const strokes = new Map<string, Stroke>();

/** Shows these strokes and no others. */
export function load(all: readonly Stroke[]): void {
  strokes.clear();
  for (const stroke of all) strokes.set(stroke.id, stroke);
  repaint();
}

/** Begins a stroke or makes it longer, and paints no more than what is new. */
export function extend(piece: Stroke): void {
  const stroke = strokes.get(piece.id);
  if (stroke === undefined) strokes.set(piece.id, { ...piece, points: [...piece.points] });
  else stroke.points.push(...piece.points);
  const whole = strokes.get(piece.id)!;
  paint(whole, (whole.points.length - piece.points.length) / 2);
  describe();
}

/** Takes strokes away. */
export function erase(ids: readonly string[]): void {
  for (const id of ids) strokes.delete(id);
  repaint();
}

function repaint(): void {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  for (const stroke of strokes.values()) paint(stroke, 0);
  describe();
}

/** Paints a stroke from its point number `from` on: a curve through the middles, with the points as its handles. */
function paint({ color, size, points }: Stroke, from: number): void {
  const x = (i: number): number => points[2 * i]! * canvas.width;
  const y = (i: number): number => points[2 * i + 1]! * canvas.height;
  const count = points.length / 2;
  pen.strokeStyle = inkOf(color);
  pen.lineWidth = size * canvas.width;
  pen.lineCap = pen.lineJoin = "round";
  pen.beginPath();
  const first = Math.max(from, 1);
  if (first < 2) pen.moveTo(x(0), y(0));
  else pen.moveTo((x(first - 2) + x(first - 1)) / 2, (y(first - 2) + y(first - 1)) / 2);
  for (let i = first; i < count; i++) {
    pen.quadraticCurveTo(x(i - 1), y(i - 1), (x(i - 1) + x(i)) / 2, (y(i - 1) + y(i)) / 2);
  }
  // To the last point itself: it may be the end, and a stroke of one point is a dot.
  pen.lineTo(x(count - 1), y(count - 1));
  pen.stroke();
}

/** Colours have names on the wire, because each theme has its own. */
function inkOf(color: Color): string {
  return getComputedStyle(canvas).getPropertyValue(`--${color}`);
}

function describe(): void {
  hint.hidden = strokes.size > 0;
  canvas.ariaLabel = `Shared drawing, ${strokes.size} ${strokes.size === 1 ? "stroke" : "strokes"}`;
}

new ResizeObserver(() => {
  canvas.width = Math.round(canvas.clientWidth * devicePixelRatio);
  canvas.height = Math.round(canvas.clientHeight * devicePixelRatio);
  repaint();
}).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
