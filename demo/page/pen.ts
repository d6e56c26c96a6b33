/** Reports the strokes and positions of a mouse, finger or pen, once a frame and not once an event. */
import { canvas } from "./board.js";
import { byId } from "./dom.js";

/** A piece of a stroke. */
export interface Piece {
  stroke: number;
  size: number;
  points: number[];
}

/** The most points of a stroke, which bounds each message. A longer line becomes several strokes. */
const MOST_POINTS = 250;

const sizes = byId("sizes", HTMLFormElement);
let strokes = 0;
let drawing: { pointer: number; piece: Piece; drawn: number } | undefined;
let place: { x: number; y: number } | undefined;
let frame = 0;

/** Starts to listen. Calls `draw` with each piece and `move` with each position. */
export function start(draw: (piece: Piece) => void, move: (place: { x: number; y: number }) => void): void {
  const flush = (): void => {
    cancelAnimationFrame(frame);
    frame = 0;
    if (drawing !== undefined && drawing.piece.points.length > 0) {
      draw(drawing.piece);
      drawing.piece = { ...drawing.piece, points: [] };
    }
    if (place !== undefined) move(place);
    place = undefined;
  };
  const add = (event: PointerEvent): void => {
    const { x, y } = (place = placeOf(event));
    frame ||= requestAnimationFrame(flush);
    if (drawing?.pointer !== event.pointerId) return;
    drawing.piece.points.push(x, y);
    if (++drawing.drawn < MOST_POINTS) return;
    flush();
    begin(event);
    drawing.piece.points.push(x, y);
  };
  const end = ({ pointerId }: PointerEvent): void => {
    if (drawing?.pointer !== pointerId) return;
    flush();
    drawing = undefined;
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || drawing !== undefined) return;
    // From here on, all moves of this pointer come to the canvas.
    canvas.setPointerCapture(event.pointerId);
    begin(event);
    add(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    // A pointer may move many times between two frames. Without these moves, fast curves have corners.
    const events = event.getCoalescedEvents?.() ?? [];
    for (const each of events.length > 0 ? events : [event]) add(each);
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"] as const) canvas.addEventListener(type, end);
}

/** Calls `undo` when the button is pressed, or its keys where they do not undo typing. */
export function onUndo(undo: () => void): void {
  byId("undo", HTMLButtonElement).addEventListener("click", undo);
  document.addEventListener("keydown", (event) => {
    const { key, ctrlKey, metaKey, shiftKey, altKey, target } = event;
    if (key.toLowerCase() !== "z" || !(ctrlKey || metaKey) || shiftKey || altKey) return;
    if (target instanceof Element && target.matches("input:not([type=radio])")) return;
    // In the editor's room, the editor handles these keys.
    if (!canvas.checkVisibility()) return;
    event.preventDefault();
    undo();
  });
}

function begin({ pointerId: pointer }: PointerEvent): void {
  const size = Number(new FormData(sizes).get("size"));
  drawing = { pointer, piece: { stroke: ++strokes, size, points: [] }, drawn: 0 };
}

function placeOf({ clientX, clientY }: PointerEvent): { x: number; y: number } {
  const { left, top, width, height } = canvas.getBoundingClientRect();
  return { x: fraction((clientX - left) / width), y: fraction((clientY - top) / height) };
}

/** Rounds to four digits: as fine as a pixel, short on the wire, and the most that the server accepts. */
function fraction(value: number): number {
  return Math.round(Math.min(1, Math.max(0, value)) * 10_000) / 10_000;
}
