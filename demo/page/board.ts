/** Keeps the strokes and paints them, sharp on every screen and the same in every window. */
import { bytesOf } from "reciproc";
import type { Color, Stroke } from "../api.js";
import { byId } from "./dom.js";

export const canvas = byId("canvas", HTMLCanvasElement);
const hint = byId("hint", HTMLElement);
const pen = canvas.getContext("2d")!;
/** A stroke, with its points as the numbers of the wire. */
interface Line extends Omit<Stroke, "points"> {
  points: number[];
}
/** The number of the far edge. */
const EDGE = 65_535;

const strokes = new Map<string, Line>();
/** The strokes with points that wait for the connection. They are dotted. */
const waiting = new Set<string>();
let frame = 0;

/** The number of newest strokes that are repainted in each frame. Older strokes are cached on a second canvas. */
const NEWEST = 16;
const below = document.createElement("canvas").getContext("2d")!;
const ready = new Set<string>();

/** Replaces all strokes. */
export function load(all: readonly Stroke[]): void {
  strokes.clear();
  for (const { points, ...stroke } of all) strokes.set(stroke.id, { ...stroke, points: numbersOf(points) });
  ready.clear();
  changed();
}

/** Starts or extends a stroke. `waits`: the piece is not sent yet. */
export function extend({ points, ...piece }: Stroke, waits = false): void {
  if (waits) waiting.add(piece.id);
  const stroke = strokes.get(piece.id);
  if (stroke === undefined) strokes.set(piece.id, { ...piece, points: numbersOf(points) });
  else stroke.points.push(...numbersOf(points));
  if (ready.has(piece.id)) ready.clear();
  changed();
}

/** All pieces are sent. */
export function sent(): void {
  waiting.clear();
  ready.clear();
  changed();
}

/** Deletes strokes. */
export function erase(ids: readonly string[]): void {
  for (const id of ids) strokes.delete(id);
  if (ids.some((id) => ready.has(id))) ready.clear();
  changed();
}

function changed(): void {
  hint.hidden = strokes.size > 0;
  canvas.ariaLabel = `Shared drawing, ${strokes.size} ${strokes.size === 1 ? "stroke" : "strokes"}`;
  frame ||= requestAnimationFrame(repaint);
}

/** Paints each stroke as a whole, in order: a stroke painted in pieces would have other edges than after a reload. */
function repaint(): void {
  frame = 0;
  if (ready.size === 0) below.clearRect(0, 0, canvas.width, canvas.height);
  const newest = [...strokes.values()].slice(ready.size);
  for (const stroke of newest.splice(0, newest.length - NEWEST)) {
    paint(below, stroke);
    ready.add(stroke.id);
  }
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(below.canvas, 0, 0);
  for (const stroke of newest) paint(pen, stroke);
}

/** Paints a stroke: a curve through the middles, with the points as its handles. */
function paint(on: CanvasRenderingContext2D, { id, color, size, points }: Line): void {
  const x = (i: number): number => (points[2 * i]! / EDGE) * canvas.width;
  const y = (i: number): number => (points[2 * i + 1]! / EDGE) * canvas.height;
  const last = points.length / 2 - 1;
  on.strokeStyle = on.fillStyle = inkOf(color);
  on.lineWidth = size * canvas.width;
  on.lineCap = on.lineJoin = "round";
  // Dashes without length, which the round caps make dots.
  on.setLineDash(waiting.has(id) ? [0, 2 * on.lineWidth] : []);
  on.beginPath();
  if (points.every((value, i) => value === points[i % 2])) {
    // A canvas does not draw lines without length, so a dot is a circle.
    on.arc(x(0), y(0), on.lineWidth / 2, 0, 2 * Math.PI);
    return on.fill();
  }
  on.moveTo(x(0), y(0));
  for (let i = 1; i <= last; i++) {
    on.quadraticCurveTo(x(i - 1), y(i - 1), (x(i - 1) + x(i)) / 2, (y(i - 1) + y(i)) / 2);
  }
  on.lineTo(x(last), y(last));
  on.stroke();
}

/** Returns the numbers of a stroke: pairs of bytes, the lower one first. */
function numbersOf(points: Stroke["points"]): number[] {
  const bytes = bytesOf(points);
  return Array.from({ length: bytes.length / 2 }, (_, i) => bytes[2 * i]! + 256 * bytes[2 * i + 1]!);
}

/** Returns the theme's value of a colour. The wire carries names, because each theme has its own values. */
function inkOf(color: Color): string {
  return getComputedStyle(canvas).getPropertyValue(`--${color}`);
}

function repaintAll(): void {
  ready.clear();
  repaint();
}

new ResizeObserver(() => {
  // A canvas without a size cannot be copied.
  canvas.width = below.canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
  canvas.height = below.canvas.height = Math.max(1, Math.round(canvas.clientHeight * devicePixelRatio));
  repaintAll();
}).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaintAll);
